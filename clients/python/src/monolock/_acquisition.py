"""Getting the locks of one call and keeping them, on the driver's thread: one after the other in
the order of their names, all or none, again and again if that is wished.
"""

from __future__ import annotations

import queue
import socket
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple, Union

from . import _clock
from ._backoff import Backoff
from ._claim import News
from ._dial import Dial
from ._driver import Driver
from ._failure import (
    AcquireError,
    ClaimLost,
    ClientFailure,
    Loss,
    LossKind,
    Refused,
    Taken,
    TimedOut,
    Unreachable,
)
from ._session import Session
from ._tenure import Tenure


@dataclass(frozen=True)
class Queued:
    """Somebody else holds this lock: the claim is in its queue."""

    name: str


@dataclass(frozen=True)
class Retrying:
    """An attempt has failed, and there will be another one so many seconds later."""

    failure: AcquireError
    after: float


#: How getting a lock goes on, for whoever wants to watch it.
Progress = Union[Queued, Retrying]


@dataclass(frozen=True)
class Request:
    """What one call wants."""

    address: Tuple[str, int]
    names: List[str]
    #: Frees the names for other claims of the same client.
    unreserve: Callable[[], None]
    lease_ms: int
    is_waiting: bool
    retries: bool
    #: Nothing is dialled before.
    begin_at: int
    #: Nothing is waited for after.
    give_up_at: int
    hold_max: Optional[float]
    grace: Optional[float]
    progress: Optional[queue.SimpleQueue[Progress]]


