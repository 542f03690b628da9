//! The clients of one server: many connections, on as many rings as it takes.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use monolock_core::wire::{Acquire, ERROR, ErrorCode, HEARTBEAT, encode_acquire};
use monolock_ring::{Config, ConnectionId, Event, Reading, Ring};

/// How often what is due is sent.
const TICK: Duration = Duration::from_millis(1);

/// How long a server may take for its last answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The length of ACQUIRED, and of the yardstick's answer.
const ANSWER_LEN: u8 = 9;

/// The length of WAITING. In a queue more than that may come at any time.
const ANSWER_IN_QUEUE_LEN: u8 = 1;

/// Connections to one address, before another one is taken. Each leaves a port behind for a minute.
const PORTS_AN_ADDRESS: u32 = 8000;

/// Connections on one ring. Its table can't be larger than the limit of open files, and needn't
/// count against it.
const PLACES_A_RING: u32 = 16_000;

/// New connections that wait for their answers, before the next one comes. More than a listener's
/// queue takes would wait a second for their next attempt, and everybody here with them.
const UNANSWERED_MAX: u32 = 1024;

/// What a client sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// An ACQUIRE of a lock that nobody else has, with a name of 16 bytes.
    Acquire { lease_ms: NonZeroU32 },
    /// An ACQUIRE of the lock that all others with this greeting want too.
    Queue { lease_ms: NonZeroU32 },
    /// One byte.
    Byte,
    /// Nothing at all.
    None,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    Open,
    /// The server has said that it shuts down.
    Dismissed,
    /// This side has closed.
    Closing,
}

#[derive(Clone, Copy, Default)]
struct Client {
    generation: u32,
    /// When it last sent something, in milliseconds since the clients were made.
    sent_at_ms: u32,
    /// Bytes of an answer that are still to come.
    awaited: u8,
    state: State,
}

/// How connections have ended that this side has not closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// After the server has said that it shuts down.
    pub(crate) dismissed: u32,
    /// In any other way.
    pub(crate) otherwise: u32,
    /// Of those, the ones that had been silent for less than their lease.
    pub(crate) within_lease: u32,
}

/// Heartbeats that are to be sent, evenly spread over time and sessions.
struct Pace {
    sessions: u32,
    a_second: u32,
    start: Instant,
    /// How many were due so far and are sent, or given up.
    passed: u32,
}

pub(crate) struct Clients {
    rings: Vec<Ring>,
    server: SocketAddr,
    clients: Vec<Client>,
    start: Instant,
    lease_ms: u32,
    /// They are all in one queue.
    in_queue: bool,
    /// How many await an answer.
    awaiting: u32,
    /// How many answers have come.
    answered: u32,
    /// How many connections there ever were.
    connected: u32,
    /// How many places have a connection.
    open: u32,
    ended: Ended,
    longest_silence_ms: u32,
    longest_wait_ms: u32,
    /// The session whose heartbeat is next.
    next: u32,
}

impl Clients {
    /// Room for `most` connections at a time.
    pub(crate) fn new(server: SocketAddr, most: u32) -> Result<Clients, Box<dyn Error>> {
        let slots = most.min(PLACES_A_RING);
        let rings = (0..most.div_ceil(PLACES_A_RING))
            .map(|_| Ring::new(&Config { slots, ..Config::default() }))
            .collect::<Result<_, _>>()?;
        Ok(Clients {
            rings,
            server,
            clients: vec![Client::default(); most as usize],
            start: Instant::now(),
            lease_ms: u32::MAX,
            in_queue: false,
            awaiting: 0,
            answered: 0,
            connected: 0,
            open: 0,
            ended: Ended::default(),
            longest_silence_ms: 0,
            longest_wait_ms: 0,
            next: 0,
        })
    }

    /// How connections have ended that were not closed here.
    pub(crate) fn ended(&self) -> Ended {
        self.ended
    }

    /// The longest time between two frames of one session so far, and the longest that one waited
    /// for its answer.
    pub(crate) fn longest(&self) -> [Duration; 2] {
        [self.longest_silence_ms, self.longest_wait_ms].map(|ms| Duration::from_millis(ms.into()))
    }

    /// Opens connections up to the `count`-th place, and waits until all are answered.
    pub(crate) fn open(&mut self, count: u32, greeting: Greeting) -> Result<(), Box<dyn Error>> {
        self.open_beating(count, greeting, 0)
    }

