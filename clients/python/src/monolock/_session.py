"""One connection, which is one claim on one lock. What is due and what an answer means is decided
by the claim; here bytes are moved, on the driver's thread.
"""

from __future__ import annotations

import selectors
import socket
from typing import Callable, Optional, Union

from . import _clock
from ._claim import Claim, News
from ._driver import Driver
from ._failure import Loss, LossKind
from ._wire import HEARTBEAT, encode_acquire

#: Reads in one turn, so that a server that doesn't stop talking can't keep the others waiting.
_READS_MAX = 16


class Session:
    """A connection with a claim on it. Closing it is the release."""

    def __init__(
        self,
        driver: Driver,
        sock: socket.socket,
        name: str,
        lease_ms: int,
        told: Callable[[Session, Union[News, Loss]], None],
    ) -> None:
        self.name = name
        self._driver = driver
        self._sock = sock
        self._told = told
        self._is_closed = False
        self._unsent = encode_acquire(lease_ms, name.encode())
        self.claim = Claim(lease_ms, _clock.now())
        self._alarm = driver.alarm(self._turn)
        self._send()
        self._wait()

    def close(self) -> None:
        """Ends the claim."""
        if not self._is_closed:
            self._is_closed = True
            self._alarm.at(_clock.NEVER)
            self._driver.close(self._sock)

    def forked(self) -> None:
        """In the child of a fork: see :class:`Party`."""
        self._is_closed = True
        self._sock.close()

    def _ready(self, _: int) -> None:
        self._turn()

    def _turn(self) -> None:
        """Something has happened: does what it asks for, and tells of it.

        What has come is taken in before a deadline counts as passed, and the deadline is looked at
        before anybody is told of what came: a process that didn't run for a while may find a grant
        that is no longer its own.
        """
        if self._is_closed:
            return
        news = self._receive()
        if not isinstance(news, Loss):
            if self.claim.take_due_heartbeat(_clock.now()):
                self._unsent += HEARTBEAT
            self._send()
            if self.claim.loss is not None:
                news = self.claim.loss
            else:
                self._wait()
        if news is not None:
            self._told(self, news)

    def _receive(self) -> Union[News, Loss, None]:
        """Takes in what is there. The last change counts, if there are several."""
        result: Optional[News] = None
        for _ in range(_READS_MAX):
            try:
                data = self._sock.recv(4096)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                return self.claim.end(Loss(LossKind.NETWORK, f"it broke: {error}"))
            if not data:
                return self.claim.end(Loss(LossKind.NETWORK, "the server closed it"))
            news = self.claim.receive(data, _clock.now())
            if isinstance(news, Loss):
                return news
            if news is not None and (result is None or news is not News.STANDING):
                result = news
        return result

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # An ERROR may have come before the connection broke, and is worth more than the news
            # that it is broken, which comes with the next read as well.
            self._unsent = b""

    def _wait(self) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._driver.watch(self._sock, events, self._ready)
        self._alarm.at(self.claim.deadline)
