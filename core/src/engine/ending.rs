//! How a claim ends, and how its connection ends after it: the lock is free at once, while the peer
//! may still have to be told.

use super::{DRAIN_MAX, DRAINED_MAX_BYTES, Engine};
use crate::NONE;
use crate::effect::{Effect, Ownership, OwnershipChange, ReleaseReason};
use crate::lock_table::Lock;
use crate::session::{Output, Phase, Standing};
use crate::time::Now;
use crate::wire::{ErrorClass, ErrorCode, Farewell};

impl Engine {
    /// From now on nobody is granted anything, by any engine that shares this one's mint, and who
    /// connects gets the ERROR [`SHUTTING_DOWN`](ErrorCode::SHUTTING_DOWN). Those that are there
    /// get it by [`Engine::tell_of_shutdown`], and are served until then.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
        // Before anybody is told: who has been told may let others go, whose locks belong to an
        // engine that does not know yet.
        self.mint.seal();
    }

    /// Ends the sessions at the places from `from` on, at most `limit` places, with the ERROR
    /// [`SHUTTING_DOWN`](ErrorCode::SHUTTING_DOWN). Returns the place to go on from, or `None` if
    /// all have been told.
    pub fn tell_of_shutdown(&mut self, from: u32, limit: u32, now: Now) -> Option<u32> {
        debug_assert!(self.shutting_down, "or somebody is granted what they let go");
        let places = self.sessions.places();
        let end = from.saturating_add(limit).min(places);
        for index in from..end {
            // Who is leaving is told where it arrives.
            let is_to_be_told = |phase: Phase| phase.is_alive() && phase != Phase::Leaving;
            if self.sessions.at(index).is_some_and(|session| is_to_be_told(session.phase)) {
                self.end_with_error(index, Farewell::new(ErrorCode::SHUTTING_DOWN), now);
            }
        }
        (end < places).then_some(end)
    }

    /// Ends a session by an ERROR. Its code tells the reason.
    pub(super) fn end_with_error(&mut self, index: u32, farewell: Farewell, now: Now) {
        let reason = match farewell.code() {
            ErrorCode::SHUTTING_DOWN => ReleaseReason::Shutdown,
            code if code.class() == ErrorClass::ClientError => ReleaseReason::ProtocolError,
            _ => ReleaseReason::Force,
        };
        self.counts.count_protocol_error(farewell.code());
        let could_be_told = self.sessions[index].phase != Phase::Unreachable;
        self.release(index, reason, now);
        if could_be_told {
            self.sessions[index].farewell = Some(farewell);
            self.begin_to_finish(index, now);
        } else {
            self.close(index);
        }
    }

    /// Ends a session whose peer is done, after it has had its answers.
    pub(super) fn end_with_answers(&mut self, index: u32, now: Now) {
        self.release(index, ReleaseReason::Graceful, now);
        self.begin_to_finish(index, now);
    }

    /// Ends a session whose peer can't be told anything any more.
    pub(super) fn end_by_peer(&mut self, index: u32, now: Now) {
        self.end_silently(index, ReleaseReason::Graceful, now);
    }

    /// Ends a session, at whatever point it is, without a word.
    pub(super) fn end_silently(&mut self, index: u32, reason: ReleaseReason, now: Now) {
        if self.sessions[index].phase.is_alive() {
            self.release(index, reason, now);
        }
        self.close(index);
    }

    /// Takes the session's lock, or its place in the queue, from it.
    fn release(&mut self, index: u32, reason: ReleaseReason, now: Now) {
        self.counts.connections -= 1;
        self.write_deadlines.remove(&index);
        let session = &self.sessions[index];
        let lock = session.lock_or_frame;
        match session.standing {
            Standing::Connected => {
                self.counts.connections_unclaimed -= 1;
                self.drop_partial_frame(index);
            }
            Standing::Moving => {
                self.counts.connections_unclaimed -= 1;
                self.cancel_move(index);
            }
            Standing::Waiting(_) => {
                self.counts.waiters -= 1;
                self.locks.get_mut(lock).waiters.remove(&mut self.sessions, index);
                self.forget_if_idle(lock);
            }
            Standing::Acquired(token) => {
                let (peer, held) = (session.peer, now.instant.since(session.since));
                self.counts.count_release(reason, held);
                self.changes.push_back(OwnershipChange {
                    lock: self.locks.get_mut(lock).name.clone(),
                    session: self.sessions.id(index),
                    peer,
                    token: token.into(),
                    what: Ownership::Released { held, reason },
                });
                self.hand_over(lock, now);
            }
        }
        self.sessions[index].phase = Phase::Finishing;
    }

    /// The holder is gone: the lock goes to who has waited longest, or is forgotten.
    fn hand_over(&mut self, lock: u32, now: Now) {
        self.locks.get_mut(lock).holder = NONE;
        self.counts.locks_held -= 1;
        self.promote(lock, now);
        self.forget_if_idle(lock);
    }

    /// A lock that nobody holds goes to who has waited longest. While nothing is granted it stays
    /// without a holder; on the way out, until its waiters have been told as well.
    pub(super) fn promote(&mut self, lock: u32, now: Now) {
        let waiters = &mut self.locks.get_mut(lock).waiters;
        let may_grant = !waiters.is_empty() && !self.is_granting_stopped;
        let token = if may_grant { self.mint.mint(now.unix) } else { None };
        if let Some(token) = token
            && let Some(next) = waiters.pop_front(&mut self.sessions)
        {
            self.counts.waiters -= 1;
            self.counts.locks_held += 1;
            self.grant(next, token, now);
        }
    }

    fn forget_if_idle(&mut self, lock: u32) {
        let Lock { holder, waiters, .. } = self.locks.get_mut(lock);
        if *holder == NONE && waiters.is_empty() {
            self.locks.remove(lock);
        }
    }

    /// The claim is over; what the peer is owed has the io-timeout to reach it.
    fn begin_to_finish(&mut self, index: u32, now: Now) {
        let deadline = now.instant.after(self.config.io_timeout);
        self.deadlines.change(&mut self.sessions, index, deadline);
        self.go_on_finishing(index);
    }

    pub(super) fn go_on_finishing(&mut self, index: u32) {
        self.ask_to_transmit(index);
        if self.sessions[index].output == Output::Idle {
            self.close(index);
        }
    }

    /// The ERROR is on its way. To close now would make the kernel answer unread input with a
    /// reset, and a reset destroys what the peer has not read yet.
    pub(super) fn begin_to_drain(&mut self, index: u32, now: Now) {
        let session = &mut self.sessions[index];
        if session.hung_up {
            self.close(index);
            return;
        }
        session.phase = Phase::Draining;
        session.owed = 0;
        let deadline = now.instant.after(self.config.io_timeout.min(DRAIN_MAX));
        self.deadlines.change(&mut self.sessions, index, deadline);
        let id = self.sessions.id(index);
        self.effects.push_back(Effect::ShutdownWrite(id));
    }

    pub(super) fn drain(&mut self, index: u32, bytes: &[u8]) {
        let drained = &mut self.sessions[index].owed;
        *drained = drained.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        if *drained >= DRAINED_MAX_BYTES {
            self.close(index);
        }
    }

    pub(super) fn close(&mut self, index: u32) {
        self.sessions[index].phase = Phase::Closed;
        self.deadlines.remove(&mut self.sessions, index);
        let id = self.sessions.id(index);
        self.effects.push_back(Effect::Close(id));
    }
}
