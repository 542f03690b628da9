"""What a caller can get wrong, found before anything is dialled."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta
from typing import Iterable, List, Optional, Tuple, Union

from ._failure import InvalidInput
from ._wire import LEASE_MS_MAX, NAME_LENGTH_MAX

#: Seconds, or a timedelta.
Seconds = Union[float, timedelta]

_HOST = re.compile(r"[\w.-]+")
_PORT = re.compile(r"[0-9]{1,5}")


def sorted_names(names: Iterable[str]) -> List[str]:
    """Names in the order in which every client takes them, so that no two wait for each other."""
    if isinstance(names, (str, bytes)):
        raise InvalidInput(f"{names!r} is one name: several are a list, and one goes to lock()")
    encoded = [_encoded(name) for name in names]
    if not encoded:
        raise InvalidInput("no lock is named")
    encoded.sort()
    for one, following in zip(encoded, encoded[1:]):
        if one == following:
            raise InvalidInput(f"the lock {one.decode()!r} is named twice")
    return [name.decode() for name in encoded]


def _encoded(name: str) -> bytes:
    if not isinstance(name, str):
        raise InvalidInput(f"a lock name is a str, not {type(name).__name__}: {name!r}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the lock name {name!r} has no UTF-8 form: {error.reason}") from None
    if not encoded:
        raise InvalidInput(f"the lock name is empty: it needs 1 to {NAME_LENGTH_MAX} bytes")
    if len(encoded) > NAME_LENGTH_MAX:
        raise InvalidInput(
            f"the lock name has {len(encoded)} bytes: {NAME_LENGTH_MAX} are the most"
        )
    return encoded


def lease_ms(lease: Seconds) -> int:
    """A lease as it goes over the wire; a fraction of a millisecond is dropped."""
    # Rounded first, as 0.001 s and others have no exact form.
    whole = int(round(seconds(lease, "lease") * 1_000_000) // 1_000)
    if whole < 1:
        raise InvalidInput(f"the lease is {lease!r}: 1 ms is the least")
    if whole > LEASE_MS_MAX:
        raise InvalidInput(f"the lease is {lease!r}: 2^32-1 ms (49 days) are the most")
    return whole


def seconds(duration: Seconds, what: str) -> float:
    """A duration as a number."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise InvalidInput(f"{what} is {duration!r}: give seconds, or a timedelta")
    if not 0 <= duration < 2**33:
        raise InvalidInput(f"{what} is {duration!r}: give a number of seconds that is not negative")
    return duration


def optional_seconds(duration: Optional[Seconds], what: str) -> Optional[float]:
    """A duration as a number, if there is one."""
    return None if duration is None else seconds(duration, what)


def address(text: str) -> Tuple[str, int]:
    """Host and port of HOST:PORT. Whether there is such a host is found out with each dial."""
    wrong = InvalidInput(
        f"{text!r} is not an address: write HOST:PORT, such as 10.0.0.5:7070, "
        "locks.example:7070 or [::1]:7070"
    )
    if not isinstance(text, str):
        raise wrong
    host, _, port = text.rpartition(":")
    if not _PORT.fullmatch(port) or not 0 < int(port) < 2**16:
        raise wrong
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise wrong from None
    elif not _HOST.fullmatch(host):
        raise wrong
    return host, int(port)
