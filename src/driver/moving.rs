//! Connections that go to another event loop, and those that come from one.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use monolock_core::engine::Departure;
use monolock_core::places::PlaceQueue;
use monolock_core::session::SessionId;
use monolock_core::shard_map::ShardNumber;
use monolock_ring::Errno;
use tracing::warn;

use super::{Driver, connection_of};
use crate::shards::Command;

/// What an event loop knows of places in others, and of others that want places in it.
pub(super) struct Moves {
    /// The loops in which connections wait for places here.
    wanted_here: PlaceQueue,
    /// Places in other loops for which there is no descriptor to go there with yet.
    kept_elsewhere: VecDeque<Place>,
}

/// A place in another event loop.
enum Place {
    /// For this session.
    Taken { session: SessionId, at: ShardNumber },
    /// For the session that has waited longest for one there.
    Offered { at: ShardNumber },
}

impl Moves {
    pub(super) fn new(shards: u32) -> Moves {
        Moves { wanted_here: PlaceQueue::new(shards), kept_elsewhere: VecDeque::new() }
    }
}

/// To another loop.
impl Driver {
    /// A session's lock belongs to another loop.
    pub(super) fn move_to(&mut self, session: SessionId, at: ShardNumber) {
        if !self.engine.is_to_move(session) {
            return;
        }
        if self.shard(at).places().take_for_move() {
            self.moves.kept_elsewhere.push_back(Place::Taken { session, at });
            self.send_off();
        } else {
            self.engine.wait_for_place(session, self.now);
            self.read(session);
            let count = self.engine.waiting_for(at);
            self.shard(at).tell(Command::PlacesWanted { from: self.number, count });
        }
    }

    /// A place in another loop is free, and connections that wait here go first.
    pub(super) fn use_place(&mut self, at: ShardNumber) {
        self.moves.kept_elsewhere.push_back(Place::Offered { at });
        self.send_off();
    }

    /// Lets those leave that have a place to go to, as far as there are descriptors for the way.
    pub(super) fn send_off(&mut self) {
        while !self.moves.kept_elsewhere.is_empty() && self.shard(self.number).begin_to_send() {
            let Some(place) = self.moves.kept_elsewhere.pop_front() else { return };
            let (leaving, at) = match place {
                Place::Taken { session, at } => {
                    let is_to_move = self.engine.is_to_move(session);
                    if is_to_move {
                        self.engine.leave(session);
                    }
                    (is_to_move.then_some(session), at)
                }
                Place::Offered { at } => (self.engine.leave_next(at, self.now), at),
            };
            match leaving {
                Some(session) => self.ring.detach(connection_of(session)),
                None => self.give_back_place(at),
            }
        }
    }

    /// A session that had a place in another loop is not going there.
    pub(super) fn give_back_place(&mut self, at: ShardNumber) {
        let still_wanted = self.engine.waiting_for(at);
        self.shard(at).tell(Command::PlaceReturned { from: self.number, still_wanted });
        self.shard(self.number).has_sent();
    }

    pub(super) fn send(&mut self, session: SessionId, socket: OwnedFd) {
        let departure = self.engine.depart(session);
        self.freed += 1;
        self.shard(departure.to).tell(Command::Adopt { socket, departure, from: self.number });
    }

    /// There was no descriptor although some are kept for this: the connection is closed, the
    /// server goes on.
    pub(super) fn fail_to_send(&mut self, session: SessionId, error: Errno) {
        warn!("cannot pass a connection on to its lock's event loop: {error}");
        self.engine.disconnected(session, self.now);
    }
}

/// From another loop.
impl Driver {
    pub(super) fn adopt(&mut self, socket: OwnedFd, departure: &Departure, from: ShardNumber) {
        let session = self.new_session(departure.peer);
        let attached = self.attach(session, socket);
        self.shard(from).has_sent();
        if attached {
            self.engine.adopt(session, departure, self.now);
            self.read(session);
        }
    }

    /// Connections in another loop wait for places here.
    pub(super) fn note_wanted(&mut self, from: ShardNumber, count: u32) {
        self.moves.wanted_here.set_waiting(from, count);
        // There may be places now that were not there when that loop looked.
        while !self.moves.wanted_here.is_empty() && self.shard(self.number).places().take_for_move()
        {
            self.keep_place();
        }
    }

    /// Keeps a place that is counted as taken for whoever waits for one.
    fn keep_place(&mut self) -> bool {
        let next = self.moves.wanted_here.pop();
        if let Some(shard) = next {
            self.shard(shard).tell(Command::PlaceKept { at: self.number });
        }
        next.is_some()
    }

    /// Places that have become free go to those who wait for them, before anybody else sees them.
    pub(super) fn keep_freed_places(&mut self) {
        while self.freed > 0 && self.keep_place() {
            self.freed -= 1;
        }
    }
}
