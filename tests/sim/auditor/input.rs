//! What comes in, and what it means for a session.

use super::Auditor;
use super::session::{Cause, Session, Standing, Whereabouts};
use crate::sim::clock::MILLISECOND;
use crate::sim::frames::Said;
use crate::sim::invariants::{Invariant, Verdict, Violation};
use crate::sim::sighting::{Connection, End};

impl Auditor {
    pub(super) fn arrived(&mut self, connection: Connection, len: usize) -> Verdict {
        match self.sessions.get_mut(&connection) {
            Some(session) => session.unread += len,
            None => *self.arrived_early.entry(connection).or_default() += len,
        }
        Ok(())
    }

    pub(super) fn read(&mut self, connection: Connection, bytes: &[u8]) -> Verdict {
        let lease_max_ms = self.limits.lease_max_ms;
        for &byte in bytes {
            let session = self.known(connection)?;
            session.unread -= 1;
            if !session.is_alive() {
                session.drained += usize::from(session.error_submitted);
            } else if !session.gave_up
                && session.wrong_on_arrival.is_none()
                && let Some(said) = session.said.hear(byte, lease_max_ms)
            {
                self.said(connection, said)?;
            }
        }
        Ok(())
    }

    fn said(&mut self, connection: Connection, said: Said) -> Verdict {
        let now = self.now;
        match said {
            Said::Wrong(code) => {
                self.count("client error");
                let session = self.known(connection)?;
                let is_to_arrive = session.standing == Standing::Moving
                    && !matches!(session.whereabouts, Whereabouts::HeldUpIn(..));
                if is_to_arrive {
                    session.wrong_on_arrival = Some(code);
                } else {
                    self.end_with_error(connection, Cause::Wrong, code);
                }
            }
            Said::Heartbeat => {
                let session = self.known(connection)?;
                let is_late = session.heard + session.lease <= now;
                session.heard = now;
                session.owed.push_back(now);
                if is_late {
                    self.count("heartbeat that was read after its lease");
                }
            }
            Said::Acquire { lock, lease_ms } => {
                let home = self.home(&lock);
                let session = self.known(connection)?;
                session.lock = lock;
                session.lease = u64::from(lease_ms) * MILLISECOND;
                session.heard = now;
                session.standing = Standing::Moving;
                if session.whereabouts.shard() == Some(home) {
                    self.claims(connection);
                }
            }
        }
        Ok(())
    }

    /// The ACQUIRE has reached its lock: whether it counts, for on the way out none does that would
    /// be granted.
    pub(super) fn claims(&mut self, connection: Connection) -> bool {
        let (now, is_shutting_down) = (self.now, self.is_shutting_down());
        let Some(session) = self.sessions.get_mut(&connection) else { return false };
        let lock = self.locks.entry(session.lock.clone()).or_default();
        let is_free = lock.holder.is_none() && lock.waiters.is_empty();
        if is_free && is_shutting_down {
            self.end_with_error(connection, Cause::Shutdown, 0x01);
            return false;
        }
        if is_free {
            lock.next = Some(connection);
        } else {
            lock.waiters.push_back(connection);
            // Before the answers to heartbeats that were read on the way.
            session.owed.push_front(now);
        }
        session.standing = Standing::Waiting;
        true
    }

    pub(super) fn read_end(&mut self, connection: Connection, end: End) -> Verdict {
        let session = self.known(connection)?;
        session.end_unread = false;
        session.hung_up = true;
        let is_leaving = matches!(session.whereabouts, Whereabouts::Leaving(_));
        session.gave_up |= end == End::GaveUp;
        let standing = session.standing;
        if is_leaving {
            self.count("end of who was leaving");
        }
        match (end, standing) {
            (End::GaveUp, Standing::Holding(_)) => self.count("holder behind a cut network"),
            (End::GaveUp, _) => self.end(connection, Cause::Lost),
            (End::Closed | End::Reset, _) => self.end(connection, Cause::Left),
        }
        if end != End::Closed {
            let session = self.known(connection)?;
            session.owed.clear();
            session.error_owed = None;
            session.stuck = None;
        }
        Ok(())
    }

    pub(super) fn known(&mut self, connection: Connection) -> Result<&mut Session, Violation> {
        self.sessions.get_mut(&connection).ok_or_else(|| Violation {
            invariant: Invariant::NothingStays,
            case: format!("connection {connection} is not the server's any more"),
        })
    }

    /// The session's claim is over by something that was seen.
    pub(super) fn end(&mut self, connection: Connection, cause: Cause) {
        let now = self.now;
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.end(now, cause);
            if session.standing == Standing::Moving {
                // It was in no queue, so there is nothing to tell it.
                session.owed.clear();
            }
            if let Some(lock) = self.locks.get_mut(&session.lock) {
                lock.waiters.retain(|&waiter| waiter != connection);
            }
        }
    }

    pub(super) fn end_with_error(&mut self, connection: Connection, cause: Cause, code: u8) {
        self.end(connection, cause);
        if let Some(session) = self.sessions.get_mut(&connection) {
            session.error_owed = (!session.gave_up).then_some(code);
        }
    }
}
