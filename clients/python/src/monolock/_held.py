"""What work that runs under a lock has in its hands."""

from __future__ import annotations

from typing import Awaitable, Callable, Dict, Iterator, Optional, TypeVar

from ._clock import NANOS_PER_SECOND
from ._failure import LockLost, Loss, LossKind, StaleToken, StopReason
from ._tenure import Tenure

T = TypeVar("T")


def changed_rows(count: int) -> int:
    """What a number of changed rows says about a statement that has the token in its condition.

    Gives it back, and raises :class:`StaleToken` if it is zero: a newer token has been there.
    """
    if count < 0:
        raise ValueError(f"the database driver does not know how many rows were changed: {count}")
    if count == 0:
        raise StaleToken
    return count


class Held:
    """A lock that is held, in the hands of the work that runs under it.

    It doesn't keep the lock: when the work has ended, the lock is released, and a handle that
    outlives it gets :attr:`LossKind.RELEASED`.
    """

    def __init__(self, tenure: Tenure, index: int) -> None:
        self._tenure = tenure
        self._index = index

    def token(self) -> int:
        """The fencing token of this grant, if the lock is still held by a look at the clock.

        To be asked for right before each use, and given to the guarded resource with each write.
        Raises :class:`LockLost` with the reason if the lock is not held any more.
        """
        token = self._tenure.token(self._index)
        if token is None:
            loss = self._tenure.loss_now
            assert loss is not None, "what is lost stays lost"
            raise LockLost(self._tenure.names, loss)
        return token

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._tenure.names[self._index]

    @property
    def lease(self) -> float:
        """The lease in seconds, as the server was told."""
        return self._tenure.lease_ms / 1000

    def lease_left(self) -> float:
        """The seconds that are left before the server may give the lock to the next if it hears
        nothing more; zero if it may have done so.

        The lock counts as lost when a fifth of the lease is left: that is the time to stop in.
        """
        return self._tenure.lease_left(self._index) / NANOS_PER_SECOND

    def stop_reason(self) -> Optional[StopReason]:
        """Why the work should stop, if it should. For loops, between two steps."""
        return self._tenure.stop_reason()

    async def stopping(self) -> StopReason:
        """Waits in a coroutine until the work should stop."""
        return await self._tenure.until(self._tenure.stop_reason)

    def wait_for_stop(self, seconds: Optional[float] = None) -> Optional[StopReason]:
        """Waits on a thread until the work should stop, at most for so many seconds."""
        return self._tenure.wait_for(self._tenure.stop_reason, seconds)

    def write(self, write: Callable[[int], T]) -> T:
        """Writes to the guarded resource with the token of now.

        ``write`` gets the token, and raises :class:`StaleToken` if the resource has refused it
        (:func:`changed_rows` does that for SQL). Such a resource has proof that the lock is
        somebody else's: the lock then counts as lost (:attr:`LossKind.FENCED`), for this work and
        everything else that shares the hold.

        Raises :class:`LockLost` if the lock is not held, before the write (which then isn't made)
        or by the resource's answer; and whatever else the write raises.
        """
        token = self.token()
        try:
            return write(token)
        except StaleToken as stale:
            raise self._fenced() from stale

    async def write_async(self, write: Callable[[int], Awaitable[T]]) -> T:
        """:meth:`write` for a coroutine function."""
        token = self.token()
        try:
            return await write(token)
        except StaleToken as stale:
            raise self._fenced() from stale

    def _fenced(self) -> LockLost:
        loss = Loss(LossKind.FENCED, "the guarded resource has seen a newer token")
        self._tenure.lose(self._index, loss)
        return LockLost(self._tenure.names, loss)


class HeldTogether:
    """Several locks that are held together. The loss of one is the loss of all.

    ``held["name"]`` is one of them: each has a token of its own, for the resource that it guards.
    Iterating gives all, in the order of their names.
    """

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._locks: Dict[str, Held] = {
            name: Held(tenure, index) for index, name in enumerate(tenure.names)
        }

    def __getitem__(self, name: str) -> Held:
        return self._locks[name]

    def __iter__(self) -> Iterator[Held]:
        return iter(self._locks.values())

    def __len__(self) -> int:
        return len(self._locks)

    def stop_reason(self) -> Optional[StopReason]:
        """Why the work should stop, if it should."""
        return self._tenure.stop_reason()

    async def stopping(self) -> StopReason:
        """Waits in a coroutine until the work should stop."""
        return await self._tenure.until(self._tenure.stop_reason)

    def wait_for_stop(self, seconds: Optional[float] = None) -> Optional[StopReason]:
        """Waits on a thread until the work should stop, at most for so many seconds."""
        return self._tenure.wait_for(self._tenure.stop_reason, seconds)
