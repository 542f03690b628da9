//! A client of raw bytes on a blocking socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::patience::{LONG_LEASE_MS, PATIENCE};
use super::wire::{self, Frame};

/// How many of the last events a failure shows.
const HISTORY_LEN: usize = 6;

/// How many bytes [`Client::flood`] sends at most. Far beyond what the socket buffers of both ends
/// hold together, so a server that takes all of it from a client that reads nothing has no bound.
const FLOOD_BYTES_MAX: usize = 64 << 20;

/// What a client sees of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A whole frame.
    Frame(Frame),
    /// The server has shut its side down in good order (FIN).
    Eof,
    /// The connection was broken off (RST).
    Reset,
    /// Nothing of these within the time given.
    Silence,
}

/// How to connect.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// The local address, for a peer other than 127.0.0.1.
    pub(crate) source: Option<IpAddr>,
    /// The size of the receive buffer, for a reader that is slow to fill no more than this.
    pub(crate) receive_buffer_bytes: Option<usize>,
}

/// One connection to a lock server.
pub(crate) struct Client {
    stream: TcpStream,
    /// Received, and not yet a whole frame.
    unread: Vec<u8>,
    /// The last events, oldest first, for the message of a failure.
    history: VecDeque<Event>,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(server: SocketAddr) -> Client {
        Client::connect_with(server, Options::default())
    }

    #[track_caller]
    pub(crate) fn connect_from(server: SocketAddr, source: impl Into<IpAddr>) -> Client {
        let source = Some(source.into());
        Client::connect_with(server, Options { source, ..Options::default() })
    }

