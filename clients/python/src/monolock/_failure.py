"""Why a lock was not acquired, why it was lost, and what that means for the work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Optional, Sequence

from ._wire import CLIENT_ERROR_MIN, CLOSED_BY_ADMINISTRATOR


@dataclass(frozen=True)
class ServerError:
    """An ERROR of the server. Programs go by the code; the reason is for people: any text."""

    code: int
    reason: str

    @property
    def is_client_error(self) -> bool:
        """Whether it would only come again (0x10 and above)."""
        return self.code >= CLIENT_ERROR_MIN

    @classmethod
    def of_wire(cls, code: int, reason: bytes) -> ServerError:
        """As it was sent: the reason is meant to be UTF-8."""
        return cls(code, reason.decode("utf-8", "replace"))

    def __str__(self) -> str:
        # Nothing of it may write on a terminal.
        return f"ERROR 0x{self.code:02x} {ascii(self.reason)}"


class LossKind(Enum):
    """What kind of thing ended a claim."""

    #: Nothing was confirmed for 0.8 of the lease: the network was silent, or this process didn't
    #: run. The server may be about to give the lock to the next.
    EXPIRED = "expired"
    #: A condition at the server, such as its shutdown.
    SERVER = "server"
    #: An administrator released the lock by force, or removed the waiter.
    ADMINISTRATOR = "administrator"
    #: The connection was closed or broke.
    NETWORK = "network"
    #: The server said what no version 1 server says at this point, or accuses this client of the
    #: same.
    PROTOCOL = "protocol"
    #: The guarded resource has seen a newer token, so somebody else holds the lock by now.
    FENCED = "fenced"
    #: The lock was released: the handle has outlived the work that it was made for.
    RELEASED = "released"
    #: This process is a fork of the one that holds the lock, and holds nothing itself.
    FORKED = "forked"


@dataclass(frozen=True)
class Loss:
    """Why a claim ended that had been made."""

    kind: LossKind
    #: The same for people.
    detail: str
    #: What the server said, if it did.
    error: Optional[ServerError] = None

    @classmethod
    def of_error(cls, error: ServerError) -> Loss:
        """What an ERROR of the server means for a claim."""
        if error.is_client_error:
            kind = LossKind.PROTOCOL
        elif error.code == CLOSED_BY_ADMINISTRATOR:
            kind = LossKind.ADMINISTRATOR
        else:
            kind = LossKind.SERVER
        return cls(kind, str(error), error)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"


class StopKind(Enum):
    """What kind of thing asks the work to stop."""

    #: The lock is lost: nothing that it guards may be touched any more.
    LOST = "lost"
    #: The lock was held for as long as was permitted. It is still held.
    HELD_LONG_ENOUGH = "held long enough"
    #: Whoever waited for the result was cancelled. The lock is still held, until the work has
    #: ended.
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class StopReason:
    """Why work that runs under a lock should stop."""

    kind: StopKind
    #: With :attr:`StopKind.LOST`, why.
    loss: Optional[Loss] = None


class MonolockError(Exception):
    """The base of all exceptions of this package."""


class AcquireError(MonolockError):
    """The lock was not acquired, and the work was not begun."""


class InvalidInput(AcquireError, ValueError):
    """What was asked for can't be. Nothing was dialled."""


class AlreadyClaimed(AcquireError):
    """This client has a claim on that name already, and would wait for itself."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this client has a claim on {name!r} already, and would wait for itself")
        #: The lock.
        self.name = name


class Taken(AcquireError):
    """Somebody else holds the lock, and waiting was not wished (``wait=False``)."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lock {name!r} is held by somebody else")
        #: The lock.
        self.name = name


class TimedOut(AcquireError):
    """The lock was not acquired within ``wait_at_most``."""

    def __init__(self, last_failure: Optional[AcquireError]) -> None:
        behind = f"; the last attempt: {last_failure}" if last_failure else ""
        super().__init__(f"the lock was not acquired in time{behind}")
        #: What the last attempt failed with, if attempts failed: then it was not only the queue.
        self.last_failure = last_failure


class Unreachable(AcquireError):
    """No connection could be made."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no connection to {address}: {reason}")
        #: The server.
        self.address = address


class ClaimLost(AcquireError):
    """The claim ended while it waited. Its place in the queue is lost."""

    def __init__(self, name: str, loss: Loss) -> None:
        super().__init__(f"the claim on {name!r} ended before the lock was granted: {loss}")
        #: The lock.
        self.name = name
        #: Why.
        self.loss = loss


class Refused(AcquireError):
    """The server refused the claim (an ERROR of 0x10 or above), and would again."""

    def __init__(self, name: str, error: ServerError) -> None:
        super().__init__(f"the server refused the claim on {name!r}: {error}")
        #: The lock.
        self.name = name
        #: What it said.
        self.error = error


class ClientFailure(AcquireError):
    """This process lacks a descriptor or a thread."""


class LockLost(MonolockError):
    """The lock is not held any more.

    Raised by :meth:`Lock.run` and its like if the lock was lost before the work had ended, so that
    part of it may have been done while somebody else held the lock: also when the work itself has
    succeeded. If the work raised another exception, that is the ``__cause__``.
    """

    def __init__(self, names: Sequence[str], loss: Loss, output: Any = None) -> None:
        super().__init__(f"the lock on {', '.join(map(repr, names))} is lost: {loss}")
        #: The lock; several, if they were held together.
        self.names = tuple(names)
        #: Why.
        self.loss = loss
        #: What the work returned, if it did.
        self.output = output


class HeldTooLong(MonolockError):
    """The lock was held for as long as was permitted (``hold_at_most``). The work was told to stop,
    and the lock was released when it had.
    """

    def __init__(self, output: Any = None) -> None:
        super().__init__("the work did not end within the time for which it may hold the lock")
        #: What the work returned, if it did.
        self.output = output


class StaleToken(MonolockError):
    """Raised by a guarded write when the resource has refused it, as it has seen a newer token."""

    def __init__(self) -> None:
        super().__init__("the guarded resource has seen a newer token")