class Acquisition:
    """One request, from its first dial until the last of its connections is closed."""

    def __init__(self, request: Request) -> None:
        self._request = request
        #: The locks, when all are held. Cancelled, it gives up all claims.
        self.outcome: Future[Tenure] = Future()
        self._backoff = Backoff()
        self._last_failure: Optional[AcquireError] = None
        self._tenure = Tenure(request.names, request.lease_ms)
        self._dial: Optional[Dial] = None
        self._asking: Optional[Session] = None
        self._granted: List[Session] = []
        self._is_whole = False
        self._is_in_grace = False
        self._is_over = False
        try:
            self._driver = Driver.join(self)
        except (OSError, RuntimeError) as error:
            request.unreserve()
            raise ClientFailure(f"the client can't run: {error}") from error
        self._limit = self._driver.alarm(self._limit_reached)
        self._again = self._driver.alarm(self._attempt)
        self._grace = self._driver.alarm(self._grace_is_over)
        self.outcome.add_done_callback(self._outcome_known)
        self._driver.call(self._begin)

    def wait(self) -> Tenure:
        """Waits on a thread for the outcome."""
        try:
            return self.outcome.result()
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Nobody waits any more. What was acquired meanwhile is released."""
        self.outcome.cancel()
        self.outcome.add_done_callback(_release)

    def _outcome_known(self, outcome: Future[Tenure]) -> None:
        if outcome.cancelled():
            self._driver.call(self._let_go)

    # All that follows happens on the driver's thread.

    def _begin(self) -> None:
        self._limit.at(self._request.give_up_at)
        self._again.at(self._request.begin_at)

    def _attempt(self) -> None:
        self._tenure = Tenure(self._request.names, self._request.lease_ms)
        self._claim_next()

    def _claim_next(self) -> None:
        if len(self._granted) == len(self._request.names):
            self._hold()
            return
        address = self._request.address
        self._dial = Dial(self._driver, address, self._connected, self._not_connected)
        self._dial.begin()

    def _connected(self, sock: socket.socket) -> None:
        self._dial = None
        name = self._request.names[len(self._granted)]
        self._asking = Session(self._driver, sock, name, self._request.lease_ms, self._told)

    def _not_connected(self, reason: str) -> None:
        self._dial = None
        host, port = self._request.address
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._failed(Unreachable(address, reason))

    def _told(self, session: Session, news: Union[News, Loss]) -> None:
        if session is self._asking:
            self._answered(session, news)
            return
        index = self._granted.index(session)
        if isinstance(news, Loss):
            session.close()
            if self._is_whole:
                self._tenure.lose(index, news)
            else:
                self._failed(ClaimLost(", ".join(self._request.names), news))
        else:
            self._tenure.confirm(index, session.claim)

    def _answered(self, session: Session, news: Union[News, Loss]) -> None:
        if isinstance(news, Loss):
            if news.error is not None and news.error.is_client_error:
                self._failed(Refused(session.name, news.error))
            else:
                self._failed(ClaimLost(session.name, news))
            return
        self._backoff.answered()
        if news is News.GRANTED:
            token = session.claim.token
            assert token is not None
            self._asking = None
            self._tenure.grant(token, session.claim)
            self._granted.append(session)
            self._claim_next()
        elif news is News.QUEUED and not self._request.is_waiting:
            # With the connection the place in the queue is given up.
            self._failed(Taken(session.name))
        elif news is News.QUEUED:
            self._report(Queued(session.name))

    def _failed(self, failure: AcquireError) -> None:
        """The attempt has: it lets go of what it has got so far."""
        self._close_connections()
        wait = self._wait_after(failure) if self._request.retries else None
        if wait is None:
            self._refuse(failure)
            return
        self._report(Retrying(failure, wait))
        self._last_failure = failure
        self._again.at(_clock.after(_clock.now(), wait))

    def _wait_after(self, failure: AcquireError) -> Optional[float]:
        """How long to stay away after this failure; None if it would only come again."""
        if isinstance(failure, Unreachable):
            return self._backoff.wait()
        if isinstance(failure, ClaimLost):
            return self._backoff.after_loss(failure.loss)
        return None

    def _limit_reached(self) -> None:
        self._refuse(TimedOut(self._last_failure))

    def _refuse(self, failure: AcquireError) -> None:
        # First, so that the names are free for whoever asks again on hearing of it.
        self._let_go()
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_exception(failure)

    def _hold(self) -> None:
        self._is_whole = True
        tenure = self._tenure
        self._limit.at(_clock.NEVER)
        self._limit = self._driver.alarm(tenure.hold_time_is_over)
        self._limit.at(_clock.after(_clock.now(), self._request.hold_max))
        tenure.listen(lambda: self._driver.call(self._tenure_changed))
        if self.outcome.set_running_or_notify_cancel():
            self.outcome.set_result(tenure)

    def _tenure_changed(self) -> None:
        if self._is_over:
            return
        tenure = self._tenure
        if tenure.is_released:
            self._let_go()
            return
        for index, session in enumerate(self._granted):
            if tenure.is_over(index):
                session.close()
        if tenure.must_stop and not self._is_in_grace:
            self._is_in_grace = True
            now = _clock.now()
            grace = self._request.grace
            self._grace.at(tenure.grace_ends_at(now) if grace is None else _clock.after(now, grace))

    def _grace_is_over(self) -> None:
        self._tenure.grace_is_over()

    def _let_go(self) -> None:
        """Closes everything. The rest is to tell whoever waits for that."""
        if self._is_over:
            return
        self._is_over = True
        for alarm in (self._limit, self._again, self._grace):
            alarm.at(_clock.NEVER)
        self._close_connections()
        self._request.unreserve()
        self._tenure.close()
        self._driver.leave(self)

    def _close_connections(self) -> None:
        if self._dial is not None:
            self._dial.give_up()
            self._dial = None
        for session in self._sessions():
            session.close()
        self._asking = None
        self._granted = []

    def _sessions(self) -> List[Session]:
        return self._granted + ([] if self._asking is None else [self._asking])

    def _report(self, progress: Progress) -> None:
        if self._request.progress is not None:
            self._request.progress.put(progress)

    def driver_ended(self) -> None:
        """As a party of the driver."""
        loss = Loss(LossKind.NETWORK, "the client's thread has ended")
        for index in range(len(self._granted)):
            self._tenure.lose(index, loss)
        self._refuse(ClientFailure(f"the client can't run: {loss.detail}"))

    def forked(self) -> None:
        """As a party of the driver, in the child of a fork."""
        self._is_over = True
        if self._dial is not None:
            self._dial.forked()
        for session in self._sessions():
            session.forked()
        self._tenure.forked()


def _release(outcome: Future[Tenure]) -> None:
    if not outcome.cancelled() and outcome.exception() is None:
        outcome.result().release()


def wait_after_tenure(loss: Loss) -> Optional[float]:
    """How long to stay away after a lock was held and lost; None if that would only come again.

    Whoever has fenced it off holds it now, and a while longer.
    """
    return Backoff().after_loss(loss)
