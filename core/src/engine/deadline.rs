//! The three deadlines of a session, its lease, its first frame and a write that is stuck, in one
//! heap; and the end of an ended session's connection as a fourth.

use core::time::Duration;

use super::Engine;
use crate::effect::{Effect, ReleaseReason};
use crate::session::{Phase, SessionId};
use crate::time::{Instant, Now};

/// How far ahead of the present [`Engine::wake_at`] knows a deadline exactly. More would put off
/// less work than it saves; less would wake the driver in vain more than fifty times a second.
pub const NEAR: Duration = Duration::from_millis(20);

impl Engine {
    /// When to come back at the latest, if nothing comes in before: when [`Engine::expire`] has
    /// something to do if that is [near](NEAR), and later than near but no later than that if not.
    ///
    /// To know a far deadline exactly would be to move nearly every session in the heap after each
    /// of its heartbeats; so it is moved once in a lease.
    pub fn wake_at(&mut self, now: Now) -> Option<Instant> {
        let (deadline, _) = self.first_deadline(now.instant.after(NEAR))?;
        Some(deadline).filter(|&deadline| deadline < Instant::NEVER)
    }

    /// Works off the deadlines that have passed, at most `limit` of them, so that a mass of them
    /// does not hold up everybody else. Whether there are more is for [`Engine::wake_at`] to say.
    ///
    /// All that had come in by `now` must have been given to the engine before.
    pub fn expire(&mut self, now: Now, limit: usize) {
        for _ in 0..limit {
            match self.first_deadline(now.instant) {
                Some((deadline, index)) if deadline <= now.instant => self.pass(index, now),
                _ => return,
            }
        }
    }

    /// The answer to [`Effect::Probe`] when there was nothing to be read.
    pub fn silent(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.get_mut(id)
            && session.phase == Phase::Probing
        {
            session.phase = Phase::Open;
            self.probed(id, now);
        }
    }

    /// The heap's first deadline is only a lower bound for a claim that had heartbeats since it was
    /// put there: those sink to where they belong, until the first one is exact or after
    /// `exact_until`.
    fn first_deadline(&mut self, exact_until: Instant) -> Option<(Instant, u32)> {
        loop {
            let (deadline, index) = self.deadlines.first()?;
            if deadline > exact_until {
                return Some((deadline, index));
            }
            let session = &self.sessions[index];
            let restarted = match session.phase {
                Phase::Open if session.is_claim() => session.lease_end(),
                // Heartbeats that were read before reading stopped may come late.
                Phase::Blocked => session.lease_end().min(self.write_deadlines[&index]),
                _ => deadline,
            };
            if restarted <= deadline {
                return Some((deadline, index));
            }
            self.deadlines.change(&mut self.sessions, index, restarted);
        }
    }

    fn pass(&mut self, index: u32, now: Now) {
        let session = &mut self.sessions[index];
        match session.phase {
            Phase::Open => {
                // The heartbeat may have come while the whole server was stopped.
                session.phase = Phase::Probing;
                self.deadlines.change(&mut self.sessions, index, Instant::NEVER);
                let id = self.sessions.id(index);
                self.effects.push_back(Effect::Probe(id));
            }
            Phase::Blocked if self.write_deadlines[&index] < session.lease_end() => {
                self.end_silently(index, ReleaseReason::IoTimeout, now);
            }
            Phase::Blocked | Phase::Unreachable => {
                self.end_silently(index, ReleaseReason::Expired, now);
            }
            Phase::Finishing | Phase::FarewellSent | Phase::Draining => self.close(index),
            Phase::Probing | Phase::Leaving | Phase::Closed => {
                unreachable!("none of them has a deadline that passes")
            }
        }
    }

    /// All that there was to be read has been read.
    pub(super) fn probed(&mut self, id: SessionId, now: Now) {
        let session = &self.sessions[id.index];
        if session.phase != Phase::Open {
            return;
        }
        let is_claim = session.is_claim();
        let deadline = if is_claim {
            session.lease_end()
        } else {
            session.since.after(self.config.io_timeout)
        };
        if now.instant < deadline {
            self.deadlines.change(&mut self.sessions, id.index, deadline);
        } else {
            self.counts.first_frame_timeouts += u64::from(!is_claim);
            self.end_silently(id.index, ReleaseReason::Expired, now);
        }
    }
}
