//! Receiving: streams, single receives, probes, and too few buffers.

mod loopback;

use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use loopback::{
    DEADLINE, Loopback, SMALL, Seen, bytes, read_exactly, received, wait_unread, write,
};
use monolock_ring::{Config, Event, Reading};
use socket2::SockRef;

#[test]
fn echoes() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(3);
    net.ring.read(id, Reading::Stream);
    for round in 0..1000_u32 {
        let message = round.to_be_bytes();
        write(&peer, &message);
        let mut pending = Vec::new();
        net.until(|ring, event| {
            if let Seen::Received(from, part) = event {
                assert_eq!(*from, id);
                pending.extend_from_slice(part);
                if pending.len() == message.len() {
                    ring.send(id, bytes(&pending));
                    assert!(ring.is_sending(id));
                }
            }
            *event == Seen::Sent(id)
        });
        assert!(!net.ring.is_sending(id));
        assert_eq!(read_exactly(&peer, message.len()), message);
    }
    assert_eq!(net.ring.sends_in_flight(), 0);
}

#[test]
fn once_then_stream() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Once);
    write(&peer, b"first");
    let seen = net.until(|_, event| matches!(event, Seen::Received(..)));
    assert_eq!(seen, [Seen::Received(id, b"first".to_vec())]);

    write(&peer, b"second");
    net.ring.probe(id);
    let seen = net.until(|ring, event| {
        if *event == Seen::Silent(id) {
            ring.probe(id);
        }
        matches!(event, Seen::Received(..))
    });
    assert_eq!(received(&seen, id), b"second", "only the probe reads when it is off");

    net.ring.read(id, Reading::Stream);
    net.ring.read(id, Reading::Stream);
    for _ in 0..100 {
        write(&peer, b"on and on");
        let mut count = 0;
        net.until(|_, event| {
            if let Seen::Received(_, part) = event {
                count += part.len();
            }
            count == 9
        });
    }
}

#[test]
fn a_stream_that_replaces_a_single_receive_loses_nothing() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Once);
    net.settle();
    net.ring.read(id, Reading::Stream);
    let mut expected = Vec::new();
    for round in 0..50_u8 {
        write(&peer, &[round; 3]);
        expected.extend([round; 3]);
    }
    let mut got = Vec::new();
    net.until(|_, event| {
        if let Seen::Received(_, part) = event {
            got.extend_from_slice(part);
        }
        got.len() == expected.len()
    });
    assert_eq!(got, expected);
}

#[test]
fn off_stops_reading_and_switching_loses_nothing() {
    let modes = [Reading::Stream, Reading::Off, Reading::Once, Reading::Stream, Reading::Off];
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for round in 0..500_usize {
        let byte = u8::try_from(round % 251).expect("a byte");
        expected.push(byte);
        net.ring.read(id, modes[round % modes.len()]);
        if round % 3 == 0 {
            seen.extend(net.settle());
        }
        write(&peer, &[byte]);
        net.ring.read(id, modes[(round / 7) % modes.len()]);
        if round % 2 == 0 {
            seen.extend(net.settle());
        }
    }
    net.ring.read(id, Reading::Stream);
    while received(&seen, id).len() < expected.len() {
        seen.extend(net.until(|_, event| matches!(event, Seen::Received(..))));
    }
    assert_eq!(received(&seen, id), expected);

    net.ring.read(id, Reading::Off);
    net.settle();
    let (other, other_peer) = net.connect(1);
    net.ring.read(other, Reading::Once);
    write(&peer, b"unread");
    write(&other_peer, b"read");
    let seen = net.until(|_, event| matches!(event, Seen::Received(..)));
    assert_eq!(seen, [Seen::Received(other, b"read".to_vec())]);
}

