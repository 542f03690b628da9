"""Protocol version 1 as bytes: what is sent, and what is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

HEARTBEAT = b"\x02"
NAME_LENGTH_MAX = 255
LEASE_MS_MAX = 2**32 - 1

#: The server is shutting down.
SHUTTING_DOWN = 0x01
#: An administrator has released the lock by force, or removed the waiter.
CLOSED_BY_ADMINISTRATOR = 0x02
#: Codes from here on accuse the client, and would come again. Those below are conditions of the
#: server, which may pass. That holds for codes that nobody knows yet, too.
CLIENT_ERROR_MIN = 0x10

_ACQUIRE = b"\x01\x01"
_WAITING = 0x11
_ACQUIRED = 0x12
_ERROR = 0x13


def encode_acquire(lease_ms: int, name: bytes) -> bytes:
    """The first and only ACQUIRE of a connection."""
    return _ACQUIRE + lease_ms.to_bytes(4, "big") + len(name).to_bytes(2, "big") + name


@dataclass(frozen=True)
class Waiting:
    """The claim stands in the queue."""


@dataclass(frozen=True)
class Acquired:
    """The claim holds the lock."""

    token: int


@dataclass(frozen=True)
class Ended:
    """The claim is over: an ERROR."""

    code: int
    reason: bytes


Frame = Union[Waiting, Acquired, Ended]


class UnknownFrame(Exception):
    """A byte that begins no message of a version 1 server, or a token of zero."""

    def __init__(self, byte: int) -> None:
        super().__init__(f"not an answer of a version 1 server: message 0x{byte:02x}")


def decode(data: Union[bytes, bytearray]) -> Optional[Tuple[Frame, int]]:
    """The frame at the front and its length, or None if more bytes are needed."""
    if not data:
        return None
    kind = data[0]
    if kind == _WAITING:
        return Waiting(), 1
    if kind == _ACQUIRED:
        if len(data) < 9:
            return None
        token = int.from_bytes(data[1:9], "big")
        if token == 0:
            raise UnknownFrame(_ACQUIRED)
        return Acquired(token), 9
    if kind == _ERROR:
        if len(data) < 3 or len(data) < 3 + data[2]:
            return None
        end = 3 + data[2]
        return Ended(data[1], bytes(data[3:end])), end
    raise UnknownFrame(kind)
