//! What an administrator sees and does: slices of queues and sessions, kicks, emptying a server.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::{Effect, Ownership};
use monolock_core::engine::{Engine, EngineConfig, NoSuchWaiter};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::snapshot::{ClaimView, QueueCursor, SessionState};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{Acquire, encode_acquire};

const LOCK: &str = "lock";
const SLICE: usize = 4;

fn engine() -> Engine {
    let config = EngineConfig {
        sessions_max: 1000,
        io_timeout: Duration::from_secs(5),
        lease_max_ms: None,
        hash_key: *b"0123456789abcdef",
    };
    Engine::new(config, Arc::new(TokenMint::new()))
}

fn at(ms: u64) -> Now {
    Now { instant: Instant::from_nanos(ms * 1_000_000), unix: UnixTime::new(1_786_190_400, 0) }
}

fn peer(number: u16) -> PeerAddress {
    SocketAddr::from(([10, 0, 0, 5], number)).into()
}

fn acquire(engine: &mut Engine, name: &str, number: u16, now: Now) -> SessionId {
    let id = engine.connect(peer(number), now).expect("there is room");
    let lease_ms = NonZeroU32::new(60_000).expect("not zero");
    let mut bytes = Vec::new();
    encode_acquire(Acquire { lease_ms, name }, &mut bytes);
    engine.receive(id, &bytes, now);
    id
}

/// A holder, and so many behind it, each a millisecond after the one before.
fn queue(waiters: u16) -> (Engine, SessionId, Vec<SessionId>) {
    let mut engine = engine();
    let holder = acquire(&mut engine, LOCK, 1, at(0));
    let waiters = (1..=waiters)
        .map(|number| acquire(&mut engine, LOCK, 1 + number, at(number.into())))
        .collect();
    (engine, holder, waiters)
}

fn leave(engine: &mut Engine, id: SessionId) {
    engine.disconnected(id, at(5000));
    while let Some(effect) = engine.poll_effect() {
        if effect == Effect::Close(id) {
            engine.forget(id);
        }
    }
}

fn slice(engine: &Engine, cursor: &mut QueueCursor) -> (Vec<SessionId>, bool) {
    let lock = engine.lock(LOCK).expect("it is held");
    let (waiters, is_at_end) = lock.waiters_behind(cursor, SLICE);
    (waiters.iter().map(|waiter: &ClaimView| waiter.session).collect(), is_at_end)
}

fn rest(engine: &Engine, cursor: &mut QueueCursor) -> Vec<SessionId> {
    let mut all = Vec::new();
    loop {
        let (waiters, is_at_end) = slice(engine, cursor);
        all.extend(waiters);
        if is_at_end {
            return all;
        }
    }
}

#[test]
fn slices_together_are_the_queue() {
    for count in [0, 1, 3, 4, 5, 8, 30] {
        let (engine, _, waiters) = queue(count);
        assert_eq!(rest(&engine, &mut QueueCursor::default()), waiters);
    }
}

#[test]
fn who_leaves_between_two_slices_takes_nobody_with_it() {
    let (mut engine, _, waiters) = queue(12);
    let mut cursor = QueueCursor::default();
    assert_eq!(slice(&engine, &mut cursor).0, waiters[..4]);
    leave(&mut engine, waiters[3]);
    leave(&mut engine, waiters[4]);
    assert_eq!(rest(&engine, &mut cursor), waiters[5..]);
}

#[test]
fn a_whole_slice_may_leave_from_the_front_or_from_the_middle() {
    let (mut engine, _, waiters) = queue(30);
    let mut cursor = QueueCursor::default();
    slice(&engine, &mut cursor);
    waiters[..4].iter().for_each(|&waiter| leave(&mut engine, waiter));
    assert_eq!(slice(&engine, &mut cursor).0, waiters[4..8], "they were the front");
    slice(&engine, &mut cursor);
    waiters[8..12].iter().for_each(|&waiter| leave(&mut engine, waiter));
    assert_eq!(rest(&engine, &mut cursor), waiters[12..], "others are still before them");
}

#[test]
fn a_place_that_is_used_again_is_not_the_waiter_that_had_it() {
    let (mut engine, holder, waiters) = queue(1);
    leave(&mut engine, waiters[0]);
    let other = acquire(&mut engine, "other", 7, at(10));
    assert_eq!(other.index, waiters[0].index);
    assert_eq!(engine.kick_session(LOCK, waiters[0], at(11)), Err(NoSuchWaiter));
    assert_eq!(engine.kick_session(LOCK, other, at(11)), Err(NoSuchWaiter));
    assert_eq!(engine.kick_session(LOCK, holder, at(11)), Err(NoSuchWaiter), "it holds the lock");
    let waiter = acquire(&mut engine, LOCK, 8, at(12));
    assert_eq!(engine.kick_session("other", waiter, at(13)), Err(NoSuchWaiter));
    assert_eq!(engine.kick_session(LOCK, waiter, at(13)), Ok(()));
    assert_eq!(engine.kick_session(LOCK, waiter, at(14)), Err(NoSuchWaiter), "only once");
    assert_eq!(engine.counts().waiters, 0);
}