    #[track_caller]
    pub(crate) fn connect_with(server: SocketAddr, options: Options) -> Client {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))
            .expect("a socket");
        if let Some(source) = options.source {
            socket.bind(&SocketAddr::new(source, 0).into()).expect("binding the source address");
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            // Before the connect: the window that the server is offered depends on it.
            socket.set_recv_buffer_size(bytes).expect("setting the receive buffer");
        }
        socket
            .connect_timeout(&server.into(), PATIENCE)
            .unwrap_or_else(|error| panic!("connecting to {server}: {error}"));
        // Otherwise the kernel would glue together what a test sends split.
        socket.set_tcp_nodelay(true).expect("setting TCP_NODELAY");
        Client { stream: socket.into(), unread: Vec::new(), history: VecDeque::new() }
    }

    /// Connects and claims a lock that must be free.
    #[track_caller]
    pub(crate) fn owner(server: SocketAddr, name: &str, lease_ms: u32) -> (Client, u64) {
        let mut client = Client::connect(server);
        client.acquire(name, lease_ms);
        let token = client.expect_acquired();
        (client, token)
    }

    /// Connects and claims a lock that those who held it or waited for it are leaving.
    #[track_caller]
    pub(crate) fn owner_patiently(server: SocketAddr, name: &str) -> Client {
        let mut client = Client::connect(server);
        client.acquire(name, LONG_LEASE_MS);
        if client.read_frame() == Frame::Waiting {
            client.expect_acquired();
        }
        client
    }

    /// Connects and claims a lock that must be taken; on return the place in the queue is certain.
    #[track_caller]
    pub(crate) fn waiter(server: SocketAddr, name: &str, lease_ms: u32) -> Client {
        let mut client = Client::connect(server);
        client.acquire(name, lease_ms);
        client.expect_waiting();
        client
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            panic!("sending {} bytes: {error}; {}", bytes.len(), self.seen());
        }
    }

    /// Sends what the server may no longer be willing to take.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Whether the kernel knows that the connection is gone; found out with a heartbeat.
    #[track_caller]
    pub(crate) fn is_refused_by_kernel(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("setting non-blocking");
        let sending = self.stream.write(&[wire::HEARTBEAT]);
        self.stream.set_nonblocking(false).expect("setting blocking");
        sending.is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    }

    /// Sends each byte in a segment of its own.
    #[track_caller]
    pub(crate) fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(&[*byte]);
            // Gives the server a chance to read this byte alone.
            thread::sleep(Duration::from_micros(200));
        }
    }

    #[track_caller]
    pub(crate) fn acquire(&mut self, name: impl AsRef<[u8]>, lease_ms: u32) {
        self.send(&wire::acquire(name, lease_ms));
    }

    #[track_caller]
    pub(crate) fn heartbeat(&mut self) {
        self.send(&[wire::HEARTBEAT]);
    }

    /// Sends the bytes from a thread of its own, for a test that has to read meanwhile. The thread
    /// ends with how many bytes the server took.
    pub(crate) fn send_meanwhile(&self, bytes: Vec<u8>) -> JoinHandle<usize> {
        let mut stream = self.stream.try_clone().expect("cloning the stream");
        stream.set_write_timeout(Some(PATIENCE)).expect("setting the write timeout");
        thread::spawn(move || {
            let mut sent = 0;
            while let Ok(n @ 1..) = stream.write(&bytes[sent..]) {
                sent += n;
            }
            sent
        })
    }

    /// Sends heartbeats and reads no answers, until the server takes no more (true) or has closed
    /// the connection (false).
    #[track_caller]
    pub(crate) fn flood(&mut self) -> bool {
        let heartbeats = vec![wire::HEARTBEAT; 64 << 10];
        // A server that is only busy would take more within this time.
        let stuck = Some(Duration::from_millis(300));
        self.stream.set_write_timeout(stuck).expect("setting the write timeout");
        let mut sent = 0;
        let is_stuck = loop {
            match self.stream.write(&heartbeats) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(_) => break false,
            }
            assert!(
                sent < FLOOD_BYTES_MAX,
                "the server took {sent} heartbeats of a client that reads no answer"
            );
        };
        self.stream.set_write_timeout(None).expect("setting the write timeout");
        is_stuck
    }

    /// Ends our side of the stream; answers can still come.
    #[track_caller]
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).expect("shutting down the write side");
    }

    /// Closes in good order.
    pub(crate) fn close(self) {
        drop(self);
    }

    /// Breaks the connection off with an RST.
    #[track_caller]
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("setting SO_LINGER");
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("the socket has an address")
    }

    /// The next thing that is seen of the connection within this time.
    #[track_caller]
    pub(crate) fn next_event(&mut self, within: Duration) -> Event {
        let event = self.read_event(Instant::now() + within);
        if self.history.len() == HISTORY_LEN {
            self.history.pop_front();
        }
        self.history.push_back(event.clone());
        event
    }

    #[track_caller]
    fn read_event(&mut self, deadline: Instant) -> Event {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(frame) = Frame::take(&mut self.unread) {
                return Event::Frame(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Event::Silence;
            }
            self.stream.set_read_timeout(Some(left)).expect("setting the read timeout");
            match self.stream.read(&mut buffer) {
                Ok(0) => return Event::Eof,
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Event::Reset,
                    _ => panic!("reading: {error}; {}", self.seen()),
                },
            }
        }
    }

    /// The next frame; the end of the stream or none at all is a failure.
    #[track_caller]
    pub(crate) fn read_frame(&mut self) -> Frame {
        match self.next_event(PATIENCE) {
            Event::Frame(frame) => frame,
            _ => panic!("expected a frame; {}", self.seen()),
        }
    }

    #[track_caller]
    pub(crate) fn expect_waiting(&mut self) {
        let frame = self.read_frame();
        assert_eq!(frame, Frame::Waiting, "{}", self.seen());
    }

    /// The token of the ACQUIRED that must come next.
    #[track_caller]
    pub(crate) fn expect_acquired(&mut self) -> u64 {
        match self.read_frame() {
            Frame::Acquired(token) => token,
            _ => panic!("expected ACQUIRED; {}", self.seen()),
        }
    }

    /// The reason of the ERROR with this code that must come next.
    #[track_caller]
    pub(crate) fn expect_error(&mut self, expected: u8) -> String {
        match self.read_frame() {
            Frame::Error { code, reason } if code == expected => reason,
            _ => panic!("expected ERROR {expected:#04x}; {}", self.seen()),
        }
    }

    /// A clean end of the stream, with nothing before it.
    #[track_caller]
    pub(crate) fn expect_eof(&mut self) {
        let event = self.next_event(PATIENCE);
        assert_eq!(event, Event::Eof, "{}", self.seen());
        let part = &self.unread;
        assert!(part.is_empty(), "the stream ended within a frame: {part:02x?}");
    }

    /// An ERROR, and with it the clean end of the stream.
    #[track_caller]
    pub(crate) fn expect_refusal(&mut self, code: u8) -> String {
        let reason = self.expect_error(code);
        self.expect_eof();
        reason
    }

    /// The end of the connection in whatever way, what comes before it not looked at: a session
    /// that is ended because it doesn't read may end within a frame.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next_event(deadline.saturating_duration_since(Instant::now())) {
                Event::Frame(_) => {}
                Event::Eof | Event::Reset => return,
                Event::Silence => panic!("the connection was not ended; {}", self.seen()),
            }
        }
    }

    /// Neither a frame nor a part of one nor the end for this long.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self, duration: Duration) {
        let event = self.next_event(duration);
        assert_eq!(event, Event::Silence, "{}", self.seen());
        let part = &self.unread;
        assert!(part.is_empty(), "expected nothing, got the bytes {part:02x?}");
    }

    /// A heartbeat, answered with ACQUIRED and this token.
    #[track_caller]
    pub(crate) fn expect_held(&mut self, token: u64) {
        self.heartbeat();
        let answer = self.expect_acquired();
        assert_eq!(answer, token, "the token of a grant does not change");
    }

    /// A heartbeat, answered with WAITING.
    #[track_caller]
    pub(crate) fn expect_queued(&mut self) {
        self.heartbeat();
        self.expect_waiting();
    }

    fn seen(&self) -> String {
        format!("seen, oldest first: {:?}, then the bytes {:02x?}", self.history, self.unread)
    }
}
