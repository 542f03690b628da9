//! Connections whose lock belongs to another event loop: what leaves an engine, what arrives in the
//! other one, and what becomes of those that have to wait for a place there.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::{Effect, Ownership, OwnershipChange, Reading, ReleaseReason};
use monolock_core::engine::{Departure, Engine, EngineConfig, OWED_MAX};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::{ShardMap, ShardNumber};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{ACQUIRED, Acquire, ERROR, HEARTBEAT, WAITING, encode_acquire};

const IO_TIMEOUT: Duration = Duration::from_millis(5000);
const LEASE_MS: u32 = 1000;
const HERE: ShardNumber = 0;
const THERE: ShardNumber = 1;

/// Two event loops, and names of locks of the second.
struct Server {
    here: Engine,
    there: Engine,
    names: Vec<String>,
    peers: u16,
}

impl Server {
    fn new() -> Server {
        let shard_map = ShardMap::new(NonZeroU32::new(2).expect("two"), [3; 16]);
        let config = EngineConfig {
            sessions_max: 100,
            io_timeout: IO_TIMEOUT,
            lease_max_ms: None,
            hash_key: [9; 16],
        };
        let mint = Arc::new(TokenMint::new());
        let engine = |shard| Engine::of_shard(shard, shard_map, config, Arc::clone(&mint));
        let names = (0..).map(|number| format!("lock {number}"));
        let names = names.filter(|name| shard_map.owner(name) == THERE).take(10).collect();
        Server { here: engine(HERE), there: engine(THERE), names, peers: 0 }
    }

    fn peer(&mut self) -> PeerAddress {
        self.peers += 1;
        PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], self.peers)))
    }

    /// Connects to the first loop and claims a lock of the second, with these bytes behind it.
    fn claim_here(&mut self, lock: usize, rest: &[u8], now: Now) -> SessionId {
        let peer = self.peer();
        let id = self.here.connect(peer, now).expect("there is room");
        let bytes = [&acquire(&self.names[lock]), rest].concat();
        self.here.receive(id, &bytes, now);
        id
    }

    /// The same, and moves it.
    fn claim(&mut self, lock: usize, rest: &[u8], now: Now) -> SessionId {
        let id = self.claim_here(lock, rest, now);
        assert_eq!(self.here.poll_effect(), Some(Effect::Move { session: id, to: THERE }));
        let departure = self.take_out(id);
        self.arrive(&departure, now)
    }

    fn take_out(&mut self, id: SessionId) -> Departure {
        self.here.leave(id);
        assert_eq!(self.here.reading(id), Reading::Off, "it is being taken out");
        self.here.depart(id)
    }

    fn arrive(&mut self, departure: &Departure, now: Now) -> SessionId {
        let id = self.there.connect(departure.peer, now).expect("there is room");
        self.there.adopt(id, departure, now);
        id
    }

    /// One that waits for a place there.
    fn wait(&mut self, lock: usize, rest: &[u8], now: Now) -> SessionId {
        let id = self.claim_here(lock, rest, now);
        assert_eq!(self.here.poll_effect(), Some(Effect::Move { session: id, to: THERE }));
        self.here.wait_for_place(id, now);
        id
    }
}

fn shut_down(engine: &mut Engine, now: Now) {
    engine.shut_down();
    assert_eq!(engine.tell_of_shutdown(0, u32::MAX, now), None);
}

fn acquire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let lease_ms = NonZeroU32::new(LEASE_MS).expect("not zero");
    encode_acquire(Acquire { lease_ms, name }, &mut bytes);
    bytes
}

fn at(ms: u32) -> Now {
    Now { instant: Instant::from_nanos(0).after_ms(ms), unix: UnixTime::new(1_786_190_400, 0) }
}

/// What a session is told now: the first byte of each frame.
fn told(engine: &mut Engine, id: SessionId, now: Now) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(effect) = engine.poll_effect() {
        let Effect::Transmit(to) = effect else { continue };
        let mut out = [0; 512];
        let len = engine.transmit(to, &mut out);
        if to == id {
            all.extend_from_slice(&out[..len]);
        }
        engine.sent(to, now);
    }
    let mut kinds = Vec::new();
    while let Some(&kind) = all.first() {
        let len = match kind {
            WAITING => 1,
            ACQUIRED => 9,
            ERROR => 3 + usize::from(all[2]),
            other => panic!("a frame of type {other}"),
        };
        kinds.push(if kind == ERROR { all[1] } else { kind });
        all.drain(..len);
    }
    kinds
}

