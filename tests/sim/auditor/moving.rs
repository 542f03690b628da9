//! Connections that go to the shard of their lock.

use super::session::{Cause, Session, Standing, Whereabouts};
use super::{Auditor, LATE_MAX};
use crate::sim::invariants::{Invariant, Verdict};
use crate::sim::sighting::{Connection, Shard};

impl Auditor {
    pub(super) fn accepted(&mut self, connection: Connection, shard: Shard) -> Verdict {
        let unread = self.arrived_early.remove(&connection).unwrap_or(0);
        let session = Session { unread, ..Session::new(shard, self.now) };
        self.sessions.insert(connection, session);
        self.dealt.remove(&connection);
        if self.shut_down.contains_key(&shard) {
            self.end_with_error(connection, Cause::Shutdown, 0x01);
        }
        Ok(())
    }

    pub(super) fn waits_for_place(&mut self, connection: Connection) -> Verdict {
        let now = self.now;
        self.count("wait for a place");
        let session = self.known(connection)?;
        let Whereabouts::In(shard) = session.whereabouts else {
            return moves_wrongly(connection, session);
        };
        session.whereabouts = Whereabouts::HeldUpIn(shard, now);
        // It will not be told where it arrives, for it is told here and now.
        if let Some(code) = session.wrong_on_arrival.take() {
            self.count("client error of who waits for a place");
            self.end_with_error(connection, Cause::Wrong, code);
        }
        Ok(())
    }

    pub(super) fn leaves(&mut self, connection: Connection) -> Verdict {
        let now = self.now;
        let session = self.known(connection)?;
        let Some(shard) = session.whereabouts.shard() else {
            return moves_wrongly(connection, session);
        };
        // Who is over its lease gets no grant any more.
        let is_alive = session.is_alive() && now < session.heard + session.lease;
        let was_held_up = matches!(session.whereabouts, Whereabouts::HeldUpIn(..));
        session.whereabouts = Whereabouts::Leaving(shard);
        Invariant::MovesOnce.holds(is_alive || !was_held_up, || {
            format!("connection {connection} is let go when it is over")
        })
    }

    pub(super) fn departed(&mut self, connection: Connection) -> Verdict {
        let session = self.known(connection)?;
        let is_leaving = matches!(session.whereabouts, Whereabouts::Leaving(_));
        let is_first = !std::mem::replace(&mut session.has_moved, true);
        session.whereabouts = Whereabouts::UnderWay;
        let is_moving = session.standing == Standing::Moving && session.is_alive();
        Invariant::MovesOnce.holds(is_leaving && is_first && is_moving, || {
            format!("connection {connection} departs, again or without reason")
        })?;
        self.count("move");
        Ok(())
    }

    pub(super) fn adopted(&mut self, connection: Connection, shard: Shard) -> Verdict {
        let now = self.now;
        let is_shut_down = self.shut_down.contains_key(&shard);
        let session = self.known(connection)?;
        let lock = session.lock.clone();
        let is_under_way = session.whereabouts == Whereabouts::UnderWay;
        session.whereabouts = Whereabouts::In(shard);
        session.there_since = now;
        session.owed.iter_mut().for_each(|since| *since = now);
        let wrong = session.wrong_on_arrival.take();
        let is_home = self.home(&lock) == shard;
        Invariant::MovesOnce.holds(is_under_way && is_home, || {
            format!("connection {connection} claims {lock} and comes to shard {shard}")
        })?;
        if is_shut_down {
            self.count("shutdown of who moves");
            self.end_with_error(connection, Cause::Shutdown, 0x01);
            return Ok(());
        }
        let has_claimed = self.claims(connection);
        if let Some(code) = wrong.filter(|_| has_claimed) {
            self.count("client error of who moves");
            self.end_with_error(connection, Cause::Wrong, code);
        }
        Ok(())
    }

    /// Who is leaving is told where it arrives.
    pub(super) fn told_of_shutdown(&mut self, connection: Connection) -> Verdict {
        let session = self.known(connection)?;
        let is_leaving = matches!(session.whereabouts, Whereabouts::Leaving(_));
        if session.is_alive() && !is_leaving {
            self.end_with_error(connection, Cause::Shutdown, 0x01);
        }
        Ok(())
    }

    /// Since when a session should have been told that its shard ends.
    pub(super) fn shut_down_since(&self, session: &Session) -> Option<u64> {
        let is_to_be_told = session.is_alive()
            && matches!(session.whereabouts, Whereabouts::In(_) | Whereabouts::HeldUpIn(..));
        let shard = session.whereabouts.shard().filter(|_| is_to_be_told)?;
        self.shut_down.get(&shard).copied()
    }

    /// How many places each shard has for connections from others.
    pub(super) fn places_are_used(&mut self, places: &[u32]) -> Verdict {
        for (shard, &count) in places.iter().enumerate() {
            if count == 0 {
                self.with_places.remove(&shard);
            } else {
                self.with_places.entry(shard).or_insert(self.now);
            }
        }
        let running = self.running.unwrap_or(self.now);
        for (connection, session) in &self.sessions {
            let Whereabouts::HeldUpIn(_, since) = session.whereabouts else { continue };
            let home = self.home(&session.lock);
            let Some(&with_places) = self.with_places.get(&home) else { continue };
            let is_late = since.max(with_places).max(running) + LATE_MAX < self.now;
            Invariant::PlacesAreUsed.holds(!is_late || !session.is_alive(), || {
                format!("connection {connection} waits for a place in shard {home}, which has one")
            })?;
        }
        Ok(())
    }

    /// Nobody is on the way any more.
    pub(super) fn nobody_is_lost(&self) -> Verdict {
        let under_way = |session: &Session| session.whereabouts == Whereabouts::UnderWay;
        let moving = self.sessions.iter().filter(|(_, session)| under_way(session));
        let lost: Vec<&Connection> =
            self.dealt.iter().chain(moving.map(|(lost, _)| lost)).collect();
        Invariant::NobodyIsLost.holds(lost.is_empty(), || format!("connections {lost:?}"))
    }
}

fn moves_wrongly(connection: Connection, session: &Session) -> Verdict {
    let whereabouts = session.whereabouts;
    Invariant::MovesOnce
        .holds(false, || format!("connection {connection} is to move and is {whereabouts:?}"))
}
