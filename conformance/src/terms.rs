//! The lock, the lease, and the bounds that follow from it.
//!
//! What is seen here is later than what the client did, by the way there and by what a busy machine
//! adds. So the bounds are wider than what is asked of clients, as far as no server would mind.

use std::time::Duration;

use crate::scenarios::Scenario;

/// The shortest time between two heartbeats, unless a quarter of the lease is shorter.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// What is asked for, and what all bounds follow from.
    pub(crate) lease: Duration,
    /// How long the client is to hold the lock.
    pub(crate) hold: Duration,
    /// The lock's name.
    pub(crate) lock: &'static str,
}

impl Terms {
    pub(crate) fn new(scenario: &Scenario, lease: Duration) -> Terms {
        Terms { lease, hold: lease / 10 * scenario.hold_tenths, lock: scenario.name }
    }

    /// So many tenths of the lease.
    pub(crate) fn tenths(&self, count: u32) -> Duration {
        self.lease / 10 * count
    }

    /// No heartbeat comes sooner after the one before it: they are to be 100 ms apart, or a quarter
    /// of a lease that is shorter than 400 ms.
    pub(crate) fn heartbeat_gap_min(&self) -> Duration {
        INTERVAL_MIN.min(self.lease / 4) * 6 / 10
    }

    /// A heartbeat is due a quarter of the lease after the one before it, and missed after half.
    pub(crate) fn heartbeat_gap_max(&self) -> Duration {
        self.lease / 2
    }

    /// A claim is to be given up 0.8 of the lease after its last confirmed message was sent: not
    /// much sooner,
    pub(crate) fn give_up_min(&self) -> Duration {
        self.tenths(7)
    }

    /// and at all events before the server may end it.
    pub(crate) fn give_up_max(&self) -> Duration {
        self.lease
    }

    /// How soon a connection must be closed when there is a doubt.
    pub(crate) fn prompt(&self) -> Duration {
        self.lease / 2
    }
}