#[test]
fn more_connections_with_data_than_buffers_lose_nothing() {
    const COUNT: u32 = 64;
    let config = Config { slots: COUNT, buffers: 4, buffer_len: 16, ..SMALL };
    let mut net = Loopback::new(&config);
    let pairs: Vec<_> = (0..COUNT).map(|index| net.connect(index)).collect();
    let message = |index: u32| -> Vec<u8> {
        (0..500_u32).flat_map(|n| (n * 31 + index).to_be_bytes()).collect()
    };
    for (index, (id, peer)) in (0..COUNT).zip(&pairs) {
        write(peer, &message(index));
        net.ring.read(*id, Reading::Stream);
    }
    let mut left = 2000 * COUNT as usize;
    let seen = net.until(|_, event| {
        if let Seen::Received(_, part) = event {
            left -= part.len();
        }
        left == 0
    });
    for (index, (id, _)) in (0..COUNT).zip(&pairs) {
        assert_eq!(received(&seen, *id), message(index), "{id:?}");
    }
    // None was left behind unarmed.
    for (id, peer) in &pairs {
        write(peer, b"!");
        net.until_seen(&Seen::Received(*id, b"!".to_vec()));
    }
}

#[test]
fn one_buffer_arms_any_number_of_idle_connections() {
    let config = Config { slots: 64, buffers: 1, ..SMALL };
    let mut net = Loopback::new(&config);
    let (ids, peers) = net.streams(64);
    write(&peers[0], b"x");
    net.until(|_, event| matches!(event, Seen::Received(..)));
    for (id, peer) in ids.iter().zip(&peers) {
        write(peer, b"y");
        net.until_seen(&Seen::Received(*id, b"y".to_vec()));
    }
}

#[test]
fn settled_means_that_a_burst_is_read() {
    const COUNT: u32 = 2000;
    for buffers in [64, 1024] {
        let config = Config { slots: COUNT, buffers, ..Config::default() };
        let mut net = Loopback::new(&config);
        let mut witnesses = Vec::new();
        let mut peers = Vec::new();
        for index in 0..COUNT {
            let (socket, peer) = net.pair();
            witnesses.push(socket.try_clone().expect("a second number"));
            peers.push(peer);
            let id = net.attach(index, socket);
            net.ring.read(id, Reading::Stream);
        }
        assert_eq!(net.settle(), []);
        for round in 0..3_u8 {
            peers.iter().for_each(|peer| write(peer, &[round]));
            witnesses.iter().for_each(wait_unread);
            let seen = net.settle();
            assert_eq!(seen.len(), COUNT as usize, "with {buffers} buffers, round {round}");
            assert!(seen.iter().all(|e| matches!(e, Seen::Received(_, part) if *part == [round])));
        }
    }
}

#[test]
fn a_probe_finds_silence_bytes_and_the_end() {
    let mut net = Loopback::new(&SMALL);
    let (socket, peer) = net.pair();
    let witness = socket.try_clone().expect("a second number");
    let id = net.attach(0, socket);
    net.ring.probe(id);
    net.ring.probe(id);
    assert_eq!(net.settle(), [Seen::Silent(id)], "two unanswered probes are one");

    write(&peer, b"bytes");
    wait_unread(&witness);
    net.ring.probe(id);
    assert_eq!(net.settle(), [Seen::Received(id, b"bytes".to_vec())]);

    peer.shutdown(Shutdown::Write).expect("shutdown");
    let deadline = Instant::now() + DEADLINE;
    loop {
        net.ring.probe(id);
        match net.settle().as_slice() {
            [Seen::Silent(_)] => assert!(Instant::now() < deadline, "no end of stream"),
            seen => break assert_eq!(seen, [Seen::EndOfStream(id)]),
        }
    }
}

#[test]
fn a_probe_finds_silence_under_an_armed_receive() {
    let mut net = Loopback::new(&SMALL);
    for reading in [Reading::Once, Reading::Stream] {
        let (id, peer) = net.connect(0);
        net.ring.read(id, reading);
        net.settle();
        net.ring.probe(id);
        assert_eq!(net.settle(), [Seen::Silent(id)]);
        write(&peer, b"later");
        let seen = net.until(|_, event| matches!(event, Seen::Received(..)));
        assert_eq!(received(&seen, id), b"later", "{reading:?} is still armed");
        net.close(id);
    }
}

