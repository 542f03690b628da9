//! One event loop of several: an engine, places, and its half of every move.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::Effect;
use monolock_core::engine::{Departure, Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::places::{PlaceQueue, Places};
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::{ShardMap, ShardNumber};
use monolock_core::time::Now;

use crate::engine::invariants::Ledger;

/// Connections that may be on their way from one loop at a time: few, so that others wait for it.
const LEAVING_MAX: u32 = 2;

/// What one loop is told by another one, or by the acceptor.
pub(super) enum Message {
    Connection { peer: PeerAddress },
    Adopt { departure: Departure, from: ShardNumber },
    PlacesWanted { from: ShardNumber, count: u32 },
    PlaceKept { at: ShardNumber },
    PlaceReturned { from: ShardNumber, still_wanted: u32 },
    ShutDown,
}

/// Who tells whom what.
pub(super) struct Letter {
    pub(super) from: ShardNumber,
    pub(super) to: ShardNumber,
    pub(super) message: Message,
}

/// A place in another loop.
enum Place {
    Taken { session: SessionId, at: ShardNumber },
    Offered { at: ShardNumber },
}

/// See the module.
pub(super) struct EventLoop {
    pub(super) number: ShardNumber,
    pub(super) engine: Engine,
    pub(super) ledger: Ledger,
    wanted_here: PlaceQueue,
    kept_elsewhere: VecDeque<Place>,
    may_leave: u32,
    /// Places that are given back at the end of the turn.
    freed: u32,
    /// Sessions whose sockets are being taken out of the ring.
    pub(super) leaving: VecDeque<SessionId>,
    /// What it has to tell others, in order.
    pub(super) outbox: Vec<Letter>,
    /// Sessions at this place and behind it have not been told of the shutdown.
    telling_from: Option<u32>,
}

impl EventLoop {
    pub(super) fn new(
        number: ShardNumber,
        shard_map: ShardMap,
        sessions_max: u32,
        mint: &Arc<TokenMint>,
    ) -> EventLoop {
        let config = EngineConfig {
            sessions_max,
            io_timeout: Duration::from_millis(500),
            lease_max_ms: None,
            hash_key: [7; 16],
        };
        EventLoop {
            number,
            engine: Engine::of_shard(number, shard_map, config, Arc::clone(mint)),
            ledger: Ledger::default(),
            wanted_here: PlaceQueue::new(shard_map.shards().get()),
            kept_elsewhere: VecDeque::new(),
            may_leave: LEAVING_MAX,
            freed: 0,
            leaving: VecDeque::new(),
            outbox: Vec::new(),
            telling_from: None,
        }
    }

    fn tell(&mut self, to: ShardNumber, message: Message) {
        self.outbox.push(Letter { from: self.number, to, message });
    }

    /// A connection for which a place was taken.
    pub(super) fn connect(&mut self, peer: PeerAddress, now: Now) -> SessionId {
        self.engine.connect(peer, now).expect("a place was taken for it")
    }

    /// What the engine asks of the loop, and not for a connection.
    pub(super) fn carry_out(&mut self, effect: Effect, now: Now, places: &[Places]) {
        match effect {
            Effect::Move { session, to } => self.move_to(session, to, now, places),
            Effect::GiveBackPlace { at } => {
                self.give_back_place(at);
                self.send_off(now);
            }
            _ => unreachable!("that is for a connection"),
        }
    }

    fn move_to(&mut self, session: SessionId, at: ShardNumber, now: Now, places: &[Places]) {
        if !self.engine.is_to_move(session) {
            return;
        }
        if places[at as usize].take_for_move() {
            self.kept_elsewhere.push_back(Place::Taken { session, at });
            self.send_off(now);
        } else {
            self.engine.wait_for_place(session, now);
            let count = self.engine.waiting_for(at);
            self.tell(at, Message::PlacesWanted { from: self.number, count });
        }
    }

    pub(super) fn use_place(&mut self, at: ShardNumber, now: Now) {
        self.kept_elsewhere.push_back(Place::Offered { at });
        self.send_off(now);
    }

    fn send_off(&mut self, now: Now) {
        while self.may_leave > 0
            && let Some(place) = self.kept_elsewhere.pop_front()
        {
            self.may_leave -= 1;
            let (leaving, at) = match place {
                Place::Taken { session, at } => {
                    let leaving = self.engine.is_to_move(session).then_some(session);
                    leaving.inspect(|&session| self.engine.leave(session));
                    (leaving, at)
                }
                Place::Offered { at } => (self.engine.leave_next(at, now), at),
            };
            match leaving {
                Some(session) => self.leaving.push_back(session),
                None => self.give_back_place(at),
            }
        }
    }

    fn give_back_place(&mut self, at: ShardNumber) {
        let still_wanted = self.engine.waiting_for(at);
        self.tell(at, Message::PlaceReturned { from: self.number, still_wanted });
        self.may_leave += 1;
    }

    /// A connection that it has sent has arrived.
    pub(super) fn has_sent(&mut self, now: Now) {
        self.may_leave += 1;
        self.send_off(now);
    }

    /// A socket is out of the ring.
    pub(super) fn depart(&mut self, session: SessionId) {
        let departure = self.engine.depart(session);
        self.freed += 1;
        self.tell(departure.to, Message::Adopt { departure, from: self.number });
    }

    /// A connection is closed, and its place may be used again.
    pub(super) fn forget(&mut self, session: SessionId) -> PeerAddress {
        self.freed += 1;
        self.engine.forget(session)
    }

    pub(super) fn note_returned(&mut self, from: ShardNumber, still_wanted: u32, of: &Places) {
        self.freed += 1;
        self.note_wanted(from, still_wanted, of);
    }

    pub(super) fn note_wanted(&mut self, from: ShardNumber, count: u32, places: &Places) {
        self.wanted_here.set_waiting(from, count);
        while !self.wanted_here.is_empty() && places.take_for_move() {
            self.keep_place();
        }
    }

    fn keep_place(&mut self) -> bool {
        let next = self.wanted_here.pop();
        if let Some(shard) = next {
            self.tell(shard, Message::PlaceKept { at: self.number });
        }
        next.is_some()
    }

    pub(super) fn shut_down(&mut self) {
        self.engine.shut_down();
        self.telling_from = Some(0);
    }

    /// Tells one session of the shutdown, if it is not told yet.
    pub(super) fn tell_of_shutdown(&mut self, now: Now) {
        if let Some(from) = self.telling_from {
            self.telling_from = self.engine.tell_of_shutdown(from, 1, now);
        }
    }

    /// The end of a turn: places that have become free go to who waits for them.
    pub(super) fn publish(&mut self, places: &Places) {
        while self.freed > 0 && self.keep_place() {
            self.freed -= 1;
        }
        let counts = self.engine.counts();
        let claimed = counts.connections - counts.connections_unclaimed;
        let freed = std::mem::take(&mut self.freed);
        places.publish(freed, u32::try_from(claimed).expect("no more than places"));
    }

    /// Whether nothing is under way from here.
    pub(super) fn is_at_rest(&self) -> bool {
        self.leaving.is_empty() && self.kept_elsewhere.is_empty() && self.may_leave == LEAVING_MAX
    }
}
