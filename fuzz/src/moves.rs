//! Connections that move between the event loops of one server: the bytes are a program of what
//! happens to them, and of when each loop's messages reach the others.
//!
//! What one loop tells another arrives in order, as through its inbox; whose message arrives first
//! is the program's choice.

mod event_loop;
mod rest;
mod turn;

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::engine::Engine;
use monolock_core::fencing::{Token, TokenMint};
use monolock_core::places::Places;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::{ShardMap, ShardNumber};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::HEARTBEAT;

use self::event_loop::{EventLoop, Letter, Message};
use crate::peer::{self, Peer};

/// Few places, so that loops are full; more than one, as the last one is only for the acceptor.
const PLACES_MIN: u32 = 3;
const LOCKS_A_SHARD: usize = 2;

/// Runs the program, and ends every session that it leaves.
pub fn run(bytes: &[u8]) {
    let mut program = bytes.iter().copied();
    let mut next = || program.next().unwrap_or_default();
    let mut server = Server::new(2 + u32::from(next() % 3), PLACES_MIN + u32::from(next() % 6));
    while let Some(step) = program.next() {
        server.take(step, &mut program);
        // With the highest bit nobody looks yet: more happens in the same turn.
        if step < 0x80 {
            server.look();
        }
    }
    server.settle();
    server.check_rest();
    server.end();
}

/// The loops, and what is between them.
struct Server {
    loops: Vec<EventLoop>,
    places: Vec<Places>,
    shard_map: ShardMap,
    names: Vec<String>,
    now: Now,
    /// Under way: by who tells, and whom. The last row is the acceptor's.
    mail: Vec<VecDeque<Message>>,
    claims: Vec<Claim>,
    port: u16,
    tokens: HashSet<Token>,
}

/// A connection, wherever it is.
struct Claim {
    address: PeerAddress,
    /// Which loop has it, and how that one knows it; none if it is under way to one.
    at: Option<(ShardNumber, Peer)>,
    has_moved: bool,
    /// The lock's name, once it has asked for one.
    lock: Option<String>,
    /// Messages that want an answer.
    asked: u32,
    /// It has sent something else, or bytes that nobody counts.
    is_spoilt: bool,
}

impl Claim {
    fn is_open(&self) -> bool {
        self.at.as_ref().is_some_and(|(_, peer)| !peer.is_closed)
    }

    /// The loop and the connection, while something can still come of it.
    fn open(&mut self) -> Option<(ShardNumber, &mut Peer)> {
        let (shard, peer) = self.at.as_mut()?;
        (!peer.is_closed).then_some((*shard, peer))
    }
}

impl Server {
    fn new(shards: u32, places: u32) -> Server {
        let count = NonZeroU32::new(shards).expect("at least two");
        let shard_map = ShardMap::new(count, [3; 16]);
        let mint = Arc::new(TokenMint::new());
        let event_loop = |number| EventLoop::new(number, shard_map, places, &mint);
        let names_of = |shard: ShardNumber| {
            let names = (0..).map(|number| format!("lock {number}"));
            names.filter(move |name| shard_map.owner(name) == shard).take(LOCKS_A_SHARD)
        };
        Server {
            loops: (0..shards).map(event_loop).collect(),
            places: (0..shards).map(|_| Places::new(places)).collect(),
            shard_map,
            names: (0..shards).flat_map(names_of).collect(),
            now: Now { instant: Instant::from_nanos(1), unix: UnixTime::new(1_800_000_000, 0) },
            mail: (0..(shards + 1) * shards).map(|_| VecDeque::new()).collect(),
            claims: Vec::new(),
            port: 0,
            tokens: HashSet::new(),
        }
    }

    fn take(&mut self, step: u8, program: &mut impl Iterator<Item = u8>) {
        let mut next = || program.next().unwrap_or_default();
        match step & 0x7f {
            0..14 => self.accept(next()),
            14..34 => self.claim(next(), next(), next()),
            34..44 => self.heartbeat(next(), next()),
            44..48 => {
                let (who, len) = (next(), next() % 16);
                let bytes: Vec<u8> = (0..len).map(|_| next()).collect();
                self.spoil(who, &bytes);
            }
            48..72 => drop(self.deliver(next())),
            72..80 => drop(self.finish_leaving(next())),
            80..83 => self.fail_to_leave(next()),
            83..88 => self.end_of(next(), Engine::end_of_stream),
            88..92 => self.end_of(next(), Engine::disconnected),
            92..94 => self.end_of(next(), Engine::unreachable),
            94..102 => self.finish_send(next()),
            102..106 => self.block_send(next()),
            106..116 => self.pass_time(next(), next()),
            116..124 => self.forget(next()),
            124..126 => self.answer_probes(),
            // Rare, as little is left to happen after it.
            126.. if next().is_multiple_of(4) => self.shut_down(),
            126.. => {}
        }
    }

