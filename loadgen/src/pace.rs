//! When heartbeats are sent: at the ticks of a clock that all sessions of a thread share, early
//! rather than late.
//!
//! A thread that woke for each single heartbeat would spend most of its time on waking, and take
//! that time from a server beside it. A tick is so short that it changes little for the server: of
//! many threads each has a longer one and its own moment in it, so that all together wake as often
//! as one would. As
//! a heartbeat's time is counted from when it was due, or from its sending if that was earlier, a
//! thread that is late is so in the results too.

use std::num::NonZeroU32;

use monolock_core::time::Instant;

/// The time between two ticks of all threads together, unless the lease is very short.
const TICK_NANOS_MAX: u64 = 1_000_000;

/// A thread's tick is no more than this part of the lease: a sixteenth of the time between two
/// heartbeats.
const TICKS_A_LEASE_MIN: u64 = 64;

const NANOS_PER_MS: u64 = 1_000_000;

/// The ticks.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    tick_nanos: u64,
    /// When within a tick's time it is.
    phase_nanos: u64,
}

impl Pace {
    /// For the sessions of one of so many threads, which have this lease.
    pub fn new(lease_ms: NonZeroU32, worker: u32, workers: u32) -> Pace {
        let lease_nanos = u64::from(lease_ms.get()) * NANOS_PER_MS;
        let tick_nanos_max = TICK_NANOS_MAX * u64::from(workers);
        let tick_nanos = (lease_nanos / TICKS_A_LEASE_MIN).min(tick_nanos_max);
        Pace { tick_nanos, phase_nanos: tick_nanos * u64::from(worker) / u64::from(workers) }
    }

    /// The last tick that is not after a moment.
    pub fn tick_before(self, due: Instant) -> Instant {
        let nanos = due.as_nanos();
        // The end of time is no tick, and stays what it is.
        if due == Instant::NEVER {
            due
        } else {
            let since_tick = (nanos + self.tick_nanos - self.phase_nanos) % self.tick_nanos;
            Instant::from_nanos(nanos.saturating_sub(since_tick))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(lease_ms: u32) -> Pace {
        pace_of(lease_ms, 0, 1)
    }

    fn pace_of(lease_ms: u32, worker: u32, workers: u32) -> Pace {
        Pace::new(NonZeroU32::new(lease_ms).expect("not zero"), worker, workers)
    }

    #[test]
    fn what_is_due_is_sent_at_the_tick_before_it() {
        let due = Instant::from_nanos(7_999_999);
        assert_eq!(pace(10_000).tick_before(due), Instant::from_nanos(7_000_000));
        assert_eq!(pace(10_000).tick_before(Instant::from_nanos(7_000_000)).as_nanos(), 7_000_000);
        assert_eq!(pace(10_000).tick_before(Instant::NEVER), Instant::NEVER);
    }

    #[test]
    fn threads_have_their_ticks_one_after_the_other() {
        let due = Instant::from_nanos(7_999_999);
        let ticks = [0, 1, 2, 3].map(|worker| pace_of(10_000, worker, 4).tick_before(due));
        assert_eq!(ticks.map(Instant::as_nanos), [4_000_000, 5_000_000, 6_000_000, 7_000_000]);
        let early = pace_of(10_000, 3, 4).tick_before(Instant::from_nanos(1));
        assert_eq!(early, Instant::from_nanos(0), "the beginning of time");
    }

    #[test]
    fn a_short_lease_has_short_ticks() {
        assert_eq!(pace(64).tick_nanos, 1_000_000);
        assert_eq!(pace(32).tick_nanos, 500_000);
        assert_eq!(pace(1).tick_nanos, 15_625);
    }
}