#[test]
fn a_probe_waits_for_a_buffer() {
    let config = Config { buffers: 1, ..SMALL };
    let mut net = Loopback::new(&config);
    let pairs: Vec<_> = (0..16).map(|index| net.connect(index)).collect();
    for (_, peer) in &pairs {
        write(peer, b"here");
    }
    for (id, _) in &pairs {
        net.ring.probe(*id);
    }
    let mut left = pairs.len();
    let seen = net.until(|ring, event| {
        match event {
            Seen::Received(..) => left -= 1,
            Seen::Silent(id) => ring.probe(*id),
            other => panic!("{other:?}"),
        }
        left == 0
    });
    for (id, _) in &pairs {
        assert_eq!(received(&seen, *id), b"here");
    }
}

#[test]
fn probes_between_armed_receives_keep_the_order_of_bytes() {
    const LEN: usize = 200_000;
    for buffers in [2, 16] {
        let mut net = Loopback::new(&Config { buffers, ..SMALL });
        let (id, peer) = net.connect(0);
        net.ring.read(id, Reading::Stream);
        let writer = thread::spawn(move || {
            let all: Vec<u8> = (0..LEN).map(|n| (n % 251).to_le_bytes()[0]).collect();
            all.chunks(37).for_each(|part| write(&peer, part));
            peer
        });
        let mut next = 0_usize;
        let deadline = Instant::now() + DEADLINE;
        while next < LEN {
            net.ring.probe(id);
            net.ring.wait(Some(Duration::from_millis(100))).expect("wait");
            while let Some(event) = net.ring.next_event() {
                if let Event::Received { bytes, .. } = event {
                    for &byte in bytes {
                        assert_eq!(usize::from(byte), next % 251, "at {next}");
                        next += 1;
                    }
                    // Now and then it is also taken back and armed again.
                    if next.is_multiple_of(5) {
                        net.ring.read(id, Reading::Off);
                    }
                    net.ring.read(id, Reading::Stream);
                    net.ring.probe(id);
                }
            }
            assert!(Instant::now() < deadline, "only {next} bytes");
        }
        writer.join().expect("the writer");
    }
}

#[test]
fn a_non_blocking_socket_is_waited_for_too() {
    let mut net = Loopback::new(&SMALL);
    for reading in [Reading::Once, Reading::Stream] {
        let (socket, peer) = net.pair();
        socket.set_nonblocking(true).expect("fcntl");
        let id = net.attach(0, socket);
        net.ring.read(id, reading);
        assert_eq!(net.settle(), []);
        write(&peer, b"later");
        net.until_seen(&Seen::Received(id, b"later".to_vec()));
        net.close(id);
    }
}

#[test]
fn a_reset_fails_the_receive() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    net.settle();
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("linger");
    drop(peer);
    let seen = net.until(|_, event| matches!(event, Seen::ReceiveFailed(..)));
    let [Seen::ReceiveFailed(from, error)] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(*from, id);
    assert_eq!(std::io::Error::from(*error).kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(net.settle(), []);
    assert_eq!(net.close(id), [Seen::Closed(id)]);
}

#[test]
fn after_the_end_of_the_stream_one_can_still_send() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Stream);
    write(&peer, b"last words");
    peer.shutdown(Shutdown::Write).expect("shutdown");
    let seen = net.until_seen(&Seen::EndOfStream(id));
    assert_eq!(received(&seen, id), b"last words");
    net.ring.send(id, bytes(b"answer"));
    net.until_seen(&Seen::Sent(id));
    assert_eq!(read_exactly(&peer, 6), b"answer");
    assert_eq!(net.settle(), [], "the end is told once");
}
