//! Taking a socket out of a ring: nothing that the peer sent is lost or comes twice, and the socket
//! goes on in another ring.

mod loopback;

use std::io::Read;

use loopback::{DEADLINE, Loopback, SMALL, Seen, bytes, read_exactly, read_to_end, received};
use loopback::{wait_unread, write};
use monolock_ring::{Config, ConnectionId, Reading};

/// Takes the connection out, and gives what was seen of it up to then.
fn detach(net: &mut Loopback, id: ConnectionId) -> Vec<Seen> {
    net.ring.detach(id);
    net.until_seen(&Seen::Detached(id))
}

#[test]
fn a_detached_socket_goes_on_in_another_ring() {
    let (mut first, mut second) = (Loopback::new(&SMALL), Loopback::new(&SMALL));
    let (id, peer) = first.connect(7);
    first.ring.read(id, Reading::Once);
    write(&peer, b"first");
    first.until_seen(&Seen::Received(id, b"first".to_vec()));
    assert_eq!(detach(&mut first, id), [Seen::Detached(id)]);
    assert_eq!(first.ring.connections(), 0);

    write(&peer, b"second");
    let socket = first.detached.remove(&id).expect("detached");
    let id = second.attach(3, socket);
    second.ring.read(id, Reading::Stream);
    second.until_seen(&Seen::Received(id, b"second".to_vec()));
    second.ring.send(id, bytes(b"answer"));
    second.until_seen(&Seen::Sent(id));
    assert_eq!(read_exactly(&peer, 6), b"answer");
    second.close(id);
    assert_eq!(read_to_end(&peer), b"", "no descriptor was left behind that keeps it open");
}

#[test]
fn an_armed_receive_is_taken_back_and_loses_nothing() {
    let mut net = Loopback::new(&SMALL);
    for round in 0..200_u32 {
        let (id, peer) = net.connect(0);
        net.ring.read(id, Reading::Once);
        if round % 2 == 0 {
            net.settle();
        }
        if round % 3 == 0 {
            net.ring.probe(id);
        }
        if round % 4 < 2 {
            write(&peer, b"early ");
        }
        let seen = detach(&mut net, id);
        let mut all = received(&seen, id);
        write(&peer, b"late");
        drop(peer);
        let mut socket = net.detached.remove(&id).expect("detached");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        socket.read_to_end(&mut all).expect("the rest");
        let sent: &[u8] = if round % 4 < 2 { b"early late" } else { b"late" };
        assert_eq!(all, sent, "round {round}, of which the ring gave {seen:?}");
    }
    assert_eq!(net.ring.connections(), 0);
}

#[test]
fn a_stream_that_has_ended_is_told_in_place_of_the_socket() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    net.ring.read(id, Reading::Once);
    net.settle();
    drop(peer);
    // The receive ends by itself, before it can be taken back.
    net.ring.wait(None).expect("wait");
    net.ring.detach(id);
    net.until_seen(&Seen::EndOfStream(id));
    assert_eq!(net.close(id), [Seen::Closed(id)]);
    assert!(net.detached.is_empty());
}

#[test]
fn the_end_of_a_stream_that_is_not_read_goes_along() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    drop(peer);
    assert_eq!(detach(&mut net, id), [Seen::Detached(id)]);
    let socket = net.detached.remove(&id).expect("detached");
    let id = net.attach(0, socket);
    net.ring.read(id, Reading::Stream);
    net.until_seen(&Seen::EndOfStream(id));
}

#[test]
fn a_slot_is_free_at_once_for_another_connection() {
    let mut net = Loopback::new(&SMALL);
    for _ in 0..300 {
        let (old, old_peer) = net.connect(1);
        net.ring.read(old, Reading::Once);
        net.ring.wait(Some(std::time::Duration::ZERO)).expect("wait");
        detach(&mut net, old);
        let (new, new_peer) = net.connect(1);
        net.ring.read(new, Reading::Stream);
        write(&old_peer, b"old");
        write(&new_peer, b"new");
        let seen = net.until_seen(&Seen::Received(new, b"new".to_vec()));
        assert_eq!(received(&seen, new), b"new");
        wait_unread(net.detached.get(&old).expect("detached"));
        net.detached.clear();
        net.close(new);
    }
}

#[test]
fn one_that_found_no_buffer_can_leave_and_takes_its_bytes_along() {
    let mut net = Loopback::new(&Config { buffers: 1, ..SMALL });
    let pairs: Vec<_> = (0..8).map(|index| net.connect(index)).collect();
    for (id, peer) in &pairs {
        write(peer, b"x");
        net.ring.read(*id, Reading::Once);
    }
    net.ring.wait(None).expect("wait");
    for (id, _) in &pairs {
        net.ring.detach(*id);
    }
    let mut gone = 0;
    let seen = net.until(|_, event| {
        gone += usize::from(matches!(event, Seen::Detached(_)));
        gone == 8
    });
    for (id, _) in &pairs {
        let mut socket = net.detached.remove(id).expect("detached");
        let got = received(&seen, *id);
        if got.is_empty() {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("its byte");
            assert_eq!(&byte, b"x");
        } else {
            assert_eq!(got, b"x");
        }
    }
    assert_eq!(net.settle(), []);
}

#[test]
fn a_close_meanwhile_closes_it() {
    let mut net = Loopback::new(&SMALL);
    for submitted in [false, true] {
        let (id, peer) = net.connect(0);
        net.ring.detach(id);
        if submitted {
            net.ring.wait(None).expect("wait");
        }
        net.ring.close(id);
        assert_eq!(net.until_seen(&Seen::Closed(id)), [Seen::Closed(id)]);
        assert_eq!(read_to_end(&peer), b"");
        assert!(net.detached.is_empty());
    }
}
