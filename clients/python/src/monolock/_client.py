"""A client: one server's address, and the names that it has claims on."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import Callable, Iterable, List, Optional, Set

from . import _input
from ._acquisition import Progress
from ._failure import AlreadyClaimed
from ._held import Held, HeldTogether
from ._input import Seconds
from ._lock import Lock, Options


class Client:
    """A client of one lock server, for any number of threads and event loops.

    The address is ``HOST:PORT``. A host that is a name is looked up with each dial, so that it may
    move. Making a client dials nothing. All clients of a process share one thread, which sends the
    heartbeats of all their claims and ends with the last of them.

    To its locks a client is one party: while it has a claim on a name, queued or held, a second one
    fails with :class:`AlreadyClaimed`. Work that asked again for the lock that it runs under would
    otherwise wait for itself for ever. Parts of a program that are to compete with each other need
    a client each.

    Raises :class:`InvalidInput` if that is not HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        self._server = _input.address(address)
        #: As it was given.
        self.address = address
        self._reset()
        _clients.add(self)

    def lock(
        self,
        name: str,
        *,
        lease: Seconds = 10.0,
        wait: bool = True,
        wait_at_most: Optional[Seconds] = None,
        retry: bool = False,
        hold_at_most: Optional[Seconds] = None,
        stop_within: Optional[Seconds] = None,
        progress: Optional[queue.SimpleQueue[Progress]] = None,
    ) -> Lock[Held]:
        """One lock, to be held by one of the calls of :class:`Lock`, where the options are.

        The name is 1 to 255 bytes of UTF-8 and means itself: upper and lower case differ, nothing
        is trimmed.
        """
        options = Options(lease, wait, wait_at_most, retry, hold_at_most, stop_within, progress)
        return Lock(self._server, self._reserve, [name], lambda tenure: Held(tenure, 0), options)

    def locks(
        self,
        names: Iterable[str],
        *,
        lease: Seconds = 10.0,
        wait: bool = True,
        wait_at_most: Optional[Seconds] = None,
        retry: bool = False,
        hold_at_most: Optional[Seconds] = None,
        stop_within: Optional[Seconds] = None,
        progress: Optional[queue.SimpleQueue[Progress]] = None,
    ) -> Lock[HeldTogether]:
        """Several locks, to be held together or not at all.

        They are taken in the order of their names, whatever the order here, so that two parties
        that want the same locks never wait for each other.
        """
        options = Options(lease, wait, wait_at_most, retry, hold_at_most, stop_within, progress)
        # One name, given by mistake, is refused with the others.
        listed = names if isinstance(names, str) else list(names)
        return Lock(self._server, self._reserve, listed, HeldTogether, options)

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def _reserve(self, names: List[str]) -> Callable[[], None]:
        """Notes that there is a claim on each of these; gives what ends that."""
        claimed = self._claimed
        with self._lock:
            for name in names:
                if name in claimed:
                    raise AlreadyClaimed(name)
            claimed.update(names)
        return lambda: claimed.difference_update(names)

    def _reset(self) -> None:
        self._claimed: Set[str] = set()
        self._lock = threading.Lock()


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forked() -> None:
    """In the child of a fork: the claims are the parent's."""
    for client in list(_clients):
        client._reset()


os.register_at_fork(after_in_child=_forked)
