"""The client's half of a claim: when to send a heartbeat, when to give up, and what the server's
frames mean. It has no socket and no clock.

Safety rests on one rule: a claim is given up before the server could end it. So what counts is when
a confirmed message was *sent*, for the server can't have read it, and restarted the lease, any
earlier.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Optional, Union

from ._clock import NEVER
from ._failure import Loss, LossKind, ServerError
from ._wire import Acquired, Ended, Frame, UnknownFrame, Waiting, decode

#: The shortest time between two heartbeats, unless a quarter of the lease is shorter.
_INTERVAL_MIN_NANOS = 100_000_000

#: Messages whose answers may be outstanding: the one in flight, and one that a promotion overtook.
_ANSWERS_DUE_MAX = 2


class News(Enum):
    """What a frame meant."""

    QUEUED = auto()
    GRANTED = auto()
    #: Nothing has changed, which is good news: the claim stands.
    STANDING = auto()


class Claim:
    """One claim, made at the moment when its ACQUIRE is sent."""

    def __init__(self, lease_ms: int, now: int) -> None:
        self.lease_ms = lease_ms
        #: The token, once the lock is held.
        self.token: Optional[int] = None
        #: Why the claim is over, if it is.
        self.loss: Optional[Loss] = None
        self._is_asking = True
        #: When the newest confirmed message was sent; before the first answer, when ACQUIRE was.
        self._confirmed_at = now
        self._sent_at = now
        #: When the oldest message without an answer of its own was sent, if there is one.
        self._unanswered_at = now
        self._answers_due = 1
        #: A message was sent, and nothing has come since.
        self._is_in_flight = True
        #: The smoothed round trip; zero before the first.
        self._rtt_nanos = 0
        self._unread = bytearray()

    def receive(self, data: bytes, now: int) -> Union[News, Loss, None]:
        """Takes in all frames that these bytes complete: the last change, or else any news."""
        self._unread += data
        result: Optional[News] = None
        while self.loss is None:
            try:
                decoded = decode(self._unread)
            except UnknownFrame as unknown:
                return self.end(Loss(LossKind.PROTOCOL, str(unknown)))
            if decoded is None:
                break
            frame, length = decoded
            del self._unread[:length]
            news = self._digest(frame, now)
            if isinstance(news, Loss):
                return news
            if result is None or news is not News.STANDING:
                result = news
        return result

    def end(self, loss: Loss) -> Loss:
        """The claim is over, if it wasn't before; gives what it was that ended it."""
        if self.loss is None:
            self.loss = loss
        return self.loss

    def take_due_heartbeat(self, now: int) -> bool:
        """Whether a heartbeat is to be sent now; it then counts as sent. Past the time to give the
        claim up it is lost instead.
        """
        if self.loss is None and now >= self.give_up_at:
            self.end(Loss(LossKind.EXPIRED, "nothing was confirmed in time"))
        if self.loss is not None or now < self.heartbeat_at:
            return False
        if self._answers_due == 0:
            self._unanswered_at = now
        self._answers_due += 1
        self._is_in_flight = True
        self._sent_at = now
        return True

    @property
    def deadline(self) -> int:
        """When :meth:`take_due_heartbeat` must be called next."""
        return NEVER if self.loss is not None else min(self.heartbeat_at, self.give_up_at)

    @property
    def heartbeat_at(self) -> int:
        """When the next heartbeat is due: never while one is in flight."""
        if self._is_in_flight or self._answers_due >= _ANSWERS_DUE_MAX:
            return NEVER
        return self._sent_at + self.interval

    @property
    def give_up_at(self) -> int:
        """When the claim is given up, unless something is confirmed before."""
        return self._confirmed_at + self.lease_ms * 800_000

    @property
    def lease_ends_at(self) -> int:
        """Before this moment no server may end the claim for its silence."""
        return self._confirmed_at + self.lease_ms * 1_000_000

    @property
    def interval(self) -> int:
        """The time between the sends of two heartbeats, in nanoseconds.

        A quarter of the lease, shortened so that the answer too is there after a quarter: by twice
        the usual round trip. When not even that helps, it is zero: as soon as the answer is in.
        """
        base = self.lease_ms * 250_000
        safe_rtt = 2 * self._rtt_nanos
        if safe_rtt >= base:
            return 0
        return max(base - safe_rtt, min(_INTERVAL_MIN_NANOS, base))

    def _digest(self, frame: Frame, now: int) -> Union[News, Loss]:
        if isinstance(frame, Ended):
            return self.end(Loss.of_error(ServerError.of_wire(frame.code, frame.reason)))
        if self.token is not None:
            if frame != Acquired(self.token):
                contradiction = "it contradicts what it said before"
                return self.end(Loss(LossKind.PROTOCOL, contradiction))
            self._confirm(now)
            return News.STANDING
        was_asking, self._is_asking = self._is_asking, False
        if isinstance(frame, Waiting):
            self._confirm(now)
            return News.QUEUED if was_asking else News.STANDING
        self.token = frame.token
        if was_asking:
            self._confirm(now)
        else:
            # The promotion. It shows that the server is there, so the next heartbeat needn't wait
            # for an answer; but it may have crossed with one that the server hasn't read, so it
            # confirms none. That one's own answer is still to come.
            self._is_in_flight = False
        return News.GRANTED

    def _confirm(self, now: int) -> None:
        """An answer: it confirms the oldest message that has none."""
        self._is_in_flight = False
        if self._answers_due == 0:
            # A second answer to the ACQUIRE, of a claim that was promoted while the first was made.
            return
        self._confirmed_at = self._unanswered_at
        self._answers_due -= 1
        if self._answers_due == 0:
            self._take_rtt(now - self._unanswered_at)
        else:
            # One was overtaken by the promotion, and then another was sent. Whose answer this is
            # can't be told apart from a server that made one frame of promotion and answer, so it
            # is the older one's, and no round trip.
            self._unanswered_at = self._sent_at

    def _take_rtt(self, sample: int) -> None:
        """EWMA with alpha 0.2."""
        sample = max(sample, 1)
        old = self._rtt_nanos
        self._rtt_nanos = sample if old == 0 else (old * 4 + sample) // 5
