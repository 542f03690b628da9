"""Client of monolock, a server for named locks with fencing tokens: hold a lock while work runs.

    import monolock

    client = monolock.Client("127.0.0.1:7070")

    with client.lock("nightly/import").hold() as held:
        # Only one process at a time is here. What it writes carries the token.
        import_everything(held.token())

=====================================================  ========================================
to                                                     call
=====================================================  ========================================
wait as long as it takes                               ``client.lock(name).run(work)``
the same as a ``with`` statement                       ``client.lock(name).hold()``
the same in a coroutine                                ``await client.lock(name).run_async(work)``
do it only if nobody else does                         ``client.lock(name, wait=False)``
wait for some time                                     ``client.lock(name, wait_at_most=30)``
outlast a restart of the server in the queue           ``client.lock(name, retry=True)``
hold several locks, all or none                        ``client.locks(names)``
be the leader whenever possible                        ``client.lock(name).elect(lead)``
give others a turn                                     ``client.lock(name, hold_at_most=60)``
=====================================================  ========================================

A holder that is silent for its lease loses the lock, or nobody could ever have it after a crash.
The client sends heartbeats from a thread of its own, stops before the server does, and counts on a
clock that runs on while the machine sleeps. And still a process can be paused between its look at
the clock and its next write. So each grant has a *fencing token*, larger than all before it, and
what the lock guards should refuse a write whose token is smaller than the largest that it has seen:
see :meth:`Held.write`.
"""

from ._acquisition import Progress, Queued, Retrying
from ._client import Client
from ._failure import (
    AcquireError,
    AlreadyClaimed,
    ClaimLost,
    ClientFailure,
    HeldTooLong,
    InvalidInput,
    LockLost,
    Loss,
    LossKind,
    MonolockError,
    Refused,
    ServerError,
    StaleToken,
    StopKind,
    StopReason,
    Taken,
    TimedOut,
    Unreachable,
)
from ._held import Held, HeldTogether, changed_rows
from ._lock import Lock, Resign

__all__ = [
    "AcquireError",
    "AlreadyClaimed",
    "ClaimLost",
    "Client",
    "ClientFailure",
    "Held",
    "HeldTogether",
    "HeldTooLong",
    "InvalidInput",
    "Lock",
    "LockLost",
    "Loss",
    "LossKind",
    "MonolockError",
    "Progress",
    "Queued",
    "Refused",
    "Resign",
    "Retrying",
    "ServerError",
    "StaleToken",
    "StopKind",
    "StopReason",
    "Taken",
    "TimedOut",
    "Unreachable",
    "changed_rows",
]
