"""The only place where the clock is read, and a timer on it.

``CLOCK_BOOTTIME`` runs on while the machine is suspended, as a lease at the server does.
``time.monotonic`` and the timeouts of ``select`` and ``asyncio`` stand still then. The timer is
the C library's, as Python's own ``os.timerfd_create`` came with 3.13.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Optional

NANOS_PER_SECOND = 1_000_000_000

#: A moment that never comes.
NEVER = 2**63 - 1

_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


def now() -> int:
    """The present, in nanoseconds since the machine was started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def after(moment: int, seconds: Optional[float]) -> int:
    """The moment that is so much later; never, without a number."""
    if seconds is None:
        return NEVER
    return int(min(moment + seconds * NANOS_PER_SECOND, NEVER))


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("it_interval", _Timespec), ("it_value", _Timespec)]


_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A descriptor that can be read when a moment has come."""

    def __init__(self) -> None:
        self._armed_for = NEVER
        clock = int(time.CLOCK_BOOTTIME)
        self._descriptor: int = _libc.timerfd_create(clock, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error("timerfd_create")

    def fileno(self) -> int:
        return self._descriptor

    def arm(self, moment: int) -> None:
        """From now on it is for this moment, and no other."""
        if moment == self._armed_for:
            return
        # Zero disarms it.
        nanos = 0 if moment == NEVER else max(moment, 1)
        value = _Timespec(*divmod(nanos, NANOS_PER_SECOND))
        once = _Itimerspec(_Timespec(0, 0), value)
        if _libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(once), None):
            raise _last_error("timerfd_settime")
        self._armed_for = moment

    def close(self) -> None:
        os.close(self._descriptor)


def _last_error(call: str) -> OSError:
    errno = ctypes.get_errno()
    return OSError(errno, f"{call}: {os.strerror(errno)}")
