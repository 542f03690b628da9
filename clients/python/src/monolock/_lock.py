"""How a lock is to be held, and the calls that hold it."""

from __future__ import annotations

import asyncio
import queue
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Awaitable, Callable, Generic, Iterable, Iterator, List, Optional, Tuple, TypeVar

from . import _clock, _input, _work
from ._acquisition import Acquisition, Progress, Request, wait_after_tenure
from ._input import Seconds
from ._tenure import Tenure

H = TypeVar("H")
T = TypeVar("T")


@dataclass(frozen=True)
class Resign(Generic[T]):
    """What a leader returns to :meth:`Lock.elect` that doesn't want to stand again."""

    #: What the election gives to its caller.
    value: T


@dataclass(frozen=True)
class Options:
    """See :class:`Lock`."""

    lease: Seconds = 10.0
    wait: bool = True
    wait_at_most: Optional[Seconds] = None
    retry: bool = False
    hold_at_most: Optional[Seconds] = None
    stop_within: Optional[Seconds] = None
    progress: Optional[queue.SimpleQueue[Progress]] = None


class Lock(Generic[H]):
    """A lock, or several to be held together, and how: made by :meth:`Client.lock` and
    :meth:`Client.locks`.

    It is only a description, to be used any number of times and from any thread. What is wrong with
    it is said by the call that uses it (:class:`InvalidInput`), before anything is dialled. All
    times are in seconds, or a ``timedelta``.

    ``lease``
        How long the lock may sit behind a holder that has died without its connection being closed:
        1 ms to 2^32-1 ms. A healthy holder may hold for ever. It loses the lock after 0.8 of the
        lease without an answer of the server, so a short lease needs a network and a machine that
        are never slow.
    ``wait``
        If False, fails with :class:`Taken` at once if somebody else holds the lock, and leaves no
        claim behind.
    ``wait_at_most``
        Gives up with :class:`TimedOut` after this time, whatever it was spent on: dialling, the
        queue, waiting between attempts.
    ``retry``
        Tries again when a claim is lost before its grant, or no connection is made: after 100 ms to
        5 s, drawn at random and longer each time; at once after a server's shutdown, as another may
        be there. Each attempt begins at the back of the queue. The work still runs once at most.
        What would only come again, such as a refusal by the server, is not tried again.
    ``hold_at_most``
        Tells the work to stop (:attr:`StopKind.HELD_LONG_ENOUGH`) when it has held for so long,
        counted from the grant; the lock is released when it has.
    ``stop_within``
        How long a coroutine may take to end by itself after a loss, or when it has held for long
        enough; then it is cancelled. By default until the server may give the lock away (a fifth of
        the lease after the loss is noticed).
    ``progress``
        Gets a :class:`Queued` or :class:`Retrying` for each step on the way to the lock.
    """

    def __init__(
        self,
        address: Tuple[str, int],
        reserve: Callable[[List[str]], Callable[[], None]],
        names: Iterable[str],
        handle: Callable[[Tenure], H],
        options: Options,
    ) -> None:
        self._address = address
        self._reserve = reserve
        self._names = names
        self._handle = handle
        self._options = options

    def run(self, work: Callable[[H], T]) -> T:
        """Acquires, runs the work on this thread, and releases when it has ended.

        The work gets the hold (:class:`Held`, or :class:`HeldTogether` of several), whose token it
        passes to what the lock guards. Nothing can stop a thread: work that takes its time should
        look at :meth:`Held.stop_reason` between its steps. If it raises an exception, the lock is
        released and the exception goes on.

        Raises :class:`AcquireError` if the work was not begun; :class:`LockLost` if the lock was
        lost before the work had ended, though the work may have succeeded; :class:`HeldTooLong` if
        the work was told to stop.
        """
        tenure = self._acquire(0)
        return _work.run(tenure, lambda: work(self._handle(tenure))).result()

    @contextmanager
    def hold(self) -> Iterator[H]:
        """:meth:`run` for the body of a ``with`` statement, which is the work."""
        tenure = self._acquire(0)
        raised: Optional[BaseException] = None
        try:
            yield self._handle(tenure)
        except BaseException as error:  # Raised again below.
            raised = error

        def body() -> None:
            if raised is not None:
                raise raised

        _work.run(tenure, body).result()

    async def run_async(self, work: Callable[[H], Awaitable[T]]) -> T:
        """:meth:`run` for a coroutine function. The work runs as a task of its own.

        - When the lock is lost, :meth:`Held.stopping` says so, and after a grace
          (``stop_within``) the work is cancelled. Code that blocks its event loop can't be
          cancelled; the next token that it asks for is refused.
        - When the caller is cancelled, a claim in the queue is given up; work that is under way is
          cancelled too (:attr:`StopKind.CANCELLED`), and the lock is held until it has ended.
        """
        tenure = await self._acquire_async(0)
        return (await _work.run_async(tenure, lambda: work(self._handle(tenure)))).result()

    def elect(self, lead: Callable[[H], Optional[Resign[T]]]) -> T:
        """Holds the lock again and again: stands for election, leads while it can, and stands again
        after each loss, until ``lead`` resigns.

        Each term is one call of ``lead``, which should lead until its hold says to stop, and then
        returns None to stand again or :class:`Resign` to end. An exception ends it too, unless it
        is about the loss of this term. A candidate waits in the queue like everybody; failed
        attempts are repeated as with ``retry``.

        Raises :class:`AcquireError` if an election failed in a way that would only come again, or
        took longer than ``wait_at_most``; :class:`LockLost` and :class:`HeldTooLong` if ``lead``
        resigned in a term that was lost or too long, or if a loss would only come again.
        """
        begin_at = 0
        while True:
            tenure = self._acquire(begin_at, is_candidate=True)
            term = _work.run(tenure, lambda: lead(self._handle(tenure)))
            wait = _wait_for_next_term(term)
            if wait is None:
                return _resigned(term)
            begin_at = _clock.after(_clock.now(), wait)

    async def elect_async(self, lead: Callable[[H], Awaitable[Optional[Resign[T]]]]) -> T:
        """:meth:`elect` for a coroutine function."""
        begin_at = 0
        while True:
            tenure = await self._acquire_async(begin_at, is_candidate=True)
            term = await _work.run_async(tenure, lambda: lead(self._handle(tenure)))
            wait = _wait_for_next_term(term)
            if wait is None:
                return _resigned(term)
            begin_at = _clock.after(_clock.now(), wait)

    def _acquire(self, begin_at: int, is_candidate: bool = False) -> Tenure:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._begin(begin_at, is_candidate).wait()
        raise RuntimeError("this call would block the event loop: await its async form")

    async def _acquire_async(self, begin_at: int, is_candidate: bool = False) -> Tenure:
        acquisition = self._begin(begin_at, is_candidate)
        try:
            return await asyncio.wrap_future(acquisition.outcome)
        except BaseException:
            acquisition.give_up()
            raise

    def _begin(self, begin_at: int, is_candidate: bool) -> Acquisition:
        options = self._options
        names = _input.sorted_names(self._names)
        lease_ms = _input.lease_ms(options.lease)
        wait_max = _input.optional_seconds(options.wait_at_most, "wait_at_most")
        hold_max = _input.optional_seconds(options.hold_at_most, "hold_at_most")
        grace = _input.optional_seconds(options.stop_within, "stop_within")
        return Acquisition(
            Request(
                address=self._address,
                names=names,
                unreserve=self._reserve(names),
                lease_ms=lease_ms,
                is_waiting=options.wait,
                retries=options.retry or is_candidate,
                begin_at=begin_at,
                give_up_at=_clock.after(_clock.now(), wait_max),
                hold_max=hold_max,
                grace=grace,
                progress=options.progress,
            )
        )


def _wait_for_next_term(term: _work.Ended[Optional[Resign[T]]]) -> Optional[float]:
    """How long until the candidate stands again; None if this was the last term."""
    if term.has_failed or term.output is not None:
        return None
    return 0.0 if term.loss is None else wait_after_tenure(term.loss)


def _resigned(term: _work.Ended[Optional[Resign[T]]]) -> T:
    """The value of the last term."""
    value = None if term.output is None else term.output.value
    ended: _work.Ended[T] = _work.Ended(
        term.tenure, term.ending, value, term.error, term.is_dropped
    )
    return ended.result()
