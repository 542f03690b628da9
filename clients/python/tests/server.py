"""The real server: the one that all tests share, and others that a test may end."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Optional

import monolock

#: After this time something that should have happened at once is taken as not happening.
PATIENCE = 15.0

#: A lease far beyond that: whatever is seen to happen, this lease didn't do it.
LONG_LEASE = 120.0

ADDRESS = os.environ["MONOLOCK_TEST_ADDR"]
_ADMIN = f"http://{os.environ['MONOLOCK_TEST_ADMIN_ADDR']}/api/locks"


def client() -> monolock.Client:
    """A party of its own at the server that all tests share."""
    return monolock.Client(ADDRESS)


def view(name: str) -> Optional[dict[str, Any]]:
    """What the server knows of a lock; None if it is idle."""
    try:
        with urllib.request.urlopen(f"{_ADMIN}/{urllib.parse.quote(name, safe='')}") as answer:
            seen: dict[str, Any] = json.load(answer)
            return seen
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
        raise


def waiters(name: str) -> int:
    """How many claims are in a lock's queue."""
    seen = view(name)
    return 0 if seen is None else len(seen["waiters"])


def force_release(name: str) -> None:
    """What an administrator does."""
    path = f"{_ADMIN}/{urllib.parse.quote(name, safe='')}/release"
    with urllib.request.urlopen(urllib.request.Request(path, method="POST")):
        pass


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.002)


class Server:
    """A server of the test's own, killed at the end of the ``with`` statement."""

    def __init__(self, address: str = "127.0.0.1:0") -> None:
        self._process = subprocess.Popen(
            [os.environ["MONOLOCK_TEST_SERVER"], "--listen", address],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            said.append(line)
            _, found, after = line.partition("listening on ")
            if found:
                #: Where it listens.
                self.address = after.split(",")[0].split()[0]
                return
        raise AssertionError(f"the server did not start: {said}")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As ``kill -9`` does, if it hasn't ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def shut_down(self) -> None:
        """As an operator does; on return it has ended."""
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE)
