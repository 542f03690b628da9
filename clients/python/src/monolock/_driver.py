"""The thread on which all claims of this process live.

Heartbeats must go out whatever the caller's threads do: an event loop that computes for a minute,
or a blocking call in a coroutine, must not cost the lock. So nothing of the caller's ever runs
here.
The thread is started by the first claim and ends with the last.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import socket
import threading
from collections import deque
from typing import Callable, Deque, List, Optional, Protocol, Set, Tuple

from . import _clock

#: Below so many moments nothing is tidied up.
_ALARMS_MIN = 64

_shared: Optional[Driver] = None
_shared_lock = threading.Lock()


class Party(Protocol):
    """Somebody for whose sake the thread runs."""

    def driver_ended(self) -> None:
        """The thread has ended before its time. Called in its last moments."""

    def forked(self) -> None:
        """This is the child of a fork: close what is open without a word to the other side, which
        is still talking to the parent.
        """


class Alarm:
    """A call that the driver makes at a moment which can be changed, on its thread only."""

    def __init__(self, driver: Driver, call: Callable[[], None]) -> None:
        self._driver = driver
        self._call = call
        self._moment = _clock.NEVER

    def at(self, moment: int) -> None:
        """To be made then, and at no other moment."""
        if moment != self._moment:
            self._moment = moment
            if moment != _clock.NEVER:
                self._driver._note(moment, self)

    def ring(self, moment: int) -> None:
        """The moment has come, if it is still the one that counts."""
        if self.is_for(moment):
            self._moment = _clock.NEVER
            self._call()

    def is_for(self, moment: int) -> bool:
        """Whether this is the moment that counts."""
        return moment == self._moment


class Driver:
    """See the module."""

    def __init__(self) -> None:
        self._selector = selectors.EpollSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._timer = _clock.Timer()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._timer, selectors.EVENT_READ, lambda _: None)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain)
        self._alarms: List[Tuple[int, int, Alarm]] = []
        self._alarms_max = _ALARMS_MIN
        self._order = itertools.count()
        self._calls: Deque[Callable[[], None]] = deque()
        self._parties: Set[Party] = set()
        self._thread = threading.Thread(target=self._run, name="monolock-client", daemon=True)

    @classmethod
    def join(cls, party: Party) -> Driver:
        """The driver of this process, started if there is none. It runs until the party leaves.

        Raises OSError or RuntimeError if there is no descriptor or thread to be had.
        """
        global _shared
        with _shared_lock:
            driver = _shared
            if driver is None:
                driver = cls()
                driver._parties.add(party)
                try:
                    driver._thread.start()
                except BaseException:
                    driver._close()
                    raise
                _shared = driver
            driver._parties.add(party)
            return driver

    def leave(self, party: Party) -> None:
        """The party needs the driver no more. On its thread only."""
        with _shared_lock:
            self._parties.discard(party)

    def call(self, call: Callable[[], None]) -> None:
        """Has the thread make this call soon. From any thread, by a party that has not left."""
        self._calls.append(call)
        try:
            self._wake_writer.send(b"\0")
        except (BlockingIOError, OSError):
            # It is full, so the thread will wake up; or the thread has ended, and told everybody.
            pass

    def alarm(self, call: Callable[[], None]) -> Alarm:
        """A call to be made at a moment that is still to be said."""
        return Alarm(self, call)

    def watch(self, sock: socket.socket, events: int, call: Callable[[int], None]) -> None:
        """Has the call made when the socket is ready for these; replaces what was said before."""
        if sock.fileno() in self._selector.get_map():
            self._selector.modify(sock, events, call)
        else:
            self._selector.register(sock, events, call)

    def close(self, sock: socket.socket) -> None:
        """Watches it no more, and closes it."""
        if sock.fileno() >= 0 and sock.fileno() in self._selector.get_map():
            self._selector.unregister(sock)
        sock.close()

    def _note(self, moment: int, alarm: Alarm) -> None:
        if len(self._alarms) >= self._alarms_max:
            # Most are of moments that don't count any more, and keep alive what is over.
            self._alarms = [entry for entry in self._alarms if entry[2].is_for(entry[0])]
            heapq.heapify(self._alarms)
            self._alarms_max = max(_ALARMS_MIN, 2 * len(self._alarms))
        heapq.heappush(self._alarms, (moment, next(self._order), alarm))

    def _run(self) -> None:
        try:
            while not self._has_nobody():
                self._turn()
        finally:
            self._end()

    def _turn(self) -> None:
        """What has come is taken in before any moment counts as past."""
        self._timer.arm(self._alarms[0][0] if self._alarms else _clock.NEVER)
        for key, events in self._selector.select():
            key.data(events)
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        now = _clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            moment, _, alarm = heapq.heappop(self._alarms)
            alarm.ring(moment)

    def _drain(self, _: int) -> None:
        self._wake_reader.recv(4096)

    def _has_nobody(self) -> bool:
        """Whether the thread is to end. From that moment on the next party starts another one."""
        global _shared
        with _shared_lock:
            if self._parties:
                return False
            if _shared is self:
                _shared = None
            return True

    def _end(self) -> None:
        global _shared
        with _shared_lock:
            if _shared is self:
                _shared = None
            left, self._parties = self._parties, set()
        for party in left:
            party.driver_ended()
        self._close()

    def _close(self) -> None:
        # Closing the selector, rather than taking everything out of it: after a fork it is the
        # parent's too.
        self._selector.close()
        self._timer.close()
        self._wake_reader.close()
        self._wake_writer.close()


def _forked() -> None:
    """In the child of a fork. The thread is not there, but a copy of all its descriptors is, which
    would keep the claims' connections open after the parent has died.
    """
    global _shared, _shared_lock
    _shared_lock = threading.Lock()
    driver, _shared = _shared, None
    if driver is None:
        return
    parties, driver._parties = driver._parties, set()
    for party in parties:
        party.forked()
    driver._close()


os.register_at_fork(after_in_child=_forked)
