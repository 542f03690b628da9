//! What an engine has counted since it began. The driver adds up the engines of all event loops.

use crate::effect::ReleaseReason;
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

    pub(crate) fn count_release(&mut self, reason: ReleaseReason) {
        self.releases[reason as usize] += 1;
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
