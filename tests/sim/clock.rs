//! Simulated time: one true clock in nanoseconds, and the clocks that the server has of it.

use monolock_core::time::{Instant, Now, UnixTime};

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The clocks of the server's machine.
pub(crate) struct Clocks {
    /// The up-time when the world began; another one after a reboot.
    pub(crate) uptime_nanos: u64,
    /// The wall clock when the world began, steps since then included.
    pub(crate) unix_nanos: u64,
}

impl Clocks {
    /// Sets the wall clock forward or back, but not before 1970: that would be fatal at start.
    pub(crate) fn step(&mut self, nanos: i64) {
        self.unix_nanos = self.unix_nanos.saturating_add_signed(nanos);
    }

    pub(crate) fn read(&self, now: u64) -> Now {
        let unix_nanos = self.unix_nanos + now;
        let subsec_nanos = u32::try_from(unix_nanos % SECOND).expect("less than a second");
        Now {
            instant: Instant::from_nanos(self.uptime_nanos + now),
            unix: UnixTime::new(unix_nanos / SECOND, subsec_nanos),
        }
    }

    /// The true time at which the up-time will be this one.
    pub(crate) fn when(&self, instant: Instant) -> u64 {
        instant.as_nanos().saturating_sub(self.uptime_nanos)
    }
}
