//! A session whose answers are stuck has two limits, its lease and the io-timeout, and the one that
//! comes first ends it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::{Effect, Ownership, ReleaseReason};
use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};

const IO_TIMEOUT: Duration = Duration::from_millis(5000);
const ACQUIRE_WITH_ONE_SECOND: &[u8] = b"\x01\x01\x00\x00\x03\xe8\x00\x01a";
const ACQUIRE_WITH_ONE_MINUTE: &[u8] = b"\x01\x01\x00\x00\xea\x60\x00\x01a";
const HEARTBEAT: &[u8] = b"\x02";

#[test]
fn a_heartbeat_that_is_read_while_answers_are_stuck_restarts_the_lease() {
    let (mut engine, holder) = blocked(ACQUIRE_WITH_ONE_SECOND);
    engine.receive(holder, HEARTBEAT, at(400));
    assert_eq!(engine.wake_at(at(1390)), Some(at(1400).instant));
    assert_eq!(expired(&mut engine, at(1399)), None);
    assert_eq!(expired(&mut engine, at(1400)), Some(ReleaseReason::Expired));
}

#[test]
fn heartbeats_do_not_put_off_the_end_of_a_stuck_write() {
    let (mut engine, holder) = blocked(ACQUIRE_WITH_ONE_SECOND);
    for tenth in 1..50 {
        engine.receive(holder, HEARTBEAT, at(tenth * 100));
        assert_eq!(expired(&mut engine, at(tenth * 100)), None);
    }
    assert_eq!(engine.wake_at(at(4990)), Some(at(5000).instant));
    assert_eq!(expired(&mut engine, at(5000)), Some(ReleaseReason::IoTimeout));
}

#[test]
fn the_limit_that_came_first_is_the_reason_however_late_it_is_seen() {
    let (mut engine, _) = blocked(ACQUIRE_WITH_ONE_MINUTE);
    assert_eq!(expired(&mut engine, at(90_000)), Some(ReleaseReason::IoTimeout));
    let (mut engine, _) = blocked(ACQUIRE_WITH_ONE_SECOND);
    assert_eq!(expired(&mut engine, at(90_000)), Some(ReleaseReason::Expired));
}

#[test]
fn each_stuck_write_has_the_whole_io_timeout() {
    let (mut engine, holder) = blocked(ACQUIRE_WITH_ONE_MINUTE);
    engine.sent(holder, at(4999));
    engine.receive(holder, HEARTBEAT, at(4999));
    block(&mut engine, holder, at(5000));
    assert_eq!(expired(&mut engine, at(9999)), None);
    assert_eq!(expired(&mut engine, at(10_000)), Some(ReleaseReason::IoTimeout));
}

/// A holder at 0 ms, whose ACQUIRED is stuck from then on.
fn blocked(acquire: &[u8]) -> (Engine, SessionId) {
    let config = EngineConfig {
        sessions_max: 1,
        io_timeout: IO_TIMEOUT,
        lease_max_ms: None,
        hash_key: [0; 16],
    };
    let mut engine = Engine::new(config, Arc::new(TokenMint::new()));
    let peer = PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], 52114)));
    let holder = engine.connect(peer, at(0)).expect("there is room");
    engine.receive(holder, acquire, at(0));
    block(&mut engine, holder, at(0));
    (engine, holder)
}

fn block(engine: &mut Engine, id: SessionId, now: Now) {
    assert_eq!(engine.poll_effect(), Some(Effect::Transmit(id)));
    assert_eq!(engine.transmit(id, &mut [0; 300]), 9);
    engine.send_blocked(id, now);
    while engine.poll_change().is_some() {}
}

/// Why the holder's lock is free now, if it is.
fn expired(engine: &mut Engine, now: Now) -> Option<ReleaseReason> {
    engine.expire(now, usize::MAX);
    match engine.poll_change()?.what {
        Ownership::Released { reason, .. } => Some(reason),
        Ownership::Granted { .. } => panic!("nobody else is there"),
    }
}

fn at(ms: u32) -> Now {
    Now { instant: Instant::from_nanos(0).after_ms(ms), unix: UnixTime::new(1_786_190_400, 0) }
}
