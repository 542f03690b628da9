//! Closing: what the peer sees, and that a slot's next user has nothing to do with the last.

mod loopback;

use std::os::fd::OwnedFd;

use loopback::{Loopback, SMALL, Seen, bytes, read_exactly, read_to_end, write};
use monolock_ring::{Config, ConnectionId, Reading};

#[test]
fn a_close_ends_the_stream_under_an_armed_receive() {
    let mut net = Loopback::new(&SMALL);
    // An older connection that stays: it must not hold the newer one's socket open.
    let (older, _older_peer) = net.connect(0);
    net.ring.read(older, Reading::Stream);
    for reading in [Reading::Off, Reading::Once, Reading::Stream] {
        let (id, peer) = net.connect(1);
        net.ring.read(id, reading);
        net.settle();
        assert_eq!(net.close(id), [Seen::Closed(id)], "{reading:?}");
        assert_eq!(read_to_end(&peer), b"");
    }
    assert_eq!(net.ring.connections(), 1);
}

#[test]
fn a_close_right_after_the_read_ends_too() {
    let mut net = Loopback::new(&SMALL);
    for reading in [Reading::Once, Reading::Stream] {
        let (id, peer) = net.connect(0);
        net.ring.read(id, reading);
        net.ring.probe(id);
        assert_eq!(net.close(id), [Seen::Closed(id)], "{reading:?}");
        assert_eq!(read_to_end(&peer), b"");
    }
}

#[test]
fn no_event_follows_the_call_of_close() {
    let mut net = Loopback::new(&SMALL);
    for _ in 0..50 {
        let (id, peer) = net.connect(0);
        net.ring.read(id, Reading::Stream);
        write(&peer, b"unread");
        net.ring.probe(id);
        net.ring.send(id, bytes(b"sent"));
        net.ring.shutdown_write(id);
        // Reaped but not handed out.
        net.ring.wait(None).expect("wait");
        net.ring.close(id);
        net.ring.close(id);
        assert_eq!(net.until_seen(&Seen::Closed(id)), [Seen::Closed(id)]);
        net.ring.close(id);
        assert_eq!(net.settle(), []);
        assert_eq!(net.ring.sends_in_flight(), 0);
    }
}

#[test]
fn a_slots_next_user_never_sees_what_the_last_one_left() {
    let config = Config { slots: 4, buffers: 2, ..SMALL };
    let mut net = Loopback::new(&config);
    for round in 0..300_u32 {
        let index = round % 4;
        let (old, old_peer) = net.connect(index);
        net.ring.read(old, if round % 3 == 0 { Reading::Once } else { Reading::Stream });
        if round % 2 == 0 {
            net.ring.wait(Some(std::time::Duration::ZERO)).expect("wait");
        }
        write(&old_peer, b"old");
        if round % 5 == 0 {
            drop(old_peer);
        }
        net.close(old);

        let (new, new_peer) = net.connect(index);
        assert_ne!(new.generation, old.generation);
        net.ring.read(new, Reading::Stream);
        write(&new_peer, b"new");
        let seen = net.until_seen(&Seen::Received(new, b"new".to_vec()));
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(net.close(new), [Seen::Closed(new)]);
    }
}

#[test]
fn many_connections_come_and_go_and_leave_nothing() {
    const ROUNDS: u32 = 2500;
    // With a single buffer a lost one would be the end of all reading.
    let config = Config { slots: 4, buffers: 1, ..SMALL };
    let mut net = Loopback::new(&config);
    for round in 0..ROUNDS {
        let pairs: Vec<_> = (0..4).map(|index| net.connect(index)).collect();
        for (id, peer) in &pairs {
            net.ring.read(*id, Reading::Stream);
            write(peer, b"hello");
        }
        if round % 2 == 0 {
            for (id, _) in &pairs {
                net.ring.send(*id, bytes(b"welcome"));
            }
            net.ring.wait(None).expect("wait");
        }
        for (id, _) in &pairs {
            net.ring.close(*id);
        }
        let mut left = pairs.len();
        net.until(|_, event| {
            left -= usize::from(matches!(event, Seen::Closed(_)));
            left == 0
        });
    }
    assert_eq!(net.ring.connections(), 0);
    assert_eq!(net.ring.sends_in_flight(), 0);
    // Other tests of this process have a few.
    assert!(descriptors_open() < 200, "10,000 sockets were numbered, and some still are");
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    write(&peer, b"still there?");
    net.until_seen(&Seen::Received(id, b"still there?".to_vec()));
    net.ring.send(id, bytes(b"yes"));
    net.until_seen(&Seen::Sent(id));
    assert_eq!(read_exactly(&peer, 3), b"yes");
}

fn descriptors_open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

#[test]
fn a_starved_connection_closes() {
    let config = Config { slots: 8, buffers: 1, ..SMALL };
    let mut net = Loopback::new(&config);
    let (ids, peers) = net.streams(8);
    peers.iter().for_each(|peer| write(peer, b"data"));
    net.ring.wait(None).expect("wait");
    ids.iter().for_each(|id| net.ring.close(*id));
    let mut left = ids.len();
    net.until(|_, event| {
        assert!(matches!(event, Seen::Closed(_)), "{event:?}");
        left -= 1;
        left == 0
    });
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    write(&peer, b"next");
    net.until_seen(&Seen::Received(id, b"next".to_vec()));
}

#[test]
fn a_dropped_ring_ends_all_streams() {
    let mut net = Loopback::new(&SMALL);
    let (_ids, peers) = net.streams(8);
    net.settle();
    drop(net);
    peers.iter().for_each(|peer| assert_eq!(read_to_end(peer), b""));
}

#[test]
#[should_panic(expected = "on the slot of")]
fn an_occupied_slot_is_refused() {
    let mut net = Loopback::new(&SMALL);
    let (id, _peer) = net.connect(0);
    let (socket, _other) = net.pair();
    let next = ConnectionId { index: 0, generation: id.generation + 1 };
    let _ = net.ring.attach(next, OwnedFd::from(socket));
}

#[test]
#[should_panic(expected = "in a ring of 64 slots")]
fn a_slot_beyond_the_table_is_refused() {
    let mut net = Loopback::new(&SMALL);
    net.connect(64);
}

#[test]
#[should_panic(expected = "is used after its close")]
fn a_closed_connection_is_not_to_be_used() {
    let mut net = Loopback::new(&SMALL);
    let (id, _peer) = net.connect(0);
    net.ring.close(id);
    net.ring.read(id, Reading::Stream);
}
