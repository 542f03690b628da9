//! Sending: order, blocked peers, shutdown, failures.

mod loopback;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use loopback::{DEADLINE, Loopback, SMALL, Seen, bytes, read_exactly, read_to_end, write};
use monolock_ring::{ConnectionId, Event, Reading, SEND_LEN};
use socket2::SockRef;

/// The `n`th full send.
fn part(n: usize) -> Vec<u8> {
    (0..SEND_LEN).map(|position| (n * 7 + position * 13).to_le_bytes()[0]).collect()
}

/// Sends to a peer that doesn't read until a send is blocked. Returns how many are sent, that one
/// included.
fn send_until_blocked(net: &mut Loopback, id: ConnectionId) -> usize {
    net.ring.send(id, bytes(&part(0)));
    let mut sends = 1;
    net.until(|ring, event| match event {
        Seen::Sent(_) => {
            ring.send(id, bytes(&part(sends)));
            sends += 1;
            false
        }
        event => {
            assert_eq!(*event, Seen::SendBlocked(id));
            true
        }
    });
    sends
}

fn blocked(net: &mut Loopback, index: u32) -> (ConnectionId, TcpStream, usize) {
    let (socket, peer) = net.narrow_pair();
    // Whether a socket is non-blocking makes no difference.
    socket.set_nonblocking(index == 1).expect("fcntl");
    let id = net.attach(index, socket);
    let sends = send_until_blocked(net, id);
    (id, peer, sends)
}

#[test]
fn a_blocked_send_is_told_once_and_done_when_the_peer_reads() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer, sends) = blocked(&mut net, 0);
    assert!(sends > 2, "the first ones fit");
    assert!(net.ring.is_sending(id));
    for _ in 0..10 {
        net.ring.wait(Some(Duration::ZERO)).expect("wait");
        assert_eq!(net.ring.next_event(), None);
    }
    let reader = std::thread::spawn(move || {
        for n in 0..sends {
            assert_eq!(read_exactly(&peer, SEND_LEN), part(n), "send {n}");
        }
        peer
    });
    assert_eq!(net.until_seen(&Seen::Sent(id)), [Seen::Sent(id)]);
    assert!(!net.ring.is_sending(id));
    reader.join().expect("every byte came");
    assert_eq!(net.ring.sends_in_flight(), 0);
}

#[test]
fn a_stuck_send_is_told_though_nothing_else_ever_happens() {
    const LONG: Duration = Duration::from_secs(120);
    let mut net = Loopback::new(&SMALL);
    let (socket, _silent_peer) = net.narrow_pair();
    let id = net.attach(0, socket);
    net.ring.send(id, bytes(&part(0)));
    let begun = Instant::now();
    loop {
        net.ring.wait(Some(LONG)).expect("wait");
        match net.ring.next_event() {
            Some(Event::SendBlocked { .. }) => break,
            Some(Event::Sent { .. }) => net.ring.send(id, bytes(&part(1))),
            None => {}
            Some(event) => panic!("{event:?}"),
        }
    }
    assert!(begun.elapsed() < LONG, "it was not told only when the wait was over");
}

#[test]
fn a_blocked_connection_holds_up_no_other() {
    let mut net = Loopback::new(&SMALL);
    let (stuck, _silent_peer, _) = blocked(&mut net, 0);
    let (id, peer) = net.connect(1);
    for n in 0..100 {
        net.ring.send(id, bytes(&part(n)));
        assert_eq!(net.until_seen(&Seen::Sent(id)), [Seen::Sent(id)]);
        assert_eq!(read_exactly(&peer, SEND_LEN), part(n));
    }
    assert!(net.ring.is_sending(stuck));
    assert_eq!(net.ring.sends_in_flight(), 1);
}

#[test]
fn closing_ends_a_blocked_send() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer, sends) = blocked(&mut net, 0);
    assert_eq!(net.close(id), [Seen::Closed(id)]);
    assert_eq!(net.ring.sends_in_flight(), 0);
    assert_eq!(net.ring.connections(), 0);
    let all: Vec<u8> = (0..sends).flat_map(part).collect();
    let got = read_to_end(&peer);
    assert!(all.starts_with(&got), "a peer never gets bytes that weren't sent in that order");
}

#[test]
fn closing_lets_a_send_go_that_needs_not_wait() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    net.ring.send(id, bytes(b"goodbye"));
    assert_eq!(net.close(id), [Seen::Closed(id)]);
    assert_eq!(read_to_end(&peer), b"goodbye");
}

#[test]
fn a_shutdown_follows_the_send() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    net.ring.send(id, bytes(b"error"));
    net.ring.shutdown_write(id);
    net.ring.shutdown_write(id);
    net.until_seen(&Seen::Sent(id));
    net.settle();
    assert_eq!(read_to_end(&peer), b"error");
    write(&peer, b"still talking");
    let seen = net.until(|_, event| matches!(event, Seen::Received(..)));
    assert_eq!(seen, [Seen::Received(id, b"still talking".to_vec())]);
    drop(peer);
    net.until_seen(&Seen::EndOfStream(id));
    assert_eq!(net.close(id), [Seen::Closed(id)]);
}

#[test]
fn a_shutdown_waits_for_a_blocked_send() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer, sends) = blocked(&mut net, 0);
    net.ring.shutdown_write(id);
    assert_eq!(net.settle(), []);
    let reader = std::thread::spawn(move || read_to_end(&peer));
    net.until_seen(&Seen::Sent(id));
    net.ring.wait(Some(Duration::ZERO)).expect("wait");
    assert_eq!(reader.join().expect("the reader"), (0..sends).flat_map(part).collect::<Vec<_>>());
}

#[test]
fn a_shutdown_of_a_dead_connection_is_harmless() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("linger");
    drop(peer);
    net.until(|_, event| matches!(event, Seen::ReceiveFailed(..)));
    net.ring.shutdown_write(id);
    assert_eq!(net.close(id), [Seen::Closed(id)]);
}

#[test]
fn a_send_to_a_dead_connection_fails() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("linger");
    drop(peer);
    let deadline = Instant::now() + DEADLINE;
    loop {
        net.ring.send(id, bytes(b"anyone?"));
        let seen = net.until(|_, e| matches!(e, Seen::Sent(_) | Seen::SendFailed(..)));
        match seen.as_slice() {
            [Seen::SendFailed(from, _)] => break assert_eq!(*from, id),
            _ => assert!(Instant::now() < deadline, "{seen:?}"),
        }
    }
    assert_eq!(net.ring.sends_in_flight(), 0);
}

#[test]
#[should_panic(expected = "two sends at once")]
fn two_sends_at_once_are_refused() {
    let mut net = Loopback::new(&SMALL);
    let (id, _peer) = net.connect(0);
    net.ring.send(id, bytes(b"one"));
    net.ring.send(id, bytes(b"two"));
}

#[test]
#[should_panic(expected = "a send after the shutdown")]
fn a_send_after_the_shutdown_is_refused() {
    let mut net = Loopback::new(&SMALL);
    let (id, _peer) = net.connect(0);
    net.ring.shutdown_write(id);
    net.ring.send(id, bytes(b"one"));
}