    /// The same, while those that are open already have their share of so many heartbeats a second.
    pub(crate) fn open_beating(
        &mut self,
        count: u32,
        greeting: Greeting,
        beats_a_second: u32,
    ) -> Result<(), Box<dyn Error>> {
        let mut pace = Pace::new(count, beats_a_second);
        for index in 0..count {
            if self.clients[index as usize].state == State::Absent {
                self.connect(index, greeting)?;
            }
            if index % 64 == 63 {
                self.beat_due(&mut pace);
                self.turn()?;
            }
            let deadline = Instant::now() + PATIENCE;
            while self.awaiting > UNANSWERED_MAX {
                self.beat_due(&mut pace);
                self.turn()?;
                if Instant::now() > deadline {
                    return Err(self.missing());
                }
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
        let answered = self.answered;
        let mut pace = Pace::new(count, rate);
        while pace.start.elapsed() < duration {
            self.beat_due(&mut pace);
            // It doesn't sleep: a server pays for waking whom it answers, and whether the client
            // just fell asleep or just did not would be the larger part of every difference.
            self.turn()?;
        }
        self.settle()?;
        Ok(self.answered - answered)
    }

    /// One heartbeat from each, as fast as it goes, whether or not they are answered.
    pub(crate) fn beat_all(&mut self) -> Result<(), Box<dyn Error>> {
        for index in 0..u32::try_from(self.clients.len())? {
            let client = self.clients[index as usize];
            if client.state == State::Open && client.awaited == 0 {
                self.send(index, &[HEARTBEAT]);
            }
            if index % 64 == 63 {
                self.turn()?;
            }
        }
        Ok(self.turn()?)
    }

    fn beat_due(&mut self, pace: &mut Pace) {
        let now_ms = self.now_ms();
        for _ in 0..pace.take_due() {
            // Another order than that in which they connected, the same each time: a stride that
            // has no factor in common with usual counts.
            self.next = (self.next + 7919) % pace.sessions;
            let client = self.clients[self.next as usize];
            if client.state == State::Open && client.awaited == 0 {
                let silence_ms = now_ms.saturating_sub(client.sent_at_ms);
                self.longest_silence_ms = self.longest_silence_ms.max(silence_ms);
                self.send(self.next, &[HEARTBEAT]);
            }
        }
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
                if self.clients[index as usize].state != State::Absent {
                    // Still closing: the next tick will find it free.
                    break;
                }
                self.connect(index, greeting)?;
                done += 1;
            }
            self.turn_within(TICK)?;
            self.close_answered();
        }
        self.settle()?;
        self.close_answered();
        self.wait_for_closed()
    }

    /// Closes all that are open, as fast as it goes, and waits until no connection is left.
    pub(crate) fn close_all(&mut self) -> Result<(), Box<dyn Error>> {
        for index in 0..u32::try_from(self.clients.len())? {
            let client = &mut self.clients[index as usize];
            if client.state == State::Open {
                self.awaiting -= u32::from(client.awaited > 0);
                client.awaited = 0;
                self.close(index);
            }
            if index % 64 == 63 {
                self.turn()?;
            }
        }
        self.wait_for_closed()
    }

    /// Waits until no connection is left.
    pub(crate) fn wait_for_closed(&mut self) -> Result<(), Box<dyn Error>> {
        let mut open = self.open;
        let mut deadline = Instant::now() + PATIENCE;
        while self.open > 0 {
            self.turn()?;
            if self.open < open {
                open = self.open;
                deadline = Instant::now() + PATIENCE;
            } else if Instant::now() > deadline {
                return Err(format!("{open} connections don't close").into());
            }
        }
        Ok(())
    }

    fn close_answered(&mut self) {
        for index in 0..u32::try_from(self.clients.len()).expect("counted in u32") {
            let client = &self.clients[index as usize];
            if client.state == State::Open && client.awaited == 0 {
                self.close(index);
            }
        }
    }

