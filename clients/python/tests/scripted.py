"""Servers that a test plays itself, byte by byte."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, List

from .server import PATIENCE

WAITING = b"\x11"


def acquired(token: int) -> bytes:
    return b"\x12" + token.to_bytes(8, "big")


def error(code: int, reason: bytes) -> bytes:
    return bytes([0x13, code, len(reason)]) + reason


class Peer:
    """A client, as a server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock

    def read_acquire(self) -> str:
        """Reads the ACQUIRE and gives its name."""
        header = self._read(8)
        assert header[:2] == b"\x01\x01", header
        return self._read(int.from_bytes(header[6:8], "big")).decode()

    def read_heartbeat(self) -> bool:
        """Waits for a heartbeat; False when the client has closed."""
        try:
            byte = self.sock.recv(1)
        except ConnectionResetError:
            return False
        assert byte in (b"", b"\x02"), byte
        return byte == b"\x02"

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except ConnectionError:
            pass  # A client that has left already will be seen to have.

    def answer_all(self, answer: bytes) -> None:
        """Answers heartbeats until the client closes; none, with no answer."""
        while self.read_heartbeat():
            self.send(answer)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.sock.recv(count - len(data))
            assert piece, "the client has closed"
            data += piece
        return data


class Scripted:
    """Listens on a free port, and plays the script with each connection, on a thread of its own.

    A ``with`` statement; at its end a script that failed fails the test.
    """

    def __init__(self, script: Callable[[Peer], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._failures: List[BaseException] = []
        #: When each connection came.
        self.dials: List[float] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        # A shutdown, as an accept that waits isn't woken by a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for failure in self._failures:
            raise failure

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # The test is over.
            self.dials.append(time.monotonic())
            threading.Thread(target=self._play, args=(sock,), daemon=True).start()

    def _play(self, sock: socket.socket) -> None:
        with sock:
            try:
                self._script(Peer(sock))
            except BaseException as failure:
                self._failures.append(failure)
