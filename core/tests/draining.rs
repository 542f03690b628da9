//! After an ERROR what the peer still sends is read away, so that no reset overtakes it: until the
//! peer is done, or 1 MiB, or 1 s, and never longer than the io-timeout.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::{Effect, Reading};
use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};

const MIB: usize = 1 << 20;

#[test]
fn the_peers_end_closes_at_once() {
    let (mut engine, peer) = draining(Duration::from_secs(5));
    assert_eq!(engine.reading(peer), Reading::Stream);
    engine.end_of_stream(peer, at(1));
    assert!(is_closed(&mut engine));
}

#[test]
fn a_mebibyte_is_read_away_and_no_more() {
    let (mut engine, peer) = draining(Duration::from_secs(5));
    engine.receive(peer, &vec![0x02; MIB - 1], at(1));
    assert!(!is_closed(&mut engine));
    engine.receive(peer, &[0x02], at(1));
    assert!(is_closed(&mut engine));
}

#[test]
fn a_second_is_waited_and_no_longer() {
    let (mut engine, peer) = draining(Duration::from_secs(5));
    engine.expire(at(999), usize::MAX);
    engine.receive(peer, &[0x02], at(999));
    assert!(!is_closed(&mut engine));
    engine.expire(at(1000), usize::MAX);
    assert!(is_closed(&mut engine));
}

#[test]
fn an_io_timeout_below_a_second_is_not_outlasted() {
    let (mut engine, _) = draining(Duration::from_millis(300));
    engine.expire(at(299), usize::MAX);
    assert!(!is_closed(&mut engine));
    engine.expire(at(300), usize::MAX);
    assert!(is_closed(&mut engine));
}

#[test]
fn what_is_read_away_is_neither_answered_nor_judged() {
    let (mut engine, peer) = draining(Duration::from_secs(5));
    engine.receive(peer, b"\x02\x01\x01\x00\xff", at(1));
    assert_eq!(engine.poll_effect(), None);
    assert_eq!(engine.poll_change(), None);
    assert_eq!(engine.counts().heartbeats, 0);
}

/// A peer that was sent its ERROR at 0 ms.
fn draining(io_timeout: Duration) -> (Engine, SessionId) {
    let config =
        EngineConfig { sessions_max: 1, io_timeout, lease_max_ms: None, hash_key: [0; 16] };
    let mut engine = Engine::new(config, Arc::new(TokenMint::new()));
    let address = PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], 52114)));
    let peer = engine.connect(address, at(0)).expect("there is room");
    engine.receive(peer, &[0x7f], at(0));
    assert_eq!(engine.poll_effect(), Some(Effect::Transmit(peer)));
    assert!(engine.transmit(peer, &mut [0; 300]) > 3);
    engine.sent(peer, at(0));
    assert_eq!(engine.poll_effect(), Some(Effect::ShutdownWrite(peer)));
    assert_eq!(engine.poll_effect(), None);
    (engine, peer)
}

fn is_closed(engine: &mut Engine) -> bool {
    matches!(engine.poll_effect(), Some(Effect::Close(_)))
}

fn at(ms: u32) -> Now {
    Now { instant: Instant::from_nanos(0).after_ms(ms), unix: UnixTime::new(1_786_190_400, 0) }
}
