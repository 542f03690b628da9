//! A holder that falls silent, and what is measured of it: when its lock was taken over, and how
//! long it took itself for the holder beside the next one.

use std::time::Duration;

use monolock_core::time::Instant;

use crate::course::Course;
use crate::phase::Phase;
use crate::recorder::{Recorder, Timing};

/// A lock's change of hands, away from a silent holder.
#[derive(Clone, Copy, Debug)]
struct Succession {
    /// When the next holder read its grant.
    at: Instant,
    /// It was in the queue when the lease ended, so that it was only waiting for that.
    was_waiting: bool,
}

/// One holder's silence.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// The lock, by its number in its thread.
    pub lock: u32,
    /// When it fell silent.
    pub since: Instant,
    /// When it is to run again.
    pub until: Instant,
    /// When its last message before was sent.
    pub sent_at: Instant,
    lease_ms: u32,
    succession: Option<Succession>,
}

impl Silence {
    /// A holder falls silent that sent its last message at `sent_at`.
    pub fn new(
        lock: u32,
        since: Instant,
        length: Duration,
        sent_at: Instant,
        lease_ms: u32,
    ) -> Silence {
        let until = since.after(length);
        Silence { lock, since, until, sent_at, lease_ms, succession: None }
    }

    /// When the server may end the claim: a lease after the last message, if that was on its way
    /// for no time at all.
    pub fn lease_end(&self) -> Instant {
        self.sent_at.after_ms(self.lease_ms)
    }

    /// The lock was granted to another session, which had been queueing since `queued_at`. False,
    /// and nothing is noted, if that is known of an earlier one.
    pub fn is_succeeded(&mut self, at: Instant, queued_at: Option<Instant>) -> bool {
        if self.succession.is_some() {
            return false;
        }
        let was_waiting = queued_at.is_some_and(|queued_at| queued_at < self.lease_end());
        self.succession = Some(Succession { at, was_waiting });
        true
    }

    /// Whether another session was granted the lock.
    pub fn has_successor(&self) -> bool {
        self.succession.is_some()
    }

    /// The session has found out at `known_at` that it has lost its lock, and would have given it
    /// up by itself at `gives_up_at`, had it been awake.
    pub fn measure(
        &self,
        gives_up_at: Instant,
        known_at: Instant,
        recorder: &mut Recorder,
        course: &Course,
    ) {
        let Some(succession) = self.succession else {
            return;
        };
        let mut record = |phase, from: Instant, until: Instant| {
            // The plan says when it fell silent, so that is what decides whether it is measured.
            let timing = Timing { intended: from, begun: from, done: until.max(from) };
            recorder.record_if(course.is_measured(self.since), phase, timing);
        };
        if succession.was_waiting {
            record(Phase::Takeover, self.since, succession.at);
            record(Phase::ExpiryOverrun, self.lease_end(), succession.at);
        }
        record(Phase::BeliefOverlap, succession.at, gives_up_at.min(known_at));
        record(Phase::Unaware, succession.at, known_at);
    }
}
