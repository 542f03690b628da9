//! Moments as plain numbers. Nobody in this crate reads a clock: the caller does, and passes the
//! result in.

use core::time::Duration;

/// A moment on a monotonic clock, in nanoseconds since an origin of the caller's choice.
///
/// 64 bits of nanoseconds last for 584 years of up-time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// A moment that no clock reaches: the deadline of what has none.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment and `duration`, at most [`Instant::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }

    /// This moment less a duration, not before the clock's beginning.
    pub fn before(self, duration: Duration) -> Instant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_sub(nanos))
    }

    /// This moment and a number of milliseconds, at most [`Instant::NEVER`].
    ///
    /// The protocol's leases are milliseconds; on the path of every heartbeat this is cheaper than
    /// a detour over [`Duration`].
    #[must_use]
    pub const fn after_ms(self, ms: u32) -> Instant {
        Instant(self.0.saturating_add(ms as u64 * 1_000_000))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A moment on the wall clock: time since 1970 in UTC, as `CLOCK_REALTIME` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime {
    secs: u64,
    subsec_nanos: u32,
}

impl UnixTime {
    /// `secs` whole seconds and `subsec_nanos` nanoseconds, which must be less than a second.
    ///
    /// # Panics
    /// If `subsec_nanos` is a second or more.
    pub const fn new(secs: u64, subsec_nanos: u32) -> UnixTime {
        assert!(subsec_nanos < 1_000_000_000);
        UnixTime { secs, subsec_nanos }
    }

    /// Whole seconds since 1970.
    pub const fn secs(self) -> u64 {
        self.secs
    }

    /// Nanoseconds within the second.
    pub const fn subsec_nanos(self) -> u32 {
        self.subsec_nanos
    }

    /// This moment and `duration`, at most the last one that can be told.
    #[must_use]
    pub fn after(self, duration: Duration) -> UnixTime {
        let sum = Duration::new(self.secs, self.subsec_nanos).saturating_add(duration);
        UnixTime { secs: sum.as_secs(), subsec_nanos: sum.subsec_nanos() }
    }
}

/// The present as the caller read it from both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For leases and every other deadline; never steps.
    pub instant: Instant,
    /// For fencing tokens only; may step in both directions.
    pub unix: UnixTime,
}
