//! When heartbeats are sent: at the ticks of a clock that all sessions of a thread share, early
//! rather than late.
//!
//! A thread that woke for each single heartbeat would spend most of its time on waking, and take
//! that time from a server beside it. A tick is so short that it changes little for the server. As
//! a heartbeat's time is counted from when it was due, or from its sending if that was earlier, a
//! thread that is late is so in the results too.

use std::num::NonZeroU32;

use monolock_core::time::Instant;

/// The time between two ticks, unless the lease is very short.
const TICK_NANOS_MAX: u64 = 1_000_000;

/// A tick is no more than this part of the lease: a sixteenth of the time between two heartbeats.
const TICKS_A_LEASE_MIN: u64 = 64;

const NANOS_PER_MS: u64 = 1_000_000;

/// The ticks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    tick_nanos: u64,
}

impl Pace {
    /// For sessions of this lease.
    pub fn new(lease_ms: NonZeroU32) -> Pace {
        let lease_nanos = u64::from(lease_ms.get()) * NANOS_PER_MS;
        Pace { tick_nanos: (lease_nanos / TICKS_A_LEASE_MIN).min(TICK_NANOS_MAX) }
    }

    /// The last tick that is not after a moment.
    pub fn tick_before(self, due: Instant) -> Instant {
        let nanos = due.as_nanos();
        // The end of time is no tick, and stays what it is.
        if due == Instant::NEVER {
            due
        } else {
            Instant::from_nanos(nanos - nanos % self.tick_nanos)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(lease_ms: u32) -> Pace {
        Pace::new(NonZeroU32::new(lease_ms).expect("not zero"))
    }

    #[test]
    fn what_is_due_is_sent_at_the_tick_before_it() {
        let due = Instant::from_nanos(7_999_999);
        assert_eq!(pace(10_000).tick_before(due), Instant::from_nanos(7_000_000));
        assert_eq!(pace(10_000).tick_before(Instant::from_nanos(7_000_000)).as_nanos(), 7_000_000);
        assert_eq!(pace(10_000).tick_before(Instant::NEVER), Instant::NEVER);
    }

    #[test]
    fn a_short_lease_has_short_ticks() {
        assert_eq!(pace(64).tick_nanos, 1_000_000);
        assert_eq!(pace(32).tick_nanos, 500_000);
        assert_eq!(pace(1).tick_nanos, 15_625);
    }
}
