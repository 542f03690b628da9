//! The only place where clocks are read.

use std::time::{Duration, SystemTime, SystemTimeError};

use monolock_core::time::{Instant, Now, UnixTime};
use rustix::time::{ClockId, Timespec, clock_gettime};
use thiserror::Error;

/// The wall clock shows a time before 1970, so no token can be made of it.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "the wall clock is before 1970, so fencing tokens can't grow over restarts: set the clock \
     (for example with chronyd or timedatectl), then start again"
)]
pub struct BeforeEpoch;

/// The monotonic clock for deadlines, and the wall clock for tokens.
///
/// A wall clock that is set to before 1970 while the server runs counts as 1970: tokens go on from
/// the last one.
pub fn now() -> Now {
    Now { instant: monotonic(), unix: wall_clock().unwrap_or_default() }
}

/// For how long a reading of the wall clock is carried on by the monotonic one.
const CARRIED_ON: Duration = Duration::from_millis(1);

/// The clocks as an event loop reads them, in every turn.
///
/// The wall clock is for grants only, and reading a clock costs as much as a tenth of all that a
/// heartbeat costs outside the kernel. The two clocks run at one speed, so that between two
/// readings the one tells the other; only that somebody set the wall clock is seen up to a
/// millisecond late.
#[derive(Debug)]
pub struct Clocks {
    read: Now,
}

impl Clocks {
    /// Reads both.
    pub fn read() -> Clocks {
        Clocks { read: now() }
    }

    /// The present.
    pub fn now(&mut self) -> Now {
        let instant = monotonic();
        let passed = instant.since(self.read.instant);
        if passed < CARRIED_ON {
            return Now { instant, unix: self.read.unix.after(passed) };
        }
        self.read = now();
        self.read
    }
}

/// The monotonic clock alone.
pub fn monotonic() -> Instant {
    instant(ClockId::Monotonic)
}

/// The wall clock.
///
/// It is read through the C library, the others past it: so a test can put another wall clock
/// before this process (`LD_PRELOAD`) and leave its deadlines alone.
///
/// # Errors
/// If it shows a time before 1970.
pub fn wall_clock() -> Result<UnixTime, BeforeEpoch> {
    unix_time(SystemTime::UNIX_EPOCH.elapsed())
}

/// The time since the machine was started, in which a suspended machine's sleep counts.
pub fn since_boot() -> Instant {
    instant(ClockId::Boottime)
}

/// The processor time that the calling thread has used, the kernel's work for it included.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(instant(ClockId::ThreadCPUTime).as_nanos())
}

/// The processor time that all threads of the process have used together.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(instant(ClockId::ProcessCPUTime).as_nanos())
}

/// Whole milliseconds as logs and interfaces have them: a number of 128 bits would be text in a
/// JSON log.
pub fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn instant(clock: ClockId) -> Instant {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let (secs, nanos) = (tv_sec.cast_unsigned(), tv_nsec.cast_unsigned());
    Instant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

fn unix_time(since_1970: Result<Duration, SystemTimeError>) -> Result<UnixTime, BeforeEpoch> {
    let since_1970 = since_1970.map_err(|_| BeforeEpoch)?;
    Ok(UnixTime::new(since_1970.as_secs(), since_1970.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_is_an_error() {
        let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH);
        let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        assert!(unix_time(since_1970(before)).is_err());
        assert!(unix_time(since_1970(SystemTime::UNIX_EPOCH)).is_ok());
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = now();
        assert!(now().instant >= first.instant);
    }
}