    fn accept(&mut self, to: u8) {
        let to = u32::from(to) % self.shard_map.shards();
        let places = &self.places[to as usize];
        if !places.has_room() {
            return;
        }
        places.take_for_new();
        self.port += 1;
        let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], self.port)));
        let claim =
            Claim { address, at: None, has_moved: false, lock: None, asked: 0, is_spoilt: false };
        self.claims.push(claim);
        let acceptor = self.shard_map.shards().get();
        let message = Message::Connection { peer: address };
        self.post(Letter { from: acceptor, to, message });
    }

    fn post(&mut self, letter: Letter) {
        let Letter { from, to, message } = letter;
        self.mail[(from * self.shard_map.shards().get() + to) as usize].push_back(message);
    }

    /// One of the connections of whom something can still come.
    fn open(&mut self, who: u8) -> Option<&mut Claim> {
        let count = self.claims.iter().filter(|claim| claim.is_open()).count();
        let place = usize::from(who).checked_rem(count)?;
        self.claims.iter_mut().filter(|claim| claim.is_open()).nth(place)
    }

    fn claim(&mut self, who: u8, what: u8, heartbeats: u8) {
        let name = self.names[usize::from(what) % self.names.len()].clone();
        let lease = usize::from(what) / self.names.len();
        let heartbeats = u32::from(heartbeats % 4);
        let Some(claim) = self.open(who) else { return };
        claim.is_spoilt |= claim.lock.is_some();
        claim.lock.get_or_insert_with(|| name.clone());
        claim.asked += 1 + heartbeats;
        let mut bytes = peer::acquire(&name, lease);
        bytes.extend((0..heartbeats).map(|_| HEARTBEAT));
        let address = claim.address;
        self.receive(address, &bytes);
    }

    fn heartbeat(&mut self, who: u8, count: u8) {
        let Some(claim) = self.open(who) else { return };
        claim.is_spoilt |= claim.lock.is_none();
        let count = u32::from(count % 8);
        claim.asked += count;
        let address = claim.address;
        let bytes: Vec<u8> = (0..count).map(|_| HEARTBEAT).collect();
        self.receive(address, &bytes);
    }

    fn spoil(&mut self, who: u8, bytes: &[u8]) {
        let Some(claim) = self.open(who) else { return };
        claim.is_spoilt = true;
        let address = claim.address;
        self.receive(address, bytes);
    }

    fn receive(&mut self, address: PeerAddress, bytes: &[u8]) {
        let Server { claims, loops, now, .. } = self;
        let claim = claims.iter_mut().find(|claim| claim.address == address);
        let claim = claim.expect("it is there");
        let Some((shard, peer)) = claim.open() else { return };
        if bytes.is_empty() || peer.at_end {
            claim.is_spoilt = true;
            return;
        }
        peer.is_probed = false;
        loops[shard as usize].engine.receive(peer.id, bytes, *now);
    }

    fn end_of(&mut self, who: u8, report: fn(&mut Engine, SessionId, Now)) {
        let Some((shard, peer)) = self.open(who).and_then(Claim::open) else { return };
        peer.at_end = true;
        peer.is_probed = false;
        let id = peer.id;
        let event_loop = &mut self.loops[shard as usize];
        // Where the stream has ended is where the connection ends.
        event_loop.leaving.retain(|&leaving| leaving != id);
        report(&mut event_loop.engine, id, self.now);
    }

    fn finish_send(&mut self, who: u8) {
        let Some((shard, peer)) = self.open(who).and_then(Claim::open) else { return };
        if std::mem::take(&mut peer.is_sending) {
            let id = peer.id;
            self.loops[shard as usize].engine.sent(id, self.now);
        }
    }

    fn block_send(&mut self, who: u8) {
        let Some((shard, peer)) = self.open(who).and_then(Claim::open) else { return };
        if peer.is_sending {
            let id = peer.id;
            self.loops[shard as usize].engine.send_blocked(id, self.now);
        }
    }

    fn pass_time(&mut self, time: u8, limit: u8) {
        let millis = u64::from(time) * u64::from(time) / 16;
        self.now.instant = self.now.instant.after(Duration::from_millis(millis));
        for event_loop in &mut self.loops {
            event_loop.engine.expire(self.now, usize::from(limit % 4));
        }
    }

    /// Whoever was to be read once more has sent nothing.
    fn answer_probes(&mut self) {
        let Server { claims, loops, now, .. } = self;
        for (shard, peer) in claims.iter_mut().filter_map(Claim::open) {
            if std::mem::take(&mut peer.is_probed) {
                loops[shard as usize].engine.silent(peer.id, *now);
            }
        }
    }

    fn shut_down(&mut self) {
        let acceptor = self.shard_map.shards().get();
        for to in 0..acceptor {
            self.post(Letter { from: acceptor, to, message: Message::ShutDown });
        }
    }

    fn forget(&mut self, who: u8) {
        let is_closed = |claim: &Claim| claim.at.as_ref().is_some_and(|(_, peer)| peer.is_closed);
        let closed: Vec<usize> =
            (0..self.claims.len()).filter(|&place| is_closed(&self.claims[place])).collect();
        let Some(place) = usize::from(who).checked_rem(closed.len()) else { return };
        let claim = self.claims.remove(closed[place]);
        let (shard, peer) = claim.at.expect("it was closed by somebody");
        assert_eq!(self.loops[shard as usize].forget(peer.id), claim.address);
    }
}
