//! Names and their locks as they are seen through the engine: found, walked over, forgotten.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::Effect;
use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{Acquire, encode_acquire};
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: Now = Now { instant: Instant::from_nanos(0), unix: UnixTime::new(1_786_190_400, 0) };

/// More than the table takes before it grows.
const MANY: u32 = 40_000;

fn engine(sessions_max: u32) -> Engine {
    let config = EngineConfig {
        sessions_max,
        io_timeout: Duration::from_secs(5),
        lease_max_ms: None,
        hash_key: *b"0123456789abcdef",
    };
    Engine::new(config, Arc::new(TokenMint::new()))
}

fn acquire(engine: &mut Engine, name: &str) -> SessionId {
    let peer = PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], 7)));
    let id = engine.connect(peer, NOW).expect("there is room");
    let lease_ms = NonZeroU32::new(1000).expect("not zero");
    let mut bytes = Vec::new();
    encode_acquire(Acquire { lease_ms, name }, &mut bytes);
    engine.receive(id, &bytes, NOW);
    id
}

/// Ends a session as a driver does.
fn leave(engine: &mut Engine, id: SessionId) {
    engine.disconnected(id, NOW);
    while let Some(effect) = engine.poll_effect() {
        if effect == Effect::Close(id) {
            engine.forget(id);
        }
    }
}

/// The names that a walk sees, in slices of `limit`.
fn walk(engine: &Engine, limit: u32) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (views, next) = engine.locks_from(place, limit);
        let before = names.len();
        names.extend(views.map(|view| view.name().to_string()));
        assert!(names.len() - before <= limit as usize, "no slice is longer than asked for");
        from = next;
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Names that differ in a byte, in case or in a blank are different locks.
    #[test]
    fn every_name_is_a_lock_of_its_own(names in vec("[aA b\u{e9}]{1,3}|x{20,30}", 1..40)) {
        let different: BTreeSet<&String> = names.iter().collect();
        let mut engine = engine(40);
        let sessions: Vec<SessionId> =
            names.iter().map(|name| acquire(&mut engine, name)).collect();
        prop_assert_eq!(engine.counts().locks_held, different.len() as u64);
        for name in &different {
            let claims = names.iter().filter(|other| other == name).count();
            let lock = engine.lock(name).expect("it is held");
            prop_assert_eq!(lock.name(), name.as_str());
            prop_assert_eq!(lock.waiters_len() as usize + 1, claims);
            let first = names.iter().position(|other| other == *name).expect("it is a name");
            prop_assert_eq!(lock.holder().expect("it is held").session, sessions[first]);
        }
        for id in sessions {
            leave(&mut engine, id);
        }
        prop_assert_eq!(walk(&engine, 7), Vec::<String>::new());
        let forgotten = names.iter().all(|name| engine.lock(name).is_none());
        prop_assert!(forgotten, "idle locks cost nothing");
    }

    #[test]
    fn a_walk_sees_every_lock_once_whatever_its_slices(
        claims in vec((0..30u8, any::<bool>()), 0..60),
        limit in 1..40u32,
    ) {
        let mut engine = engine(60);
        let mut expected = BTreeSet::new();
        for (number, leaves) in claims {
            let name = format!("lock/{number}");
            let id = acquire(&mut engine, &name);
            if leaves {
                leave(&mut engine, id);
            } else {
                expected.insert(name);
            }
        }
        let mut seen = walk(&engine, limit);
        seen.sort_unstable();
        prop_assert!(seen.iter().eq(&expected), "{:?} instead of {:?}", seen, expected);
    }
}

#[test]
fn locks_are_still_found_after_the_table_has_grown() {
    let mut engine = engine(MANY);
    let name = |number: u32| format!("a rather long name of a lock/{number}");
    let sessions: Vec<SessionId> = (0..MANY).map(|n| acquire(&mut engine, &name(n))).collect();
    assert_eq!(engine.counts().locks_held, u64::from(MANY));
    for (number, &session) in (0..MANY).zip(&sessions) {
        let lock = engine.lock(&name(number)).expect("it is held");
        assert_eq!(lock.holder().expect("it is held").session, session);
    }
    let seen: BTreeSet<String> = walk(&engine, 1000).into_iter().collect();
    assert_eq!(seen.len(), MANY as usize);
}

#[test]
fn what_is_there_during_a_whole_walk_is_seen_though_others_come_and_go() {
    let mut engine = engine(60);
    let name = |number: u32| format!("lock/{number}");
    let sessions: Vec<SessionId> = (0..30).map(|n| acquire(&mut engine, &name(n))).collect();
    let (mut seen, mut from, mut slices) = (Vec::new(), Some(0), 0);
    while let Some(place) = from {
        let (views, next) = engine.locks_from(place, 4);
        seen.extend(views.map(|view| view.name().to_string()));
        // Even numbers stay; odd ones go while the walk is under way, and new ones come.
        if let Some(&id) = sessions.get(slices * 2 + 1) {
            leave(&mut engine, id);
            acquire(&mut engine, &format!("new/{slices}"));
        }
        (from, slices) = (next, slices + 1);
    }
    for number in (0..30).step_by(2) {
        let times = seen.iter().filter(|&other| *other == name(number)).count();
        assert_eq!(times, 1, "{}", name(number));
    }
}
