//! The only place where clocks are read.

use std::time::Duration;

use monolock_core::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The one clock that everything is scheduled, timed and judged by. It runs on while the machine is
/// suspended, as a lease does.
pub fn now() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Boottime)))
}

/// The wall clock, since 1970. The kernel stamps arriving bytes by it.
pub fn unix_now() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::Realtime)))
}

/// How long the calling thread has been running on a processor.
pub fn thread_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanos(time: Timespec) -> u64 {
    let (secs, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}
