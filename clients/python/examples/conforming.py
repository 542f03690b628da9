"""A client for ``monolock-conformance run``: see docs/guide/writing-a-client.md."""

from __future__ import annotations

import os
import sys

import monolock

HELD, LOST, NOT_ACQUIRED = 0, 10, 11


def main() -> int:
    client = monolock.Client(os.environ["MONOLOCK_ADDRESS"])
    lease = int(os.environ["MONOLOCK_LEASE_MS"]) / 1000
    lock = client.lock(os.environ["MONOLOCK_LOCK"], lease=lease, retry=True)
    try:
        with lock.hold() as held:
            held.token()
            held.wait_for_stop(int(os.environ["MONOLOCK_HOLD_MS"]) / 1000)
    except monolock.LockLost as lost:
        print(lost, file=sys.stderr)
        return LOST
    except monolock.AcquireError as error:
        print(error, file=sys.stderr)
        return NOT_ACQUIRED
    return HELD


if __name__ == "__main__":
    sys.exit(main())
