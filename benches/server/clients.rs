//! The clients of one server: many connections on one ring.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use monolock_core::wire::HEARTBEAT;
use monolock_ring::{Config, ConnectionId, Event, Reading, Ring};

/// How often what is due is sent.
const TICK: Duration = Duration::from_millis(1);

/// How long a server may take for its last answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The length of ACQUIRED, and of the yardstick's answer.
const ANSWER_LEN: u32 = 9;

/// Connections to one address, before another one is taken. Each leaves a port behind for a minute.
const PORTS_AN_ADDRESS: u32 = 8000;

/// More than ever connect in a run: from here on others count their connections.
const OTHERS: u32 = 1_000_000_000;

/// What a client sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// An ACQUIRE of a lock that nobody else has, with a name of 16 bytes and a lease of an hour.
    Acquire,
    /// One byte.
    Byte,
    /// Nothing at all.
    None,
}

#[derive(Clone, Copy, Default)]
struct Client {
    generation: u32,
    /// Bytes of an answer that are still to come.
    awaited: u32,
    is_open: bool,
}

pub(crate) struct Clients {
    ring: Ring,
    server: SocketAddr,
    clients: Vec<Client>,
    /// How many await an answer.
    awaiting: u32,
    /// How many answers have come.
    answered: u32,
    /// How many connections there ever were.
    connected: u32,
    /// The session whose heartbeat is next.
    next: u32,
}

impl Clients {
    /// Room for `most` connections at a time.
    pub(crate) fn new(server: SocketAddr, most: u32) -> Result<Clients, Box<dyn Error>> {
        let ring = Ring::new(&Config { slots: most, ..Config::default() })?;
        let clients = vec![Client::default(); most as usize];
        Ok(Clients { ring, server, clients, awaiting: 0, answered: 0, connected: 0, next: 0 })
    }

    /// Opens connections to the same server that stay, and claim other locks.
    pub(crate) fn open_others(
        &self,
        count: u32,
        greeting: Greeting,
    ) -> Result<Clients, Box<dyn Error>> {
        let mut others = Clients::new(self.server, count.max(1))?;
        others.connected = OTHERS;
        others.open(count, greeting)?;
        Ok(others)
    }

    /// Opens connections up to the `count`-th place, and waits until all are answered.
    pub(crate) fn open(&mut self, count: u32, greeting: Greeting) -> Result<(), Box<dyn Error>> {
        for index in 0..count {
            if !self.clients[index as usize].is_open {
                self.connect(index, greeting)?;
            }
            if index % 64 == 63 {
                self.turn(Duration::ZERO)?;
            }
        }
        self.settle()
    }

    /// For `duration`, `rate` heartbeats a second from the first `count` sessions, each in its turn
    /// and each only when its last one was answered. Returns how many were answered.
    pub(crate) fn beat(
        &mut self,
        count: u32,
        rate: u32,
        duration: Duration,
    ) -> Result<u32, Box<dyn Error>> {
        let (start, answered) = (Instant::now(), self.answered);
        let mut passed = 0;
        while start.elapsed() < duration {
            let due = due(start, rate);
            // If the machine stood still, what was missed is not made up for in one burst.
            for _ in 0..(due - passed).min(rate / 100) {
                let index = self.next_in_order(count);
                if self.clients[index as usize].awaited == 0 {
                    self.send(index, &[HEARTBEAT]);
                }
            }
            passed = due;
            // It doesn't sleep: a server pays for waking whom it answers, and whether the client
            // just fell asleep or just did not would be the larger part of every difference.
            self.turn(Duration::ZERO)?;
        }
        self.settle()?;
        Ok(self.answered - answered)
    }

