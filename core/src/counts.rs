//! What an engine has counted since it began. Over several event loops the counts are added up.

use core::time::Duration;

use crate::effect::ReleaseReason;
use crate::histogram::{DurationHistogram, RatioHistogram, add_each};
use crate::wire::ErrorCode;

/// How many client errors have a code of their own, from 0x10 on.
const CLIENT_ERRORS: usize =
    (ErrorCode::LEASE_TOO_LONG.get() - ErrorCode::CLIENT_ERROR_MIN.get()) as usize + 1;

/// Gauges and counters of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that are not ended, with a claim or still without one.
    pub connections: u64,
    /// Of those, the ones whose ACQUIRE has not come.
    pub connections_unclaimed: u64,
    /// Locks with a holder.
    pub locks_held: u64,
    /// Claims in a queue.
    pub waiters: u64,
    /// Grants, at once and after a wait.
    pub acquires: u64,
    /// HEARTBEATs answered.
    pub heartbeats: u64,
    /// Connections that were closed because their first frame was not complete in time.
    pub first_frame_timeouts: u64,
    /// From ACQUIRE to grant, of every grant.
    pub waits: DurationHistogram,
    /// From grant to release, of every release.
    pub holds: DurationHistogram,
    /// How much of the lease was left when a HEARTBEAT came. Of those that are read at once, all
    /// but the first find their lease whole.
    pub lease_remaining: RatioHistogram,
    releases: [u64; ReleaseReason::ALL.len()],
    protocol_errors: [u64; CLIENT_ERRORS],
}

impl Counts {
    /// How many holders lost their lock for this reason.
    pub fn releases(&self, reason: ReleaseReason) -> u64 {
        self.releases[reason as usize]
    }

    /// How many sessions were ended with this client error; zero for every other code.
    pub fn protocol_errors(&self, code: ErrorCode) -> u64 {
        protocol_error(code).map_or(0, |place| self.protocol_errors[place])
    }

    /// Takes over what another engine has counted.
    pub fn add(&mut self, other: &Counts) {
        let Counts {
            connections,
            connections_unclaimed,
            locks_held,
            waiters,
            acquires,
            heartbeats,
            first_frame_timeouts,
            waits,
            holds,
            lease_remaining,
            releases,
            protocol_errors,
        } = other;
        self.connections += connections;
        self.connections_unclaimed += connections_unclaimed;
        self.locks_held += locks_held;
        self.waiters += waiters;
        self.acquires += acquires;
        self.heartbeats += heartbeats;
        self.first_frame_timeouts += first_frame_timeouts;
        self.waits.add(waits);
        self.holds.add(holds);
        self.lease_remaining.add(lease_remaining);
        add_each(&mut self.releases, releases);
        add_each(&mut self.protocol_errors, protocol_errors);
    }

    pub(crate) fn count_grant(&mut self, wait: Duration) {
        self.acquires += 1;
        self.waits.observe(wait);
    }

    /// Of HEARTBEATs that are read at once, the first ends the silence.
    pub(crate) fn count_heartbeats(&mut self, heartbeats: u32, silence_nanos: u64, lease_ms: u32) {
        let heartbeats = u64::from(heartbeats);
        self.heartbeats += heartbeats;
        self.lease_remaining.observe_left(silence_nanos, lease_ms);
        self.lease_remaining.observe_wholes(heartbeats - 1);
    }

    pub(crate) fn count_release(&mut self, reason: ReleaseReason, held: Duration) {
        self.releases[reason as usize] += 1;
        self.holds.observe(held);
    }

    pub(crate) fn count_protocol_error(&mut self, code: ErrorCode) {
        if let Some(place) = protocol_error(code) {
            self.protocol_errors[place] += 1;
        }
    }
}

fn protocol_error(code: ErrorCode) -> Option<usize> {
    let place = code.get().checked_sub(ErrorCode::CLIENT_ERROR_MIN.get())?;
    Some(usize::from(place)).filter(|&place| place < CLIENT_ERRORS)
}
