"""What is known of locks that are held together: written by the driver's thread, read by the work.
Both look at the clock, so that a driver that didn't run in time can't let the work believe that it
still holds.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Callable, Iterator, List, Optional, Sequence, TypeVar

from . import _clock
from ._claim import Claim
from ._failure import Loss, LossKind, StopKind, StopReason

T = TypeVar("T")

_RELEASED = Loss(LossKind.RELEASED, "it was released when its work ended")


@dataclass
class _Grant:
    token: int
    give_up_at: int
    lease_ends_at: int
    is_lost: bool = False


class Ending(Enum):
    """How work ended, as the locks saw it, unless they were lost."""

    KEPT = auto()
    HELD_TOO_LONG = auto()


class Tenure:
    """One attempt to hold locks together, and their being held."""

    def __init__(self, names: Sequence[str], lease_ms: int) -> None:
        self.names = names
        self.lease_ms = lease_ms
        self._changed = threading.Condition()
        self._version = 0
        self._listeners: List[Callable[[], None]] = []
        #: In the order of the names, as far as they are granted.
        self._grants: List[_Grant] = []
        #: The first loss of any of them, which is the loss of all.
        self.loss: Optional[Loss] = None
        #: When the server may give away the lock of the first loss, at the earliest.
        self._lost_lease_ends_at = 0
        self._is_cancelled = False
        self._has_held_long_enough = False
        #: The work may be ended by force.
        self.is_overdue = False
        self.is_released = False
        #: All connections are closed.
        self.is_closed = False

    def grant(self, token: int, claim: Claim) -> None:
        """The next lock in the order of the names is granted."""
        with self._changed:
            self._grants.append(_Grant(token, claim.give_up_at, claim.lease_ends_at))

    def confirm(self, index: int, claim: Claim) -> None:
        """The claim on this lock was confirmed: its times are these."""
        # Nobody waits for a deadline to be moved.
        with self._changed:
            grant = self._grants[index]
            grant.give_up_at = claim.give_up_at
            grant.lease_ends_at = claim.lease_ends_at

    def lose(self, index: int, loss: Loss) -> None:
        """This lock is lost."""
        with self._change():
            self._lose(index, loss)

    def cancel(self) -> None:
        """Nobody waits for the result any more."""
        with self._change():
            self._is_cancelled = True

    def hold_time_is_over(self) -> None:
        """It was held for as long as was permitted."""
        with self._change():
            self._has_held_long_enough = True

    def grace_is_over(self) -> None:
        """From now on the work is ended by force if it hasn't ended."""
        with self._change():
            self.is_overdue = True

    def close(self) -> None:
        """All connections are closed."""
        with self._change():
            self.is_closed = True

    def release(self) -> Ending:
        """The work has ended: judges it, and has the connections closed.

        Raises nothing: a loss is there to be seen afterwards.
        """
        with self._change():
            self._look(_clock.now())
            self.is_released = True
            return Ending.HELD_TOO_LONG if self._has_held_long_enough else Ending.KEPT

    def forked(self) -> None:
        """In the child of a fork, where no other thread is, but perhaps its lock."""
        self._changed = threading.Condition()
        self._listeners = []
        if self.loss is None and not self.is_released:
            self.loss = Loss(LossKind.FORKED, "this process is a fork of the one that holds it")
        self.is_closed = True

    def grace_ends_at(self, now: int) -> int:
        """When the grace ends that follows from the lease: with the lease after a silence, for then
        the server may give the lock to the next; else after the same fifth of a lease.
        """
        with self._changed:
            if self.loss is not None and self.loss.kind is LossKind.EXPIRED:
                return self._lost_lease_ends_at
            return now + self.lease_ms * 200_000

    def token(self, index: int) -> Optional[int]:
        """The token of this lock, or None if it isn't held by the clock of now: then
        :attr:`loss_now` says why.
        """
        return None if self.loss_now is not None else self._grants[index].token

    @property
    def loss_now(self) -> Optional[Loss]:
        """Why the locks are not held, by the clock of now, if they are not."""
        with self._changed:
            was_lost = self.loss is not None
            self._look(_clock.now())
            loss = self.loss
        if loss is not None and not was_lost:
            # The driver and whoever waits for a loss have yet to be told.
            with self._change():
                pass
        return loss or (_RELEASED if self.is_released else None)

    def lease_left(self, index: int) -> int:
        """The nanoseconds that are left before the server may give this lock to the next."""
        with self._changed:
            return max(0, self._grants[index].lease_ends_at - _clock.now())

    def is_over(self, index: int) -> bool:
        """Whether the connection of this lock is to be closed."""
        with self._changed:
            return self.is_released or self._grants[index].is_lost

    @property
    def must_stop(self) -> bool:
        """Whether the work may be ended by force after a grace."""
        return self.loss is not None or self._has_held_long_enough

    def stop_reason(self) -> Optional[StopReason]:
        """Why the work should stop, by the clock of now, if it should."""
        # It may know of a loss that nobody has noticed.
        loss = self.loss_now
        if loss is not None:
            return StopReason(StopKind.LOST, loss)
        if self._has_held_long_enough:
            return StopReason(StopKind.HELD_LONG_ENOUGH)
        return StopReason(StopKind.CANCELLED) if self._is_cancelled else None

    def wait_for(self, probe: Callable[[], Optional[T]], seconds: Optional[float]) -> Optional[T]:
        """Waits on a thread until the probe finds something, at most for so long."""
        until = _clock.after(_clock.now(), seconds)
        while True:
            with self._changed:
                seen = self._version
            found = probe()
            left = (until - _clock.now()) / _clock.NANOS_PER_SECOND
            if found is not None or left <= 0:
                return found
            with self._changed:
                # A condition can't wait for ever so long.
                timeout = None if until == _clock.NEVER else min(left, threading.TIMEOUT_MAX)
                self._changed.wait_for(lambda: self._version != seen, timeout)

    async def until(self, probe: Callable[[], Optional[T]]) -> T:
        """Waits in a coroutine until the probe finds something."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:
                # The event loop is closed, so nobody waits here any more.
                pass

        with self.listening(wake):
            while True:
                changed.clear()
                found = probe()
                if found is not None:
                    return found
                await changed.wait()

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Has this called after each change, on the thread that made it."""
        self.listen(listener)
        try:
            yield
        finally:
            with self._changed:
                # After a fork there is none.
                if listener in self._listeners:
                    self._listeners.remove(listener)

    def listen(self, listener: Callable[[], None]) -> None:
        """The same for ever."""
        with self._changed:
            self._listeners.append(listener)

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._changed:
            yield
            self._version += 1
            listeners = list(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            listener()

    def _look(self, now: int) -> None:
        """Finds a loss that only the clock knows of."""
        if self.loss is None and not self.is_released:
            for index, grant in enumerate(self._grants):
                if now >= grant.give_up_at:
                    self._lose(index, Loss(LossKind.EXPIRED, "nothing was confirmed in time"))
                    return

    def _lose(self, index: int, loss: Loss) -> None:
        grant = self._grants[index]
        grant.is_lost = True
        if self.loss is None and not self.is_released:
            self.loss = loss
            self._lost_lease_ends_at = grant.lease_ends_at
