//! The yardstick: what a connection and an answer cost when nothing is done about them.
//!
//! `cargo run --release -p monolock-ring --example echo -- [--listen ADDRESS:PORT] [--shards N]`
//!
//! Every byte that comes is answered with the nine bytes of an ACQUIRED, so the same goes over the
//! wire as for a HEARTBEAT, on as many rings, with the same acceptor and the same options of the
//! sockets. There are no frames, locks, leases or limits: who floods it and doesn't read is owed
//! more and more. `benches/server`, and `scale` of the load generator, compare the lock server with
//! it.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use monolock_ring::{
    Acceptor, Bell, Config, ConnectionId, Dealer, Event, Reading, Ring, SEND_LEN, Waker,
};
use rustix::process::{Resource, getrlimit};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// A token that could be one.
const ANSWER: [u8; 9] = [0x12, 0, 6, 0x8a, 0x3c, 0x51, 0x7f, 0x20, 0x9b];

/// As many as the lock server has.
const RECEIVE_BUFFERS: u16 = 256;

/// The most answers in one send.
const ANSWERS_MAX: u32 = 56;
const _: () = assert!(ANSWERS_MAX as usize == SEND_LEN / ANSWER.len());

fn main() -> Result<(), Box<dyn Error>> {
    let (mut address, mut shards) = ("127.0.0.1:7071".to_owned(), 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--listen" => address = value,
            "--shards" => shards = value.parse()?,
            _ => return Err(format!("there is no {flag}").into()),
        }
    }
    let listener = listen(address.parse()?)?;
    let slots = u32::try_from(getrlimit(Resource::Nofile).current.unwrap_or(1 << 20))?;
    let bell = Bell::new()?;
    let loops = (0..shards).map(|_| start(slots, &bell)).collect::<Result<Vec<Loop>, _>>()?;
    eprintln!("listening on {}", listener.local_addr()?);
    let _acceptor =
        Acceptor::start(OwnedFd::from(listener), bell, Taker { loops, slots, next: 0 })?;
    loop {
        thread::park();
    }
}

/// Starts a thread with a ring, which only it may make.
fn start(slots: u32, bell: &Bell) -> Result<Loop, Box<dyn Error>> {
    let (sender, inbox) = channel();
    let (started, has_started) = channel();
    let taken = Arc::new(AtomicU32::new(0));
    let (its_taken, bell) = (Arc::clone(&taken), bell.clone());
    thread::spawn(move || {
        let ring = Ring::new(&Config { slots, buffers: RECEIVE_BUFFERS, ..Config::default() });
        let ring = ring.unwrap_or_else(|error| end(&error));
        started.send(ring.waker()).expect("it is waited for");
        let (free, owed) = (Vec::new(), Vec::new());
        let echo = Echo { ring, inbox, bell, taken: its_taken, free, owed, generation: 0 };
        echo.run().unwrap_or_else(|error| end(&error));
    });
    Ok(Loop { inbox: sender, waker: has_started.recv()?, taken })
}

fn end(error: &dyn Error) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}

/// A listener with the options that the lock server gives its own, in `src/listener.rs`.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(16 << 10)?;
    socket.set_send_buffer_size(16 << 10)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(45))
            .with_interval(Duration::from_secs(15))
            .with_retries(4),
    )?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(60)))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::MAX)?;
    Ok(socket.into())
}

/// One thread with a ring, from outside.
struct Loop {
    inbox: Sender<OwnedFd>,
    waker: Waker,
    taken: Arc<AtomicU32>,
}

/// Passes accepted sockets on to the loops in turn, as many as there are slots.
struct Taker {
    loops: Vec<Loop>,
    slots: u32,
    next: usize,
}

impl Dealer for Taker {
    fn has_room(&mut self) -> io::Result<bool> {
        Ok(self.loops[self.next].taken.load(Ordering::SeqCst) < self.slots)
    }

    fn deal(&mut self, socket: OwnedFd, _peer: SocketAddr) {
        let next = &self.loops[self.next];
        self.next = (self.next + 1) % self.loops.len();
        next.taken.fetch_add(1, Ordering::SeqCst);
        if next.inbox.send(socket).is_ok() {
            next.waker.wake();
        }
    }

    fn accept_failed(&mut self, error: &io::Error) {
        eprintln!("cannot accept a connection: {error}");
    }
}

struct Echo {
    ring: Ring,
    inbox: Receiver<OwnedFd>,
    bell: Bell,
    taken: Arc<AtomicU32>,
    free: Vec<u32>,
    /// How many answers are owed, by slot.
    owed: Vec<u32>,
    generation: u32,
}

impl Echo {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.ring.wait(None)?;
            while let Some(event) = self.ring.next_event() {
                match event {
                    Event::Received { id, bytes } => {
                        let answers = u32::try_from(bytes.len()).expect("a buffer's length");
                        self.owed[id.index as usize] += answers;
                        self.answer(id);
                    }
                    Event::Sent { id } => self.answer(id),
                    Event::EndOfStream { id }
                    | Event::ReceiveFailed { id, .. }
                    | Event::SendFailed { id, .. } => self.ring.close(id),
                    Event::Closed { id } => self.forget(id),
                    Event::Woken => self.take_in()?,
                    Event::SendBlocked { .. } | Event::Silent { .. } => {}
                    Event::Detached { .. } | Event::DetachFailed { .. } => {
                        unreachable!("nothing is detached")
                    }
                }
            }
        }
    }

    fn answer(&mut self, id: ConnectionId) {
        let owed = &mut self.owed[id.index as usize];
        let answers = (*owed).min(ANSWERS_MAX);
        if answers == 0 || self.ring.is_sending(id) {
            return;
        }
        *owed -= answers;
        let len = answers as usize * ANSWER.len();
        self.ring.send(id, |bytes| {
            for place in bytes[..len].chunks_exact_mut(ANSWER.len()) {
                place.copy_from_slice(&ANSWER);
            }
            len
        });
    }

    fn take_in(&mut self) -> io::Result<()> {
        while let Ok(socket) = self.inbox.try_recv() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.owed.push(0);
                u32::try_from(self.owed.len() - 1).expect("no more than slots")
            });
            self.generation = self.generation.wrapping_add(1);
            let id = ConnectionId { index, generation: self.generation };
            self.ring.attach(id, socket)?;
            self.ring.read(id, Reading::Stream);
        }
        Ok(())
    }

    fn forget(&mut self, id: ConnectionId) {
        self.owed[id.index as usize] = 0;
        self.free.push(id.index);
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.bell.ring();
    }
}
