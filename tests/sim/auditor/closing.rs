//! Why a connection may be closed, and not before when.

use super::session::{Cause, Standing};
use super::{Auditor, DRAIN_MAX, DRAINED_MAX};
use crate::sim::invariants::{Invariant, Verdict};
use crate::sim::sighting::Connection;

impl Auditor {
    pub(super) fn closed(&mut self, connection: Connection) -> Verdict {
        let (now, io_timeout) = (self.now, self.io_timeout());
        let session = self.known(connection)?;
        match session.ended {
            None => self.closed_silently(connection)?,
            Some((_, Cause::Left)) if session.stuck.is_none() => {
                let owed = session.owed.len();
                Invariant::EverythingIsAnswered.holds(owed == 0, || {
                    format!("connection {connection} is closed with {owed} answers owed")
                })?;
            }
            Some((_, Cause::Left | Cause::Lost | Cause::Expired | Cause::Stuck)) => {}
            Some((ended, Cause::Wrong | Cause::Administrator | Cause::Shutdown)) => {
                let too_late = ended + io_timeout <= now;
                let case = || format!("connection {connection} is closed {} ns", now - ended);
                let can_be_told = !session.gave_up && !too_late;
                Invariant::ErrorsAreSent
                    .holds(session.error_owed.is_none() || !can_be_told, || {
                        format!("{} after its end without its ERROR", case())
                    })?;
                let is_flood = session.drained >= DRAINED_MAX;
                let waited = DRAIN_MAX.min(io_timeout);
                let is_drained = session.hung_up
                    || session.drained >= DRAINED_MAX
                    || (session.stuck.is_none() && session.taken + waited <= now);
                Invariant::DrainedBeforeClose
                    .holds(is_drained || session.gave_up || too_late, || {
                        format!("{} after its end", case())
                    })?;
                self.count(if is_flood { "flood" } else { "told and drained" });
            }
        }
        self.forget(connection);
        Ok(())
    }

    /// Nothing was seen that would have ended it: then it has been silent, or stuck.
    fn closed_silently(&mut self, connection: Connection) -> Verdict {
        let (now, io_timeout) = (self.now, self.io_timeout());
        let session = self.known(connection)?;
        let is_holder = matches!(session.standing, Standing::Holding(_));
        Invariant::ReleasedAtOnce
            .holds(!is_holder, || format!("connection {connection} is closed and not released"))?;
        if session.stuck_too_long(io_timeout, now) {
            self.count("stuck waiter");
            self.end(connection, Cause::Stuck);
            return Ok(());
        }
        let event = match session.standing {
            Standing::Connected => "first frame too late",
            Standing::Moving => "silent while it waits for a place",
            Standing::Waiting | Standing::Holding(_) => "silent waiter",
        };
        self.count(event);
        self.was_silent(connection)?;
        self.end(connection, Cause::Expired);
        Ok(())
    }

    /// Its lease, or the time for its first frame, has passed, and nothing of it is there.
    pub(super) fn was_silent(&mut self, connection: Connection) -> Verdict {
        let (now, io_timeout) = (self.now, self.io_timeout());
        let session = self.known(connection)?;
        let deadline = session.deadline(io_timeout);
        Invariant::NeverEarly.holds(deadline <= now, || {
            format!("connection {connection} had {} ns more", deadline - now)
        })?;
        let is_read = session.stuck.is_none() && !session.gave_up;
        // An unfinished first frame is closed alike whether its end was seen or not.
        let end_counts = session.end_unread && session.standing != Standing::Connected;
        let unread = session.unread + usize::from(end_counts);
        Invariant::WhatWasThereCounts.holds(unread == 0 || !is_read, || {
            format!("{unread} bytes of connection {connection} were there")
        })
    }

    /// The client may still read what is on its way to it.
    fn forget(&mut self, connection: Connection) {
        if let Some(session) = self.sessions.remove(&connection)
            && !session.to_client.is_empty()
        {
            self.departed.insert(connection, session);
        }
    }
}