    /// `count` connections at `rate` a second, each of which is closed as soon as it is answered,
    /// or, without a greeting, as soon as it is there.
    pub(crate) fn come_and_go(
        &mut self,
        count: u32,
        rate: u32,
        greeting: Greeting,
    ) -> Result<(), Box<dyn Error>> {
        let places = u32::try_from(self.clients.len())?;
        let start = Instant::now();
        let mut done = 0;
        while done < count {
            while done < due(start, rate).min(count) {
                let index = done % places;
                if self.clients[index as usize].is_open {
                    // Still closing: the next tick will find it free.
                    break;
                }
                self.connect(index, greeting)?;
                done += 1;
            }
            self.turn(TICK)?;
            self.close_answered();
        }
        self.settle()?;
        self.close_answered();
        let deadline = Instant::now() + PATIENCE;
        while self.clients.iter().any(|client| client.is_open) {
            self.turn(TICK)?;
            if Instant::now() > deadline {
                return Err("connections don't close".into());
            }
        }
        Ok(())
    }

    fn close_answered(&mut self) {
        for (index, client) in (0..).zip(&self.clients) {
            if client.is_open && client.awaited == 0 {
                self.ring.close(ConnectionId { index, generation: client.generation });
            }
        }
    }

    /// Another order than that in which they connected, the same each time: a stride that has no
    /// factor in common with usual counts.
    fn next_in_order(&mut self, count: u32) -> u32 {
        self.next = (self.next + 7919) % count;
        self.next
    }

    fn connect(&mut self, index: u32, greeting: Greeting) -> Result<(), Box<dyn Error>> {
        self.connected += 1;
        let host = u8::try_from(1 + self.connected / PORTS_AN_ADDRESS % 200)?;
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), self.server.port()));
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let id = ConnectionId { index, generation: self.connected };
        self.ring.attach(id, OwnedFd::from(socket))?;
        self.clients[index as usize] =
            Client { generation: id.generation, awaited: 0, is_open: true };
        self.ring.read(id, Reading::Stream);
        match greeting {
            Greeting::Acquire => {
                let mut frame = *b"\x01\x01\x00\x36\xee\x80\x00\x10bench/0000000000";
                let number = format!("{:010}", self.connected);
                frame[14..].copy_from_slice(number.as_bytes());
                self.send(index, &frame);
            }
            Greeting::Byte => self.send(index, &[HEARTBEAT]),
            Greeting::None => {}
        }
        Ok(())
    }

    fn send(&mut self, index: u32, bytes: &[u8]) {
        let client = &mut self.clients[index as usize];
        let id = ConnectionId { index, generation: client.generation };
        if self.ring.is_sending(id) {
            return;
        }
        client.awaited += ANSWER_LEN;
        self.awaiting += 1;
        self.ring.send(id, |place| {
            place[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
    }

    /// Waits until all is answered.
    fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        while self.awaiting > 0 {
            self.turn(TICK)?;
            if Instant::now() > deadline {
                return Err(format!("{} answers are missing", self.awaiting).into());
            }
        }
        Ok(())
    }

    /// Sends what is asked for and takes in what has come.
    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        self.ring.wait(Some(timeout))?;
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { id, bytes } => {
                    let len = u32::try_from(bytes.len()).expect("a buffer's length");
                    let client = &mut self.clients[id.index as usize];
                    client.awaited = client.awaited.checked_sub(len).expect("one answer for each");
                    let is_whole = client.awaited == 0;
                    self.awaiting -= u32::from(is_whole);
                    self.answered += u32::from(is_whole);
                }
                Event::Closed { id } => self.clients[id.index as usize].is_open = false,
                Event::EndOfStream { id } => panic!("the server has closed {id:?}"),
                Event::ReceiveFailed { id, error } | Event::SendFailed { id, error } => {
                    panic!("{id:?} failed: {error}");
                }
                Event::Sent { .. }
                | Event::SendBlocked { .. }
                | Event::Silent { .. }
                | Event::Woken => {}
                Event::Detached { .. } | Event::DetachFailed { .. } => {
                    unreachable!("nothing leaves this ring")
                }
            }
        }
        Ok(())
    }
}

/// How many of `rate` a second should have been done since `start`.
fn due(start: Instant, rate: u32) -> u32 {
    let due = start.elapsed().as_micros() * u128::from(rate) / 1_000_000;
    u32::try_from(due).expect("a run of minutes")
}
