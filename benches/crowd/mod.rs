//! An engine full of sessions, and as much of its driver as it takes to keep it going.

use std::hint::black_box;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::Effect;
use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{ACQUIRE_HEADER_LEN, Acquire, HEARTBEAT, encode_acquire};

/// How long the bench's claims may be silent.
const LEASE_MS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");

/// The lock that all in a queue ask for.
const QUEUED: &[u8; 16] = b"nightly/import-1";

/// What comes in together in one turn of the event loop.
const TURN: usize = 64;

/// As many deadlines as the server passes in one turn.
const DEADLINES_A_TURN: usize = 256;

/// An engine and the sessions in it.
pub(crate) struct Crowd {
    engine: Engine,
    sessions: Vec<SessionId>,
    now: Now,
    /// The session whose turn it is.
    next: usize,
    names: u64,
    /// An ACQUIRE with a name of 16 bytes.
    acquire: Vec<u8>,
    frames: [u8; 512],
    /// Who was sent something in this turn.
    sending: Vec<SessionId>,
}

impl Crowd {
    /// `count` sessions, each the holder of a lock of its own with a name of 16 bytes, in random
    /// order. They have come spread over most of a lease.
    pub(crate) fn of_holders(count: usize) -> Crowd {
        let mut crowd = Crowd::empty(count);
        for place in 0..count {
            crowd.pass_time(3);
            crowd.sessions[place] = crowd.claim_another();
        }
        crowd.shuffle();
        crowd
    }

    /// The holder of one lock, and behind it a queue of the others, in the order of the queue.
    pub(crate) fn in_one_queue(count: usize) -> Crowd {
        let mut crowd = Crowd::empty(count);
        for place in 0..count {
            crowd.sessions[place] = crowd.claim(*QUEUED);
        }
        crowd
    }

    /// Room for `count` sessions and a few more. The list of sessions is there from the start, so
    /// that what is allocated from here on is the engine's.
    fn empty(count: usize) -> Crowd {
        let config = EngineConfig {
            sessions_max: u32::try_from(count).expect("a number of sessions") + 16,
            io_timeout: Duration::from_secs(5),
            lease_max_ms: None,
            hash_key: *b"sixteen bytes...",
        };
        let mut acquire = Vec::new();
        let name = str::from_utf8(QUEUED).expect("ASCII");
        encode_acquire(Acquire { lease_ms: LEASE_MS, name }, &mut acquire);
        Crowd {
            engine: Engine::new(config, Arc::new(TokenMint::new())),
            sessions: vec![SessionId { index: u32::MAX, generation: u32::MAX }; count],
            now: Now {
                instant: Instant::from_nanos(1 << 40),
                unix: UnixTime::new(1_785_000_000, 123_456_789),
            },
            next: 0,
            names: 0,
            acquire,
            frames: [0; 512],
            sending: Vec::new(),
        }
    }

    /// Connects a session and lets it ask for a lock that nobody else has asked for.
    fn claim_another(&mut self) -> SessionId {
        self.names += 1;
        // The name differs from others in all its 16 bytes, as clients' names may.
        let number = self.names.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut name = *b"................";
        for (place, shift) in name.iter_mut().zip((0..64).step_by(4)) {
            *place = b'a' + (number >> shift & 15) as u8;
        }
        self.claim(name)
    }

    fn shuffle(&mut self) {
        fastrand::Rng::with_seed(1).shuffle(&mut self.sessions);
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        self.engine.sessions()
    }

    /// Connects a session and lets it ask for a lock.
    fn claim(&mut self, name: [u8; 16]) -> SessionId {
        let peer = PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], 52_114)));
        let session = self.engine.connect(peer, self.now).expect("room for it");
        self.acquire[ACQUIRE_HEADER_LEN..].copy_from_slice(&name);
        self.engine.receive(session, &self.acquire, self.now);
        self.carry_out();
        session
    }

    /// `count` heartbeats, one after the other from all sessions, and their answers, in turns of
    /// [`TURN`] as the server would take them in. Each session beats four times a lease.
    pub(crate) fn heartbeats(&mut self, mut count: usize) {
        while count > 0 {
            if self.next == self.sessions.len() {
                self.next = 0;
            }
            let end = (self.next + TURN.min(count)).min(self.sessions.len());
            for &session in &self.sessions[self.next..end] {
                self.engine.receive(session, &[HEARTBEAT], self.now);
                black_box(self.engine.reading(session));
            }
            black_box(self.engine.wake_at(self.now));
            self.carry_out();
            self.pass_time(end - self.next);
            count -= end - self.next;
            self.next = end;
        }
    }

    /// The time in which so many of the sessions have a heartbeat to send.
    fn pass_time(&mut self, heartbeats: usize) {
        let interval = u64::from(LEASE_MS.get() / 4) * 1_000_000;
        let nanos = interval * heartbeats as u64 / self.sessions.len() as u64;
        self.now.instant = Instant::from_nanos(self.now.instant.as_nanos() + nanos);
    }

    /// `count` times: a session connects, is granted a lock and leaves.
    pub(crate) fn claims(&mut self, count: usize) {
        for _ in 0..count {
            let session = self.claim_another();
            self.leave(session);
        }
    }

    /// `count` times: the holder of a queue's lock leaves, the next one is granted it, and who left
    /// comes back at the end. Only for a crowd in one queue.
    pub(crate) fn handovers(&mut self, count: usize) {
        for _ in 0..count {
            let place = self.next % self.sessions.len();
            self.leave(self.sessions[place]);
            self.sessions[place] = self.claim(*QUEUED);
            self.next = place + 1;
        }
    }

    /// Every second session is reset, from the end of the list to its beginning, so that waiters
    /// leave the middle of their queue. Returns how many.
    pub(crate) fn drop_half(&mut self) -> usize {
        let before = self.len();
        for place in (1..self.sessions.len()).step_by(2).rev() {
            self.engine.disconnected(self.sessions[place], self.now);
            if place % TURN == 1 {
                self.carry_out();
            }
        }
        self.carry_out();
        before - self.len()
    }

    /// The leases of all sessions pass at once. Returns how many.
    pub(crate) fn expire_all(&mut self) -> usize {
        let before = self.len();
        self.now.instant = self.now.instant.after_ms(LEASE_MS.get());
        while self.engine.wake_at(self.now).is_some_and(|at| at <= self.now.instant) {
            self.engine.expire(self.now, DEADLINES_A_TURN);
            self.carry_out();
        }
        before - self.len()
    }

    fn leave(&mut self, session: SessionId) {
        self.engine.end_of_stream(session, self.now);
        self.carry_out();
    }

    /// Does what the engine asks for, and in a second round tells it that all was sent, as the
    /// ring would in the turn after.
    fn carry_out(&mut self) {
        loop {
            while let Some(effect) = self.engine.poll_effect() {
                match effect {
                    Effect::Transmit(session) => {
                        if self.engine.transmit(session, &mut self.frames) > 0 {
                            self.sending.push(session);
                        }
                    }
                    Effect::Probe(session) => self.engine.silent(session, self.now),
                    Effect::ShutdownWrite(_) => {}
                    Effect::Close(session) => {
                        self.engine.forget(session);
                    }
                    Effect::Move { .. } | Effect::GiveBackPlace { .. } => {
                        unreachable!("there is one shard")
                    }
                }
            }
            while self.engine.poll_change().is_some() {}
            if self.sending.is_empty() {
                return;
            }
            for session in self.sending.drain(..) {
                self.engine.sent(session, self.now);
                black_box(self.engine.reading(session));
            }
        }
    }
}
