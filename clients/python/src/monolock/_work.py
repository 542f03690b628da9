"""Running work under locks that are held, and judging how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Generic, Literal, Optional, Set, TypeVar, cast

from ._failure import HeldTooLong, LockLost, Loss
from ._tenure import Ending, Tenure

T = TypeVar("T")


@dataclass
class Ended(Generic[T]):
    """How work ended, and what the locks say to that."""

    tenure: Tenure
    ending: Ending
    #: What it returned; None too if it raised an exception, or was ended by force.
    output: Optional[T] = None
    #: What it raised.
    error: Optional[BaseException] = None
    #: It was ended by force.
    is_dropped: bool = False

    @property
    def loss(self) -> Optional[Loss]:
        """Why the locks were lost while it ran, if they were."""
        return self.tenure.loss

    @property
    def has_failed(self) -> bool:
        """Whether it raised an exception, other than about the loss of these very locks."""
        if self.error is None:
            return False
        is_own = isinstance(self.error, LockLost) and self.error.names == tuple(self.tenure.names)
        return self.loss is None or not is_own

    def result(self) -> T:
        """What it returned, or the exception that follows from how it ended."""
        if self.error is not None:
            # A cancellation, the end of the program and Ctrl-C must stay what they are.
            is_exception = isinstance(self.error, Exception)
            if self.loss is None or not self.has_failed or not is_exception:
                raise self.error
        if self.loss is not None:
            raise LockLost(self.tenure.names, self.loss, self.output) from self.error
        if self.ending is Ending.HELD_TOO_LONG or self.is_dropped:
            raise HeldTooLong(self.output)
        return cast(T, self.output)


def run(tenure: Tenure, work: Callable[[], T]) -> Ended[T]:
    """Runs the work on this thread, then releases; returns when the connections are closed."""
    output, error = None, None
    try:
        output = work()
    except BaseException as raised:  # Raised again by `Ended.result`.
        error = raised
    ending = tenure.release()
    tenure.wait_for(lambda: tenure.is_closed or None, None)
    return Ended(tenure, ending, output, error)


async def run_async(tenure: Tenure, work: Callable[[], Awaitable[T]]) -> Ended[T]:
    """The same for a coroutine function, which gets a task of its own.

    If the caller is cancelled, so is the work; and it is when it is overdue. Whatever happens, the
    locks are held until it has ended.
    """

    async def main() -> T:
        return await work()

    task = asyncio.ensure_future(main())
    overdue = asyncio.ensure_future(tenure.until(lambda: tenure.is_overdue or None))
    try:
        is_dropped = await _until_done(tenure, task, overdue)
    finally:
        # Also if the event loop is closed around this.
        ending = tenure.release()
        overdue.cancel()
    await tenure.until(lambda: tenure.is_closed or None)
    if not task.cancelled():
        error = task.exception()
        output = task.result() if error is None else None
        return Ended(tenure, ending, output, error)
    if is_dropped:
        return Ended(tenure, ending, is_dropped=True)
    return Ended(tenure, ending, error=asyncio.CancelledError())


async def _until_done(
    tenure: Tenure, task: asyncio.Future[T], overdue: asyncio.Future[Literal[True]]
) -> bool:
    """Whether it was ended by force."""
    is_dropped = False
    is_cancelled = False
    waiting: Set[asyncio.Future[Any]] = {task, overdue}
    while not task.done():
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            is_cancelled = True
            tenure.cancel()
            task.cancel()
        if overdue.done() and overdue in waiting:
            waiting.discard(overdue)
            is_dropped = not task.done()
            task.cancel()
    return is_dropped and not is_cancelled
