"""Making a connection, without ever making the driver wait: for a name server neither."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from errno import EINPROGRESS
from typing import Any, Callable, List, Optional, Tuple

from . import _clock
from ._driver import Driver

#: The longest that a dial may take; the kernel alone would try for two minutes.
DIAL_SECONDS_MAX = 5.0

_Addresses = List[Tuple[Any, ...]]


class Dial:
    """One attempt to connect to a host, at all of its addresses in turn."""

    def __init__(
        self,
        driver: Driver,
        address: Tuple[str, int],
        connected: Callable[[socket.socket], None],
        failed: Callable[[str], None],
    ) -> None:
        self._driver = driver
        self._address = address
        self._connected = connected
        self._failed = failed
        self._left: _Addresses = []
        self._sock: Optional[socket.socket] = None
        self._is_over = False
        self._alarm = driver.alarm(self._took_too_long)

    def begin(self) -> None:
        """On the driver's thread, as all that follows."""
        self._alarm.at(_clock.after(_clock.now(), DIAL_SECONDS_MAX))
        host, port = self._address
        try:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except (OSError, UnicodeError):
            # A name. The system's resolver has no call that doesn't wait.
            resolving = threading.Thread(
                target=self._resolve, name="monolock-resolver", daemon=True
            )
            try:
                resolving.start()
            except RuntimeError as error:
                self._fail(str(error))
            return
        self._resolved(found)

    def give_up(self) -> None:
        """Nobody wants it any more."""
        self._is_over = True
        self._alarm.at(_clock.NEVER)
        if self._sock is not None:
            self._driver.close(self._sock)
            self._sock = None

    def forked(self) -> None:
        """In the child of a fork: see :class:`Party`."""
        if self._sock is not None:
            self._sock.close()

    def _resolve(self) -> None:
        """On a thread of its own."""
        host, port = self._address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = str(error)
            self._driver.call(lambda: self._fail(reason))
        else:
            self._driver.call(lambda: self._resolved(found))

    def _resolved(self, found: _Addresses) -> None:
        if not self._is_over:
            self._left = found
            self._try_next("the name has no address")

    def _try_next(self, reason: str) -> None:
        while self._left:
            family, kind, protocol, _, address = self._left.pop(0)
            try:
                # Close-on-exec and not inherited, as all sockets of Python's.
                sock = self._sock = socket.socket(family, kind, protocol)
                sock.setblocking(False)
                # A heartbeat is one byte, and must not wait for more.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                errno = sock.connect_ex(address)
            except OSError as error:
                reason = str(error)
            else:
                if errno == 0:
                    return self._succeed()
                if errno == EINPROGRESS:
                    return self._driver.watch(sock, selectors.EVENT_WRITE, self._ready)
                reason = os.strerror(errno)
            self._drop_socket()
        self._fail(reason)

    def _ready(self, _: int) -> None:
        if self._is_over or self._sock is None:
            return
        errno = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if errno:
            self._drop_socket()
            self._try_next(os.strerror(errno))
        else:
            self._succeed()

    def _succeed(self) -> None:
        assert self._sock is not None
        sock, self._sock = self._sock, None
        self._is_over = True
        self._alarm.at(_clock.NEVER)
        self._connected(sock)

    def _took_too_long(self) -> None:
        self._fail(f"no answer within {DIAL_SECONDS_MAX:g} s")

    def _fail(self, reason: str) -> None:
        if not self._is_over:
            self.give_up()
            self._failed(reason)

    def _drop_socket(self) -> None:
        if self._sock is not None:
            self._driver.close(self._sock)
            self._sock = None
