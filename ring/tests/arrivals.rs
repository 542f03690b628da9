//! When bytes arrived, and rests that nothing ends early.

mod loopback;

use std::net::Shutdown;
use std::time::{Duration, Instant, SystemTime};

use loopback::{DEADLINE, Loopback, SMALL, Seen, received, wait_unread, write};
use monolock_ring::{Config, Reading};

fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().expect("a clock that is set")
}

#[test]
fn bytes_are_stamped_as_they_arrive_and_not_as_they_are_read() {
    let mut net = Loopback::new(&SMALL);
    net.ring.stamp_arrivals();
    let (socket, peer) = net.pair();
    let witness = socket.try_clone().expect("a second number");
    let id = net.attach(1, socket);
    net.ring.read(id, Reading::Stream);
    let deadline = Instant::now() + DEADLINE;
    // The kernel begins to stamp some time after it is asked to for the first time.
    let (before, arrived_at, after) = loop {
        let before = since_1970();
        write(&peer, b"bytes");
        wait_unread(&witness);
        let after = since_1970();
        let mut arrived_at = None;
        let seen = net.until(|ring, event| {
            arrived_at = ring.arrived_at();
            matches!(event, Seen::Received(..))
        });
        assert_eq!(received(&seen, id), b"bytes");
        if let Some(arrived_at) = arrived_at {
            break (before, arrived_at, after);
        }
        assert!(Instant::now() < deadline, "no stamp");
    };
    assert!((before..=after).contains(&arrived_at), "{before:?} {arrived_at:?} {after:?}");
}

#[test]
fn with_stamps_a_long_stream_is_whole_and_has_an_end() {
    let mut net = Loopback::new(&SMALL);
    net.ring.stamp_arrivals();
    let (id, peer) = net.connect(1);
    net.ring.read(id, Reading::Stream);
    // More than the buffers hold at once, in pieces that don't fit into one.
    let sent: Vec<u8> = (0..100_u8).cycle().take(1000).collect();
    sent.chunks(50).for_each(|part| write(&peer, part));
    peer.shutdown(Shutdown::Write).expect("shutdown");
    let seen = net.until_seen(&Seen::EndOfStream(id));
    assert_eq!(received(&seen, id), sent);
    net.close(id);
}

#[test]
fn a_rest_lasts_though_something_happens_and_then_hands_it_out() {
    const REST: Duration = Duration::from_millis(50);
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(1);
    net.ring.read(id, Reading::Stream);
    net.settle();
    write(&peer, b"early");
    let start = Instant::now();
    net.ring.rest(REST).expect("a rest");
    assert!(start.elapsed() >= REST, "{:?}", start.elapsed());
    let event = net.next_seen();
    assert_eq!(event, Some(Seen::Received(id, b"early".to_vec())));
}

#[test]
fn a_rest_ends_when_half_of_the_completions_are_there() {
    let config = Config { buffers: 64, ..SMALL };
    let mut net = Loopback::new(&config);
    let (_, peers) = net.streams(config.completions / 2);
    net.settle();
    peers.iter().for_each(|peer| write(peer, b"x"));
    let start = Instant::now();
    net.ring.rest(DEADLINE).expect("a rest");
    assert!(start.elapsed() < DEADLINE);
    for _ in &peers {
        let event = net.next_seen();
        assert!(matches!(event, Some(Seen::Received(..))), "{event:?}");
    }
}
