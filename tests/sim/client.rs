//! The clients: at each place one connection after the other, each after a plan of its own.

use super::frames::{Answered, ServerStream};
use super::network::Network;
use super::sighting::Connection;
use super::workload::{LOCKS, Leaving, Opening, Plan};

/// What a client means to do at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Connect,
    Beat,
    Pause,
    Resume,
    GoDeaf,
    /// It has had the lock for long enough.
    Finish,
    /// It has waited for long enough.
    LosePatience,
    /// It has talked on for long enough after an ERROR.
    FallSilent,
    /// Whatever has happened: this connection has lasted for too long.
    GoAway,
}

/// Later moves of one client, each of one connection.
pub(crate) type Moves = Vec<(u64, Connection, Move)>;

/// One place for clients.
pub(crate) struct Client {
    /// The connection of now, the last one if it is gone.
    connection: Option<Connection>,
    plan: Plan,
    answers: ServerStream,
    has_lock: bool,
    is_paused: bool,
    /// Nothing more is sent.
    is_done: bool,
    is_gone: bool,
}

impl Client {
    pub(crate) fn new(plan: Plan) -> Client {
        Client {
            connection: None,
            plan,
            answers: ServerStream::default(),
            has_lock: false,
            is_paused: false,
            is_done: false,
            is_gone: true,
        }
    }

    /// Whether this is the connection of now.
    pub(crate) fn has(&self, connection: Connection) -> bool {
        self.connection == Some(connection)
    }

    /// The connection of now, unless it is gone.
    pub(crate) fn connection(&self) -> Option<Connection> {
        self.connection.filter(|_| !self.is_gone)
    }

    pub(crate) fn connect(&mut self, plan: Plan, network: &mut Network, now: u64) -> Moves {
        let connection = network.open(plan.delay, plan.room, now);
        *self = Client { connection: Some(connection), is_gone: false, ..Client::new(plan) };
        self.open(network, now);
        let (plan, mut moves) = (&self.plan, Vec::new());
        moves.push((now + plan.patience, connection, Move::LosePatience));
        let long = plan.patience + plan.hold * 4 + plan.talks_on;
        moves.push((now + long, connection, Move::GoAway));
        if let Some((after, _)) = plan.pause {
            moves.push((now + after, connection, Move::Pause));
        }
        if let Some(after) = plan.deaf_from {
            moves.push((now + after, connection, Move::GoDeaf));
        }
        if plan.beat_every > 0 && plan.opening == Opening::Acquire {
            moves.push((now + plan.beat_every, connection, Move::Beat));
        }
        moves
    }

    fn open(&mut self, network: &mut Network, now: u64) {
        let mut bytes = match self.plan.opening {
            Opening::Acquire => self.acquire(),
            Opening::PartOfAcquire(len) => self.acquire()[..len].to_vec(),
            Opening::Nothing => Vec::new(),
            Opening::Wrong(bytes) => bytes.to_vec(),
        };
        // The first heartbeats may share a segment with the ACQUIRE.
        if self.plan.opening == Opening::Acquire && self.plan.beats_at_once > 1 {
            bytes.extend(vec![0x02; self.plan.beats_at_once]);
        }
        self.say(&bytes, network, now);
    }

    fn acquire(&self) -> Vec<u8> {
        let name = LOCKS[self.plan.lock].as_bytes();
        let len = u16::try_from(name.len()).expect("short");
        [&[1, 1][..], &self.plan.lease_ms.to_be_bytes(), &len.to_be_bytes(), name].concat()
    }

    fn say(&mut self, bytes: &[u8], network: &mut Network, now: u64) {
        let Some(connection) = self.connection() else { return };
        for (number, piece) in (0..).zip(bytes.chunks(self.plan.piece)) {
            network.client_send(connection, piece.to_vec(), now + number * self.plan.piece_gap);
        }
    }

    /// Does what it meant to do at this time, and tells what it means to do later.
    pub(crate) fn act(&mut self, step: Move, network: &mut Network, now: u64) -> Moves {
        let Some(connection) = self.connection() else { return Vec::new() };
        match step {
            Move::Connect => unreachable!("a connection is begun by a plan"),
            Move::Beat if self.is_done => {}
            Move::Beat => {
                if !self.is_paused {
                    self.say(&vec![0x02; self.plan.beats_at_once], network, now);
                }
                return vec![(now + self.plan.beat_every, connection, Move::Beat)];
            }
            Move::Pause => {
                self.is_paused = true;
                network.set_reads(connection, false);
                let (_, len) = self.plan.pause.expect("it has one");
                return vec![(now + len, connection, Move::Resume)];
            }
            Move::Resume => {
                self.is_paused = false;
                network.set_reads(connection, true);
            }
            Move::GoDeaf => network.set_reads(connection, false),
            Move::Finish => self.leave(network, now),
            Move::LosePatience if !self.has_lock => self.leave(network, now),
            Move::LosePatience => {}
            Move::FallSilent => self.go(network, now),
            Move::GoAway => {
                network.client_reset(connection, now);
                self.is_gone = true;
            }
        }
        Vec::new()
    }

    fn leave(&mut self, network: &mut Network, now: u64) {
        let Some(connection) = self.connection() else { return };
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        match self.plan.leaving {
            Leaving::Close => self.go(network, now),
            Leaving::HalfClose => network.client_shut(connection, now),
            Leaving::Reset => {
                network.client_reset(connection, now);
                self.is_gone = true;
            }
            Leaving::Silence => {}
            Leaving::Wrong(bytes) => self.say(bytes, network, now),
        }
    }

    fn go(&mut self, network: &mut Network, now: u64) {
        if let Some(connection) = self.connection() {
            network.client_close(connection, now);
            self.is_done = true;
            self.is_gone = true;
        }
    }

    /// Reads what the server said.
    pub(crate) fn hear(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        network: &mut Network,
        now: u64,
    ) -> Moves {
        let Some(connection) = self.connection() else { return Vec::new() };
        let mut moves = Vec::new();
        for answer in self.answers.hear(bytes) {
            match answer {
                Answered::Acquired(_) if !self.has_lock => {
                    self.has_lock = true;
                    moves.push((now + self.plan.hold, connection, Move::Finish));
                }
                Answered::Error(_) => {
                    self.is_done |= self.plan.talks_on == 0;
                    self.flood(network, now);
                    moves.push((now + self.plan.talks_on, connection, Move::FallSilent));
                }
                Answered::Waiting | Answered::Acquired(_) | Answered::Nonsense => {}
            }
        }
        if at_end && moves.is_empty() && self.plan.talks_on == 0 {
            self.go(network, now);
        }
        moves
    }

    /// A client that does not care for the ERROR sends more than anybody reads away.
    fn flood(&mut self, network: &mut Network, now: u64) {
        if let (true, Some(connection)) = (self.plan.flood, self.connection()) {
            for _ in 0..40 {
                network.client_send(connection, vec![0x02; 32 << 10], now);
            }
        }
    }

    /// The connection is broken.
    pub(crate) fn lose(&mut self) {
        self.is_gone = true;
    }

    /// What it does when the world comes to its end.
    pub(crate) fn wind_up(&mut self, network: &mut Network, now: u64) {
        self.is_done = false;
        self.leave(network, now);
    }

    /// How long it rests before it comes again, told once for each connection that is gone.
    pub(crate) fn rest(&mut self) -> Option<u64> {
        (self.is_gone && self.connection.take().is_some()).then_some(self.plan.rest)
    }
}
