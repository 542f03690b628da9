//! A ring with peers on loopback, and turns until something has happened.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use monolock_ring::{Config, ConnectionId, Errno, Event, Reading, Ring};
use socket2::{Domain, SockRef, Socket, Type};

/// No test waits longer than this for a condition.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) const SMALL: Config =
    Config { slots: 64, buffers: 16, buffer_len: 64, submissions: 16, completions: 64 };

/// An event that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Received(ConnectionId, Vec<u8>),
    EndOfStream(ConnectionId),
    ReceiveFailed(ConnectionId, Errno),
    Silent(ConnectionId),
    Sent(ConnectionId),
    SendBlocked(ConnectionId),
    SendFailed(ConnectionId, Errno),
    Closed(ConnectionId),
    Detached(ConnectionId),
    DetachFailed(ConnectionId, Errno),
    Woken,
}

/// Sockets that were taken out of the ring.
type Detached = HashMap<ConnectionId, TcpStream>;

impl Seen {
    fn new(event: Event<'_>, detached: &mut Detached) -> Seen {
        match event {
            Event::Received { id, bytes } => Seen::Received(id, bytes.to_vec()),
            Event::EndOfStream { id } => Seen::EndOfStream(id),
            Event::ReceiveFailed { id, error } => Seen::ReceiveFailed(id, error),
            Event::Silent { id } => Seen::Silent(id),
            Event::Sent { id } => Seen::Sent(id),
            Event::SendBlocked { id } => Seen::SendBlocked(id),
            Event::SendFailed { id, error } => Seen::SendFailed(id, error),
            Event::Closed { id } => Seen::Closed(id),
            Event::Detached { id, socket } => {
                detached.insert(id, socket.0.into());
                Seen::Detached(id)
            }
            Event::DetachFailed { id, error } => Seen::DetachFailed(id, error),
            Event::Woken => Seen::Woken,
        }
    }
}

pub(crate) struct Loopback {
    pub(crate) ring: Ring,
    pub(crate) detached: Detached,
    listener: TcpListener,
    generation: u32,
}

impl Loopback {
    pub(crate) fn new(config: &Config) -> Loopback {
        let ring = Ring::new(config).expect("io_uring");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Loopback { ring, detached: Detached::new(), listener, generation: 0 }
    }

    /// What the ring hands out next.
    pub(crate) fn next_seen(&mut self) -> Option<Seen> {
        self.ring.next_event().map(|event| Seen::new(event, &mut self.detached))
    }

    /// A connected pair: what the ring gets, and the peer.
    pub(crate) fn pair(&self) -> (TcpStream, TcpStream) {
        let peer = TcpStream::connect(self.listener.local_addr().expect("bound")).expect("connect");
        self.accept(peer)
    }

    /// A pair that holds only few unread bytes.
    pub(crate) fn narrow_pair(&self) -> (TcpStream, TcpStream) {
        let peer = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        peer.set_recv_buffer_size(4096).expect("a small buffer");
        peer.connect(&self.listener.local_addr().expect("bound").into()).expect("connect");
        let (socket, peer) = self.accept(peer.into());
        SockRef::from(&socket).set_send_buffer_size(4096).expect("a small buffer");
        (socket, peer)
    }

    fn accept(&self, peer: TcpStream) -> (TcpStream, TcpStream) {
        let (socket, address) = self.listener.accept().expect("accept");
        assert_eq!(address, peer.local_addr().expect("connected"));
        socket.set_nodelay(true).expect("nodelay");
        peer.set_nodelay(true).expect("nodelay");
        peer.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        peer.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        (socket, peer)
    }

    /// Attaches a socket under a generation of its own.
    pub(crate) fn attach(&mut self, index: u32, socket: TcpStream) -> ConnectionId {
        self.generation += 1;
        let id = ConnectionId { index, generation: self.generation };
        self.ring.attach(id, OwnedFd::from(socket)).expect("attach");
        id
    }

    pub(crate) fn connect(&mut self, index: u32) -> (ConnectionId, TcpStream) {
        let (socket, peer) = self.pair();
        (self.attach(index, socket), peer)
    }

    /// Many connections, all read as a stream.
    pub(crate) fn streams(&mut self, count: u32) -> (Vec<ConnectionId>, Vec<TcpStream>) {
        let pairs = (0..count).map(|index| {
            let (id, peer) = self.connect(index);
            self.ring.read(id, Reading::Stream);
            (id, peer)
        });
        pairs.unzip()
    }

    /// Takes turns, showing each event to `done` until that says so. Returns all that was seen.
    pub(crate) fn until(&mut self, mut done: impl FnMut(&mut Ring, &Seen) -> bool) -> Vec<Seen> {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            self.ring.wait(Some(Duration::from_millis(100))).expect("wait");
            let mut finished = false;
            while let Some(event) = self.ring.next_event() {
                let event = Seen::new(event, &mut self.detached);
                finished |= done(&mut self.ring, &event);
                seen.push(event);
            }
            if finished {
                return seen;
            }
            assert!(Instant::now() < deadline, "not in time; seen: {seen:?}");
        }
    }

    /// Takes turns until one event has come, and returns what else came up to its turn's end too.
    pub(crate) fn until_seen(&mut self, wanted: &Seen) -> Vec<Seen> {
        self.until(|_, event| event == wanted)
    }

    /// Takes turns without waiting until nothing is left.
    pub(crate) fn settle(&mut self) -> Vec<Seen> {
        let deadline = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            self.ring.wait(Some(Duration::ZERO)).expect("wait");
            while let Some(event) = self.ring.next_event() {
                seen.push(Seen::new(event, &mut self.detached));
            }
            if self.ring.is_settled() {
                return seen;
            }
            assert!(Instant::now() < deadline, "not settled; seen: {seen:?}");
        }
    }

    /// Closes a connection and waits until it is closed.
    pub(crate) fn close(&mut self, id: ConnectionId) -> Vec<Seen> {
        self.ring.close(id);
        self.until_seen(&Seen::Closed(id))
    }
}

/// Fills a send with these bytes.
pub(crate) fn bytes(bytes: &[u8]) -> impl FnOnce(&mut [u8]) -> usize {
    move |buffer| {
        buffer[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }
}

/// The bytes that were received on one connection, in order.
pub(crate) fn received(seen: &[Seen], id: ConnectionId) -> Vec<u8> {
    let parts = seen.iter().filter_map(|event| match event {
        Seen::Received(from, bytes) if *from == id => Some(bytes.as_slice()),
        _ => None,
    });
    parts.collect::<Vec<_>>().concat()
}

pub(crate) fn write(mut peer: &TcpStream, bytes: &[u8]) {
    peer.write_all(bytes).expect("the peer writes");
}

pub(crate) fn read_exactly(mut peer: &TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    peer.read_exact(&mut bytes).expect("the peer reads");
    bytes
}

/// What the peer still gets up to the end of the stream.
pub(crate) fn read_to_end(mut peer: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).expect("the peer reads to the end");
    bytes
}

/// Waits until bytes lie unread in a socket; `witness` is a second number of it.
pub(crate) fn wait_unread(witness: &TcpStream) {
    let mut byte = [0];
    witness.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    assert_eq!(witness.peek(&mut byte).expect("bytes arrive"), 1);
}