    fn connect(&mut self, index: u32, greeting: Greeting) -> Result<(), Box<dyn Error>> {
        self.connected += 1;
        let host = u8::try_from(1 + self.connected / PORTS_AN_ADDRESS % 200)?;
        let address = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), self.server.port()));
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let (ring, id) = self.ring(index, self.connected);
        ring.attach(id, OwnedFd::from(socket))?;
        ring.read(id, Reading::Stream);
        let generation = self.connected;
        self.clients[index as usize] =
            Client { generation, state: State::Open, ..Client::default() };
        self.open += 1;
        match greeting {
            Greeting::Acquire { lease_ms } => {
                self.acquire(index, &format!("bench/{generation:010}"), lease_ms);
            }
            Greeting::Queue { lease_ms } => {
                self.in_queue = true;
                self.acquire(index, "bench/queue", lease_ms);
            }
            Greeting::Byte => self.send(index, &[HEARTBEAT]),
            Greeting::None => {}
        }
        Ok(())
    }

    fn acquire(&mut self, index: u32, name: &str, lease_ms: NonZeroU32) {
        self.lease_ms = lease_ms.get();
        let mut frame = Vec::new();
        encode_acquire(Acquire { lease_ms, name }, &mut frame);
        self.send(index, &frame);
    }

    /// Where the connection of a place is.
    fn ring(&mut self, index: u32, generation: u32) -> (&mut Ring, ConnectionId) {
        let ring = &mut self.rings[(index / PLACES_A_RING) as usize];
        (ring, ConnectionId { index: index % PLACES_A_RING, generation })
    }

    fn send(&mut self, index: u32, bytes: &[u8]) {
        let sent_at_ms = self.now_ms();
        let (ring, id) = self.ring(index, self.clients[index as usize].generation);
        if ring.is_sending(id) {
            return;
        }
        ring.send(id, |place| {
            place[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        let client = &mut self.clients[index as usize];
        client.awaited += if self.in_queue { ANSWER_IN_QUEUE_LEN } else { ANSWER_LEN };
        client.sent_at_ms = sent_at_ms;
        self.awaiting += 1;
    }

    fn close(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        client.state = State::Closing;
        let generation = client.generation;
        let (ring, id) = self.ring(index, generation);
        ring.close(id);
    }

    /// Waits until all is answered.
    pub(crate) fn settle(&mut self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + PATIENCE;
        while self.awaiting > 0 {
            self.turn_within(TICK)?;
            if Instant::now() > deadline {
                return Err(self.missing());
            }
        }
        Ok(())
    }

    fn missing(&self) -> Box<dyn Error> {
        format!("{} answers are missing after {PATIENCE:?}", self.awaiting).into()
    }

    /// Sends what is asked for and takes in what has come.
    fn turn(&mut self) -> io::Result<()> {
        self.turn_within(Duration::ZERO)
    }

    /// The same, and waits so long for something to come. With several rings it doesn't wait: there
    /// is always something on one of them.
    fn turn_within(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.rings.len() == 1 { timeout } else { Duration::ZERO };
        for ring in 0..self.rings.len() {
            self.rings[ring].wait(Some(timeout))?;
            self.take_in(ring);
        }
        Ok(())
    }

    fn take_in(&mut self, ring: usize) {
        let now_ms = self.now_ms();
        let first = u32::try_from(ring).expect("few") * PLACES_A_RING;
        while let Some(event) = self.rings[ring].next_event() {
            match event {
                Event::Received { id, bytes } => {
                    let client = &mut self.clients[(first + id.index) as usize];
                    let awaited = usize::from(client.awaited);
                    let (answer, rest) = bytes.split_at(bytes.len().min(awaited));
                    if !rest.is_empty() && client.state == State::Open && !self.in_queue {
                        assert!(is_dismissal(rest), "{id:?} was sent {rest:?}");
                        client.state = State::Dismissed;
                    }
                    client.awaited -= u8::try_from(answer.len()).expect("a part of an answer");
                    if client.awaited == 0 && awaited > 0 {
                        self.awaiting -= 1;
                        self.answered += 1;
                        let wait_ms = now_ms.saturating_sub(client.sent_at_ms);
                        self.longest_wait_ms = self.longest_wait_ms.max(wait_ms);
                    }
                }
                Event::Closed { id } => {
                    self.clients[(first + id.index) as usize].state = State::Absent;
                    self.open -= 1;
                }
                Event::EndOfStream { id }
                | Event::ReceiveFailed { id, .. }
                | Event::SendFailed { id, .. } => self.end(first + id.index, now_ms),
                Event::Sent { .. }
                | Event::SendBlocked { .. }
                | Event::Silent { .. }
                | Event::Woken => {}
                Event::Detached { .. } | Event::DetachFailed { .. } => {
                    unreachable!("nothing leaves this ring")
                }
            }
        }
    }

    /// The server has ended a connection.
    fn end(&mut self, index: u32, now_ms: u32) {
        let client = &mut self.clients[index as usize];
        let silence_ms = now_ms.saturating_sub(client.sent_at_ms);
        match client.state {
            State::Absent | State::Closing => return,
            State::Dismissed => self.ended.dismissed += 1,
            State::Open => {
                self.ended.otherwise += 1;
                self.ended.within_lease += u32::from(silence_ms < self.lease_ms);
            }
        }
        self.awaiting -= u32::from(client.awaited > 0);
        client.awaited = 0;
        self.close(index);
    }

    fn now_ms(&self) -> u32 {
        u32::try_from(self.start.elapsed().as_millis()).expect("a run of minutes")
    }
}

impl Pace {
    fn new(sessions: u32, a_second: u32) -> Pace {
        Pace { sessions, a_second, start: Instant::now(), passed: 0 }
    }

    /// How many are due, a hundredth of a second's at most: if the machine stood still, what was
    /// missed is not made up for in one burst, and no more than a tenth of a second's ever.
    fn take_due(&mut self) -> u32 {
        let due = due(self.start, self.a_second);
        self.passed = self.passed.max(due.saturating_sub(self.a_second / 10));
        let taken = (due - self.passed).min(self.a_second.div_ceil(100));
        self.passed += taken;
        taken
    }
}

/// Whether this is the ERROR of a server that shuts down.
fn is_dismissal(bytes: &[u8]) -> bool {
    matches!(bytes, [ERROR, code, ..] if *code == ErrorCode::SHUTTING_DOWN.get())
}

/// How many of `rate` a second should have been done since `start`.
fn due(start: Instant, rate: u32) -> u32 {
    let due = start.elapsed().as_micros() * u128::from(rate) / 1_000_000;
    u32::try_from(due).expect("a run of minutes")
}