fn changes(engine: &mut Engine) -> Vec<OwnershipChange> {
    std::iter::from_fn(|| engine.poll_change()).collect()
}

#[test]
fn a_claim_is_granted_where_its_lock_is_and_its_heartbeats_are_answered() {
    let mut server = Server::new();
    let id = server.claim(0, &[HEARTBEAT, HEARTBEAT], at(5));
    assert_eq!(told(&mut server.there, id, at(5)), [ACQUIRED; 3]);
    assert_eq!(server.there.reading(id), Reading::Stream);
    let [grant] = &changes(&mut server.there)[..] else { panic!("one grant") };
    assert_eq!(*grant.lock, *server.names[0]);
    assert_eq!(server.there.lock(&server.names[0]).expect("held").waiters_len(), 0);
    assert_eq!((server.here.sessions(), server.there.sessions()), (0, 1));
    assert_eq!(server.here.counts().connections, 0);
    assert_eq!(server.there.counts().heartbeats, 2);
    assert_eq!(server.there.counts().connections_unclaimed, 0);
    assert_eq!(server.here.wake_at(at(10_000)), None);
}

#[test]
fn who_arrives_first_is_first_in_the_queue_and_tokens_rise_over_all_loops() {
    let mut server = Server::new();
    let first = server.claim_here(0, &[], at(0));
    let second = server.claim_here(0, &[], at(1));
    let second = server.take_out(second);
    let first = server.take_out(first);
    let second = server.arrive(&second, at(2));
    let first = server.arrive(&first, at(2));
    assert_eq!(told(&mut server.there, first, at(2)), [WAITING]);
    server.there.disconnected(second, at(3));
    assert_eq!(told(&mut server.there, first, at(3)), [ACQUIRED]);
    let own = server.here.connect(server_peer(), at(4)).expect("there is room");
    let own_name = (0..).map(|number| format!("own {number}"));
    let own_name = own_name.into_iter().find(|name| !belongs_there(name)).expect("half of them");
    server.here.receive(own, &acquire(&own_name), at(4));
    let tokens = changes(&mut server.there).into_iter().chain(changes(&mut server.here));
    let granted = |change: &OwnershipChange| matches!(change.what, Ownership::Granted { .. });
    let tokens: Vec<_> = tokens.filter(granted).map(|change| change.token).collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

fn server_peer() -> PeerAddress {
    PeerAddress::from(SocketAddr::from(([10, 0, 0, 6], 1)))
}

fn belongs_there(name: &str) -> bool {
    let shard_map = ShardMap::new(NonZeroU32::new(2).expect("two"), [3; 16]);
    shard_map.owner(name) == THERE
}

#[test]
fn a_wrong_byte_behind_the_claim_is_told_after_the_answers_that_are_owed() {
    for (rest, code) in [(&[HEARTBEAT, 0x07, HEARTBEAT][..], 0x13), (&[HEARTBEAT, 0x01], 0x12)] {
        let mut server = Server::new();
        let id = server.claim(0, rest, at(0));
        assert_eq!(told(&mut server.there, id, at(0)), [ACQUIRED, ACQUIRED, code]);
        let [_, released] = &changes(&mut server.there)[..] else { panic!("granted, released") };
        let Ownership::Released { reason, .. } = released.what else { panic!("{released:?}") };
        assert_eq!(reason, ReleaseReason::ProtocolError);
    }
}

#[test]
fn what_comes_while_it_leaves_goes_along() {
    let mut server = Server::new();
    let id = server.wait(0, &[HEARTBEAT], at(0));
    assert_eq!(server.here.leave_next(THERE, at(100)), Some(id));
    // Reads that were under way.
    server.here.receive(id, &[HEARTBEAT, HEARTBEAT], at(100));
    server.here.receive(id, &[HEARTBEAT, 0x07], at(100));
    server.here.receive(id, &[HEARTBEAT], at(100));
    server.here.silent(id, at(100));
    let departure = server.here.depart(id);
    assert_eq!((departure.heartbeats, departure.wrong_byte), (4, Some(0x07)));
    let id = server.arrive(&departure, at(101));
    assert_eq!(told(&mut server.there, id, at(101)), [&[ACQUIRED; 5][..], &[0x13]].concat());
}

#[test]
fn the_lease_goes_on_from_the_last_message_and_the_wait_from_the_first() {
    let mut server = Server::new();
    let id = server.wait(0, &[], at(0));
    server.here.receive(id, &[HEARTBEAT], at(600));
    assert_eq!(server.here.leave_next(THERE, at(1500)), Some(id));
    let departure = server.here.depart(id);
    let id = server.arrive(&departure, at(1550));
    assert_eq!(server.there.wake_at(at(1590)), Some(at(1600).instant));
    let [grant] = &changes(&mut server.there)[..] else { panic!("one grant") };
    assert_eq!(grant.what, Ownership::Granted { wait: Duration::from_millis(1550) });
    // Even if it is over on arrival, what is there to be read counts.
    assert_eq!(told(&mut server.there, id, at(1550)), [ACQUIRED; 2]);
    server.there.expire(at(1600), usize::MAX);
    assert_eq!(server.there.poll_effect(), Some(Effect::Probe(id)));
    server.there.receive(id, &[HEARTBEAT], at(1601));
    assert_eq!(server.there.wake_at(at(2590)), Some(at(2601).instant));
}

#[test]
fn who_waits_for_a_place_is_read_once_at_a_time_and_ends_at_its_lease_without_a_word() {
    let mut server = Server::new();
    let id = server.claim_here(0, &[], at(0));
    assert_eq!(server.here.reading(id), Reading::Off, "it may leave at once");
    assert!(server.here.is_to_move(id));
    server.here.wait_for_place(id, at(0));
    assert_eq!((server.here.reading(id), server.here.waiting_for(THERE)), (Reading::Once, 1));
    server.here.receive(id, &[HEARTBEAT], at(500));
    server.here.expire(at(1499), usize::MAX);
    assert_eq!(told(&mut server.here, id, at(1499)), []);
    server.here.expire(at(1500), usize::MAX);
    assert_eq!(server.here.poll_effect(), Some(Effect::Probe(id)));
    assert_eq!(server.here.leave_next(THERE, at(1500)), None, "its lease has passed");
    server.here.silent(id, at(1500));
    assert_eq!(server.here.poll_effect(), Some(Effect::Close(id)));
    server.here.forget(id);
    assert_eq!((server.here.sessions(), server.here.waiting_for(THERE)), (0, 0));
    assert_eq!(server.here.counts().first_frame_timeouts, 0);
    assert_eq!(server.here.counts().connections, 0);
    assert_eq!(server.here.poll_change(), None);
}

#[test]
fn a_heartbeat_that_a_probe_finds_keeps_who_waits_where_it_was() {
    let mut server = Server::new();
    let first = server.wait(0, &[], at(0));
    let second = server.wait(0, &[], at(500));
    server.here.expire(at(1000), usize::MAX);
    assert_eq!(server.here.poll_effect(), Some(Effect::Probe(first)));
    server.here.receive(first, &[HEARTBEAT], at(1001));
    assert_eq!(server.here.leave_next(THERE, at(1002)), Some(first));
    assert_eq!(server.here.leave_next(THERE, at(1002)), Some(second));
    assert_eq!(server.here.leave_next(THERE, at(1002)), None);
}

#[test]
fn who_waits_for_a_place_leaves_by_closing() {
    let mut server = Server::new();
    for leave in [Engine::end_of_stream, Engine::disconnected, Engine::unreachable] {
        let id = server.wait(0, &[HEARTBEAT], at(0));
        leave(&mut server.here, id, at(1));
        assert_eq!(server.here.poll_effect(), Some(Effect::Close(id)));
        server.here.forget(id);
        assert_eq!(server.here.waiting_for(THERE), 0);
    }
    assert_eq!(server.here.counts().connections_unclaimed, 0);
}

#[test]
fn a_wrong_byte_of_who_waits_for_a_place_is_told_at_once() {
    let mut server = Server::new();
    let with_its_claim = server.wait(0, &[HEARTBEAT, 0x07], at(0));
    assert_eq!(told(&mut server.here, with_its_claim, at(0)), [0x13]);
    let later = server.wait(0, &[HEARTBEAT], at(0));
    server.here.receive(later, &[HEARTBEAT, 0x01], at(1));
    assert_eq!(told(&mut server.here, later, at(1)), [0x12]);
    assert_eq!(server.here.waiting_for(THERE), 0);
    assert!(!server.here.is_to_move(later));
}

#[test]
fn a_flood_of_heartbeats_of_who_waits_is_not_read_beyond_a_bound() {
    let mut server = Server::new();
    let id = server.wait(0, &[], at(0));
    let most = OWED_MAX as usize;
    server.here.receive(id, &vec![HEARTBEAT; most - 1], at(1));
    assert_eq!(server.here.reading(id), Reading::Once);
    server.here.receive(id, &[HEARTBEAT], at(2));
    assert_eq!(server.here.reading(id), Reading::Off);
    // It is not lost by that: it goes when there is a place.
    assert_eq!(server.here.leave_next(THERE, at(3)), Some(id));
    let departure = server.here.depart(id);
    let id = server.arrive(&departure, at(3));
    assert_eq!(server.there.reading(id), Reading::Off, "until it has its answers");
    assert_eq!(told(&mut server.there, id, at(3)).len(), most + 1);
    assert_eq!(server.there.reading(id), Reading::Stream);
}

#[test]
fn who_ends_while_it_leaves_gives_its_place_back() {
    let mut server = Server::new();
    for end in [Engine::end_of_stream, Engine::disconnected, Engine::unreachable] {
        let id = server.wait(0, &[], at(0));
        assert_eq!(server.here.leave_next(THERE, at(1)), Some(id));
        end(&mut server.here, id, at(1));
        assert_eq!(server.here.poll_effect(), Some(Effect::GiveBackPlace { at: THERE }));
        assert_eq!(server.here.poll_effect(), Some(Effect::Close(id)));
        server.here.forget(id);
    }
    assert_eq!(server.here.sessions(), 0);
}

#[test]
fn no_deadline_passes_while_a_session_leaves() {
    let mut server = Server::new();
    let id = server.wait(0, &[], at(0));
    assert_eq!(server.here.leave_next(THERE, at(1)), Some(id));
    server.here.expire(at(100_000), usize::MAX);
    assert_eq!(server.here.poll_effect(), None);
    let departure = server.here.depart(id);
    let id = server.arrive(&departure, at(100_000));
    told(&mut server.there, id, at(100_000));
    server.there.expire(at(100_000), usize::MAX);
    assert_eq!(server.there.poll_effect(), Some(Effect::Probe(id)), "it does where it arrives");
}

#[test]
fn a_shutdown_tells_everybody_wherever_it_is_and_nothing_is_granted_any_more() {
    let mut server = Server::new();
    let holder = server.claim(0, &[], at(0));
    let waiter = server.claim(0, &[], at(0));
    told(&mut server.there, waiter, at(0));
    changes(&mut server.there);
    let waits = server.wait(1, &[HEARTBEAT], at(0));
    let leaves_for_a_free_lock = server.wait(2, &[HEARTBEAT], at(0));
    let leaves_for_a_held_lock = server.wait(0, &[HEARTBEAT], at(0));
    let leavers = [leaves_for_a_free_lock, leaves_for_a_held_lock];
    leavers.iter().for_each(|&id| server.here.leave(id));

    shut_down(&mut server.here, at(1));
    assert_eq!(told(&mut server.here, waits, at(1)), [0x01]);
    assert_eq!(server.here.waiting_for(THERE), 0);
    let [free, held] = leavers.map(|id| server.here.depart(id));

    // The other loop has not been told yet.
    let free = server.arrive(&free, at(1));
    assert_eq!(told(&mut server.there, free, at(1)), [0x01], "its lock is free");
    let held = server.arrive(&held, at(1));
    assert_eq!(told(&mut server.there, held, at(1)), [WAITING; 2]);
    server.there.disconnected(holder, at(1));
    assert_eq!(told(&mut server.there, waiter, at(1)), [], "nobody is promoted");
    let lock = server.there.lock(&server.names[0]).expect("there are waiters");
    assert_eq!((lock.holder(), lock.waiters_len()), (None, 2));

    shut_down(&mut server.there, at(2));
    let [one_released] = &changes(&mut server.there)[..] else { panic!("nothing is granted") };
    assert!(matches!(one_released.what, Ownership::Released { .. }));
    assert_eq!(server.there.counts().waiters, 0);
    assert!(server.there.lock(&server.names[0]).is_none());
}

#[test]
fn who_arrives_after_the_shutdown_is_told() {
    let mut server = Server::new();
    let id = server.claim_here(0, &[HEARTBEAT], at(0));
    server.here.poll_effect();
    let departure = server.take_out(id);
    shut_down(&mut server.there, at(1));
    let id = server.arrive(&departure, at(1));
    assert_eq!(told(&mut server.there, id, at(1)), [0x01]);
    assert_eq!(server.there.poll_change(), None);
}