#[test]
fn sessions_are_seen_as_far_as_they_have_come() {
    let (mut engine, _, _) = queue(1);
    engine.connect(peer(9), at(20)).expect("there is room");
    let ended = acquire(&mut engine, LOCK, 10, at(21));
    engine.kick_session(LOCK, ended, at(22)).expect("it waits");
    let mut seen = Vec::new();
    let mut from = Some(0);
    while let Some(place) = from {
        let (views, next) = engine.sessions_from(place, 2);
        seen.extend(views.map(|view| {
            (
                view.peer,
                view.state,
                view.lock.as_ref().map(ToString::to_string),
                view.token.is_some(),
            )
        }));
        from = next;
    }
    let lock = Some(LOCK.to_owned());
    assert_eq!(
        seen,
        [
            (peer(1), SessionState::Acquired, lock.clone(), true),
            (peer(2), SessionState::Waiting, lock, false),
            (peer(9), SessionState::Connected, None, false),
        ],
        "who is told its end is none any more"
    );
}

#[test]
fn nothing_is_granted_once_that_was_stopped_and_holders_keep_what_they_have() {
    let (mut engine, holder, waiters) = queue(1);
    while engine.poll_change().is_some() {}
    engine.stop_granting();
    let late = acquire(&mut engine, "free", 20, at(100));
    let later = acquire(&mut engine, "free", 21, at(101));
    assert_eq!(engine.counts().waiters, 3);
    let free = engine.lock("free").expect("somebody waits for it");
    assert_eq!(free.holder(), None);
    let waiting: Vec<SessionId> = free.waiters().map(|waiter| waiter.session).collect();
    assert_eq!(waiting, [late, later]);
    engine.receive(holder, &[0x02], at(200));
    assert_eq!(engine.counts().locks_held, 1);
    leave(&mut engine, holder);
    let change = engine.poll_change().expect("the release");
    assert!(matches!(change.what, Ownership::Released { .. }));
    assert_eq!(engine.poll_change(), None, "nobody is promoted");
    assert_eq!((engine.counts().locks_held, engine.counts().waiters), (0, 3));
    for waiter in [waiters[0], late, later] {
        leave(&mut engine, waiter);
    }
    assert!(engine.lock("free").is_none() && engine.lock(LOCK).is_none(), "idle is forgotten");
}

#[test]
fn once_granting_is_resumed_each_lock_goes_to_who_has_waited_longest() {
    let (mut engine, holder, waiters) = queue(2);
    engine.stop_granting();
    let names: Vec<String> = (0..10).map(|number| format!("free {number}")).collect();
    let first: Vec<SessionId> = (20..)
        .zip(&names)
        .map(|(number, name)| acquire(&mut engine, name, number, at(100)))
        .collect();
    leave(&mut engine, holder);
    while engine.poll_change().is_some() {}
    assert_eq!(engine.promote_waiters(0, u32::MAX, at(200)), None);
    assert_eq!(engine.poll_change(), None, "not before it is resumed");

    engine.resume_granting();
    let behind = acquire(&mut engine, &names[0], 50, at(300));
    let fresh = acquire(&mut engine, "fresh", 51, at(300));
    let holder_of = |engine: &Engine, name: &str| {
        engine.lock(name).expect("it is claimed").holder().map(|holder| holder.session)
    };
    assert_eq!(holder_of(&engine, "fresh"), Some(fresh), "what is new is granted at once");
    assert_eq!(holder_of(&engine, &names[0]), None, "nobody overtakes who waited before");
    let mut from = Some(0);
    while let Some(place) = from {
        from = engine.promote_waiters(place, 3, at(300));
    }
    assert_eq!(holder_of(&engine, LOCK), Some(waiters[0]));
    for (name, first) in names.iter().zip(&first) {
        assert_eq!(holder_of(&engine, name), Some(*first));
    }
    assert_eq!((engine.counts().locks_held, engine.counts().waiters), (12, 2));
    leave(&mut engine, first[0]);
    assert_eq!(holder_of(&engine, &names[0]), Some(behind));
    let tokens: Vec<u64> = std::iter::from_fn(|| engine.poll_change())
        .filter(|change| matches!(change.what, Ownership::Granted { .. }))
        .map(|change| change.token.get())
        .collect();
    assert!(tokens.len() == 13 && tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}
