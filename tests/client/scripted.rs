//! Servers that a test plays itself, byte by byte, and a wire that it can cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::own_port::own_address;
use crate::harness::patience::PATIENCE;
use crate::harness::wire::{ACQUIRE_HEADER_BYTES, HEARTBEAT};

/// WAITING.
pub(crate) const WAITING: &[u8] = &[0x11];

/// ACQUIRED with this token.
pub(crate) fn acquired(token: u64) -> Vec<u8> {
    let mut frame = vec![0x12];
    frame.extend_from_slice(&token.to_be_bytes());
    frame
}

/// ERROR.
pub(crate) fn error(code: u8, reason: &str) -> Vec<u8> {
    let mut frame = vec![0x13, code, u8::try_from(reason.len()).expect("a short reason")];
    frame.extend_from_slice(reason.as_bytes());
    frame
}

/// An address that nobody listens on but who is told to, for as long as this process runs.
pub(crate) fn own_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(7070);
    (own_address(251), NEXT.fetch_add(1, Ordering::SeqCst)).into()
}

/// Listens on a free port, and gives every connection to `serve`, each on a thread of its own.
pub(crate) fn serve(serve: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (serve, stream) = (Arc::clone(&serve), stream.expect("accepting"));
            stream.set_nodelay(true).expect("setting TCP_NODELAY");
            stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
            thread::spawn(move || serve(Peer { stream }));
        }
    });
    address
}

/// A client, as a server sees it.
pub(crate) struct Peer {
    stream: TcpStream,
}

impl Peer {
    /// Reads the ACQUIRE and gives its name.
    pub(crate) fn read_acquire(&mut self) -> String {
        let mut header = [0; ACQUIRE_HEADER_BYTES];
        self.stream.read_exact(&mut header).expect("the header of an ACQUIRE");
        let name_len = u16::from_be_bytes([header[6], header[7]]);
        let mut name = vec![0; name_len.into()];
        self.stream.read_exact(&mut name).expect("the name");
        String::from_utf8(name).expect("a name is UTF-8")
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // A client that has left already will be seen to have.
        let _ = self.stream.write_all(bytes);
    }

    /// Waits for a heartbeat; false when the client has closed.
    pub(crate) fn read_heartbeat(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => false,
            Ok(_) => {
                assert_eq!(byte, [HEARTBEAT]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("neither a heartbeat nor the end: {error}"),
        }
    }

    /// Answers heartbeats until the client closes.
    pub(crate) fn answer_all(&mut self, answer: &[u8]) {
        while self.read_heartbeat() {
            self.send(answer);
        }
    }

    /// Takes heartbeats and answers none, until the client closes.
    pub(crate) fn answer_none(&mut self) {
        while self.read_heartbeat() {}
    }
}

/// A wire between clients and a server, whose two directions can be cut or made slow. What is sent
/// on a cut one is lost, as far as the other side can tell; no side sees the connection end.
pub(crate) struct Wire {
    address: SocketAddr,
    ways: Arc<[Way; 2]>,
}

/// One direction.
#[derive(Default)]
struct Way {
    is_cut: AtomicBool,
    delay_ms: AtomicU64,
}

/// A direction of a wire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    ToServer = 0,
    ToClient = 1,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Wire {
        let ways = Arc::new([Way::default(), Way::default()]);
        let both = Arc::clone(&ways);
        let address = serve(move |Peer { stream: client }| {
            let server = TcpStream::connect(server).expect("the server listens");
            server.set_nodelay(true).expect("setting TCP_NODELAY");
            thread::scope(|scope| {
                for (from, to, direction) in [
                    (&client, &server, Direction::ToServer),
                    (&server, &client, Direction::ToClient),
                ] {
                    let (take_up, taken_up) = mpsc::channel();
                    let way = &both[direction as usize];
                    scope.spawn(move || way.take_up(from, &take_up));
                    scope.spawn(move || way.deliver(&taken_up, to));
                }
            });
        });
        Wire { address, ways }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cut(&self, direction: Direction) {
        self.ways[direction as usize].is_cut.store(true, Ordering::SeqCst);
    }

    /// What is sent from now on takes so long, the end of the stream too.
    pub(crate) fn delay(&self, direction: Direction, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).expect("a short time");
        self.ways[direction as usize].delay_ms.store(delay_ms, Ordering::SeqCst);
    }
}

impl Way {
    fn take_up(&self, mut from: &TcpStream, taken_up: &mpsc::Sender<(Instant, Vec<u8>)>) {
        let mut bytes = [0; 4096];
        loop {
            let len = from.read(&mut bytes).unwrap_or(0);
            let delay = Duration::from_millis(self.delay_ms.load(Ordering::SeqCst));
            let is_lost = self.is_cut.load(Ordering::SeqCst) && len > 0;
            // The other end may have closed, and nobody delivers any more.
            if !is_lost && taken_up.send((Instant::now() + delay, bytes[..len].to_vec())).is_err() {
                break;
            }
            if len == 0 {
                break;
            }
        }
    }

    fn deliver(&self, taken_up: &mpsc::Receiver<(Instant, Vec<u8>)>, mut to: &TcpStream) {
        while let Ok((due, bytes)) = taken_up.recv() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                break;
            }
        }
        if !self.is_cut.load(Ordering::SeqCst) {
            // It may be shut already, by the other end.
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

/// When each connection was made, at a port that does nothing but close it with this farewell.
pub(crate) struct Doorbell {
    pub(crate) address: SocketAddr,
    rings: mpsc::Receiver<Instant>,
}

impl Doorbell {
    pub(crate) fn answering(farewell: Vec<u8>) -> Doorbell {
        let (ring, rings) = mpsc::channel();
        let address = serve(move |mut peer| {
            // The test may have seen enough.
            let _ = ring.send(Instant::now());
            peer.read_acquire();
            peer.send(&farewell);
        });
        Doorbell { address, rings }
    }

    /// The time between the next rings.
    pub(crate) fn gaps(&self, count: usize) -> Vec<Duration> {
        let next = || self.rings.recv_timeout(PATIENCE).expect("another dial");
        let mut last = next();
        (0..count)
            .map(|_| {
                let ring = next();
                ring - std::mem::replace(&mut last, ring)
            })
            .collect()
    }
}
