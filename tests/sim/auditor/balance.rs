//! What must be true whenever the server comes to rest, and when all is over.

use std::collections::BTreeSet;

use super::session::{Session, Standing, Whereabouts};
use super::{Auditor, DRAIN_MAX, LATE_MAX, WAY_MAX};
use crate::sim::invariants::{Invariant, Verdict};
use crate::sim::sighting::{Gauges, Remains};

impl Auditor {
    pub(super) fn turn_ends(&mut self, gauges: Gauges, places: &[u32]) -> Verdict {
        for connection in std::mem::take(&mut self.passed_over) {
            let is_over = self.sessions.get(&connection).is_none_or(|session| !session.is_alive());
            Invariant::FirstInFirstOut.holds(is_over, || {
                format!("connection {connection} was passed over in its queue")
            })?;
        }
        for (name, lock) in &self.locks {
            let is_wanted = lock.next.is_some() || !lock.waiters.is_empty();
            let is_pushed = lock.holder.is_some() || !is_wanted;
            Invariant::PushedAtOnce.holds(is_pushed || self.is_shutting_down(), || {
                format!("{name} is free, and {:?} wait for it", lock.waiters)
            })?;
            if let Some(holder) = lock.holder {
                let is_over = self.sessions.get(&holder).is_none_or(|session| !session.is_alive());
                Invariant::ReleasedAtOnce.holds(!is_over, || {
                    format!("connection {holder} is over and still holds {name}")
                })?;
            }
        }
        let seen = self.gauges();
        Invariant::GaugesAreTrue
            .holds(gauges == seen, || format!("{gauges:?} instead of {seen:?}"))?;
        self.places_are_used(places)?;
        self.nobody_is_late()
    }

    fn gauges(&self) -> Gauges {
        let is_counted =
            |session: &&Session| session.is_alive() && session.whereabouts != Whereabouts::UnderWay;
        let alive = || self.sessions.values().filter(is_counted);
        let has_no_claim =
            |session: &&Session| matches!(session.standing, Standing::Connected | Standing::Moving);
        Gauges {
            connections: alive().count(),
            unclaimed: alive().filter(has_no_claim).count(),
            locks_held: self.locks.values().filter(|lock| lock.holder.is_some()).count(),
            waiters: self.locks.values().map(|lock| lock.waiters.len()).sum(),
        }
    }

    /// What is due is done soon, by a server that runs.
    pub(super) fn nobody_is_late(&self) -> Verdict {
        let Some(running) = self.running else { return Ok(()) };
        let io_timeout = self.io_timeout();
        let is_late = |due: u64| due.max(running).saturating_add(LATE_MAX) < self.now;
        for (connection, session) in &self.sessions {
            // A server that was stopped learns late that a write is stuck, or that all is sent.
            let over = match (session.ended, session.stuck) {
                (None, None) => session.deadline(io_timeout),
                (None, Some(since)) => {
                    session.deadline(io_timeout).min(since.max(running) + io_timeout)
                }
                (Some(_), None) if session.error_submitted => {
                    session.taken.max(running) + DRAIN_MAX.min(io_timeout)
                }
                (Some((ended, _)), _) => ended + io_timeout,
            };
            let way = if session.whereabouts.is_on_the_way() { WAY_MAX } else { 0 };
            let over = over.max(session.there_since).max(running).saturating_add(way);
            Invariant::NoneIsImmortal.holds(!is_late(over), || {
                format!("connection {connection} should be over since {over} ns")
            })?;
            let shut_down = self.shut_down_since(session).unwrap_or(u64::MAX);
            Invariant::EverybodyIsToldOfShutdown
                .holds(!is_late(shut_down), || format!("connection {connection} was not told"))?;
            if session.stuck.is_none() && !session.gave_up {
                // Who moves is answered where it arrives.
                let owed = session.standing != Standing::Moving;
                let asked = session.owed.front().copied().unwrap_or(u64::MAX);
                Invariant::EverythingIsAnswered
                    .holds(!owed || !is_late(asked.max(session.taken)), || {
                        format!("connection {connection} has no answer since {asked} ns")
                    })?;
                let ended = session.ended.map_or(u64::MAX, |(ended, _)| ended);
                let is_owed = session.error_owed.is_some();
                Invariant::ErrorsAreSent
                    .holds(!is_owed || !is_late(ended.max(session.taken)), || {
                        format!("connection {connection} has no ERROR since {ended} ns")
                    })?;
            }
        }
        Ok(())
    }

    pub(super) fn at_rest(&mut self, remains: Remains) -> Verdict {
        self.nobody_is_lost()?;
        self.now = u64::MAX;
        self.nobody_is_late()?;
        let held: BTreeSet<&String> = self
            .locks
            .iter()
            .filter(|(_, lock)| lock.holder.is_some() || !lock.waiters.is_empty())
            .map(|(name, _)| name)
            .collect();
        let is_empty = remains == Remains::default() && held.is_empty();
        Invariant::NothingStays.holds(is_empty, || format!("{remains:?}, {held:?}"))
    }
}
