//! The engine against a naive model of the specification: drawn steps are taken by both, and after
//! every step all that can be seen of the engine is as the model has it.

mod model;
mod operation;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::counts::Counts;
use monolock_core::effect::{Effect, Ownership, OwnershipChange, Reading, ReleaseReason};
use monolock_core::engine::{Engine, EngineConfig, ForceReleaseError, NEAR, TableFull};
use monolock_core::fencing::{Token, TokenMint};
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::snapshot::ClaimView;
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{ErrorCode, ServerFrame, decode_server};
use proptest::prelude::*;

use model::{Asked, Change, Claimant, Frame, Line, Model, Read, Tally};
use operation::{LOCKS, Operation, Setup, Step, Story};

proptest! {
    // PROPTEST_CASES=100000 in release takes about a minute.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_does_what_the_specification_says(
        setup in operation::setup(),
        Story(operations) in operation::story(),
    ) {
        let mut trial = Trial::new(setup);
        for operation in operations {
            trial.take(operation);
        }
        trial.end();
    }
}

/// The engine and the model side by side.
struct Trial {
    engine: Engine,
    model: Model,
    clients: Vec<Client>,
}

/// A client as its driver knows it.
struct Client {
    id: SessionId,
    /// What it sent and nobody has read.
    unread: Vec<u8>,
}

impl Trial {
    fn new(setup: Setup) -> Trial {
        let config = EngineConfig {
            sessions_max: setup.sessions_max,
            io_timeout: setup.io_timeout,
            lease_max_ms: setup.lease_max_ms,
            hash_key: [1; 16],
        };
        // An up-time of 2^32 ms, where a counter of milliseconds would wrap.
        let model = Model::new(setup, (1 << 32) * 1_000_000, 1_786_190_400_999_999_000);
        let engine = Engine::new(config, Arc::new(TokenMint::new()));
        Trial { engine, model, clients: Vec::new() }
    }

    fn take(&mut self, operation: Operation) {
        match operation {
            Operation::Connect => self.connect(),
            Operation::Client(client, step) => {
                if client < self.clients.len() {
                    self.step(client, step);
                }
            }
            Operation::Pass(ms) => self.pass(ms * 1_000_000),
            Operation::PassToDeadline { short_of_it } => {
                if let Some(deadline) = self.model.next_deadline() {
                    let nanos = deadline.saturating_sub(self.model.now);
                    self.pass(nanos.saturating_sub(u64::from(short_of_it)));
                }
            }
            Operation::StepWallClock(secs) => {
                let nanos = self.model.unix_nanos.cast_signed() + i128::from(secs) * 1_000_000_000;
                self.model.unix_nanos = nanos.cast_unsigned();
            }
            Operation::Expire(limit) => self.expire(limit),
            Operation::ServeAll => self.serve_all(),
            Operation::ForceRelease(lock, whose) => {
                self.force_release(lock, self.model.token_of(lock, whose));
            }
            Operation::GrantFromNowOn(grants) => {
                if grants {
                    self.engine.resume_granting();
                } else {
                    self.engine.stop_granting();
                }
                self.model.grant_from_now_on(grants);
            }
            Operation::PromoteWaiters(limit) => self.promote_waiters(limit),
            Operation::ShutDown => self.shut_down(),
        }
        self.compare();
    }

    fn step(&mut self, client: usize, step: Step) {
        let Trial { engine, model, clients } = self;
        let id = clients[client].id;
        let now = now(model);
        match step {
            Step::Send(message) => {
                clients[client].unread.extend(message.bytes());
                self.deliver(client, usize::MAX);
            }
            Step::Say(message) => clients[client].unread.extend(message.bytes()),
            Step::Deliver(len) => self.deliver(client, len),
            Step::EndOfStream => {
                engine.end_of_stream(id, now);
                model.end_of_stream(client);
            }
            Step::Disconnected => {
                engine.disconnected(id, now);
                model.disconnected(client);
            }
            Step::Unreachable => {
                engine.unreachable(id, now);
                model.unreachable(client);
            }
            Step::Silent => {
                engine.silent(id, now);
                model.silent(client);
            }
            Step::Transmit(room) => self.transmit(client, room),
            Step::Sent => self.send(client),
            Step::Blocked => self.block(client),
            Step::Kick(lock) => {
                let kicked = engine.kick_waiter(LOCKS[lock], address(client), now);
                assert_eq!(kicked.ok(), model.kick(lock, client).then_some(id));
            }
            Step::Refuse(code) => {
                engine.refuse(id, ErrorCode::new(code), now);
                model.refuse(client, code);
            }
            Step::Forget => self.forget(client),
        }
    }

    fn connect(&mut self) {
        let client = self.clients.len();
        let now = self.now();
        match self.engine.connect(address(client), now) {
            Ok(id) => {
                assert_eq!(self.model.connect(), Some(client), "there was no room");
                self.clients.push(Client { id, unread: Vec::new() });
            }
            Err(TableFull) => assert_eq!(self.model.connect(), None, "there was room"),
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.model.now += nanos;
        self.model.unix_nanos += u128::from(nanos);
    }

    fn deliver(&mut self, client: usize, len: usize) {
        let now = self.now();
        let Client { id, unread } = &mut self.clients[client];
        let bytes: Vec<u8> = unread.drain(..len.min(unread.len())).collect();
        // No read ever gives nothing: that would be the end of the stream.
        if !bytes.is_empty() {
            self.engine.receive(*id, &bytes, now);
            self.model.receive(client, &bytes);
        }
    }

    /// Which of the clients with equal deadlines go first is the engine's affair.
    fn expire(&mut self, limit: usize) {
        let due = self.model.due();
        self.engine.expire(self.now(), limit);
        let asked = self.asked();
        let mut expired = 0;
        for asked in &asked {
            if let Asked::Probe(client) | Asked::Close(client) = *asked {
                self.model.expire(client);
                expired += 1;
            }
        }
        assert_eq!(expired, due.min(limit), "of {due} clients that are due");
        assert_alike(asked, std::mem::take(&mut self.model.asked));
    }

    fn transmit(&mut self, client: usize, room: usize) {
        if !self.model.is_asked_to_transmit(client) {
            return;
        }
        let mut out = vec![0; room];
        let len = self.engine.transmit(self.clients[client].id, &mut out);
        assert_eq!(frames(&out[..len]), self.model.transmit(client, room), "to client {client}");
    }

    fn send(&mut self, client: usize) {
        self.transmit(client, 1 << 10);
        if self.model.is_sending(client) {
            self.engine.sent(self.clients[client].id, self.now());
            self.model.sent(client);
        }
    }

    fn block(&mut self, client: usize) {
        self.transmit(client, 1 << 10);
        if self.model.is_sending(client) {
            self.engine.send_blocked(self.clients[client].id, self.now());
            self.model.blocked(client);
        }
    }

    fn force_release(&mut self, lock: usize, token: Option<u64>) {
        let given = token.and_then(Token::new);
        let forced = self.engine.force_release(LOCKS[lock], given, self.now());
        let expected = match self.model.force_release(lock, token) {
            Ok(client) => Ok(self.clients[client].id),
            Err(None) => Err(ForceReleaseError::NotHeld),
            Err(Some(held)) => Err(ForceReleaseError::OtherToken(Token::new(held).expect("held"))),
        };
        assert_eq!(forced, expected);
    }

    /// Which of the locks comes first is the engine's affair.
    fn promote_waiters(&mut self, limit: u32) {
        let mut from = Some(0);
        while let Some(place) = from {
            let (locks, _) = self.engine.locks_from(place, limit);
            let names: Vec<String> = locks.map(|lock| lock.name().to_string()).collect();
            from = self.engine.promote_waiters(place, limit, self.now());
            names.iter().for_each(|name| self.model.promote(name));
            self.compare();
        }
    }

    /// Which of the locks is let go first is the engine's affair; none changes hands twice.
    fn shut_down(&mut self) {
        self.engine.shut_down();
        let mut from = Some(0);
        while let Some(place) = from {
            from = self.engine.tell_of_shutdown(place, 3, self.now());
        }
        self.model.shut_down();
        let mut changes = self.changes();
        changes.sort_by_key(|change| change.lock().to_owned());
        self.model.changes.sort_by_key(|change| change.lock().to_owned());
        assert_eq!(changes, std::mem::take(&mut self.model.changes));
    }

    fn forget(&mut self, client: usize) {
        if self.model.is_closed(client) {
            assert_eq!(self.engine.forget(self.clients[client].id), address(client));
            self.model.forget(client);
        }
    }

    /// A driver that is in no hurry for anything else.
    fn serve_all(&mut self) {
        loop {
            self.compare();
            let clients = 0..self.clients.len();
            let Some(client) = clients.clone().find(|&client| {
                self.model.is_asked_to_transmit(client) || self.model.is_sending(client)
            }) else {
                clients.for_each(|client| self.forget(client));
                return;
            };
            self.transmit(client, 64 << 10);
            self.send(client);
        }
    }

    /// All clients leave, and nothing of them stays.
    fn end(mut self) {
        for client in 0..self.clients.len() {
            self.step(client, Step::Disconnected);
            self.compare();
            self.forget(client);
        }
        self.compare();
        assert_eq!(self.engine.sessions(), 0);
        assert_eq!(self.engine.wake_at(self.now()), None);
        let (mut locks, more) = self.engine.locks_from(0, u32::MAX);
        assert!(locks.next().is_none() && more.is_none());
        let gauges = tally(self.engine.counts());
        assert_eq!((gauges.connections, gauges.unclaimed), (0, 0));
        assert_eq!((gauges.locks_held, gauges.waiters), (0, 0));
    }

    /// The driver is woken for a deadline that is near, and far ahead at most in vain.
    fn compare_deadlines(&mut self) {
        let now = self.now();
        let wake_at = self.engine.wake_at(now);
        let deadline = self.model.next_deadline().map(Instant::from_nanos);
        let is_early = wake_at > Some(now.instant.after(NEAR)) && wake_at < deadline;
        assert!(wake_at == deadline || is_early, "woken at {wake_at:?} for {deadline:?}");
    }

    /// All that can be seen of the engine is as the model has it.
    fn compare(&mut self) {
        assert_alike(self.asked(), std::mem::take(&mut self.model.asked));
        assert_eq!(self.changes(), std::mem::take(&mut self.model.changes));
        assert_eq!(tally(self.engine.counts()), self.model.tally());
        assert_eq!(self.engine.sessions(), self.model.sessions());
        self.compare_deadlines();
        for (client, Client { id, .. }) in self.clients.iter().enumerate() {
            let reading = match self.engine.reading(*id) {
                Reading::Off => Read::Off,
                Reading::Once => Read::Once,
                Reading::Stream => Read::Stream,
            };
            assert_eq!(reading, self.model.reading(client), "how client {client} is read");
        }
        for lock in LOCKS {
            assert_eq!(self.line(lock), self.model.line(lock), "lock {lock}");
        }
    }

    fn line(&self, lock: &str) -> Line {
        let Some(view) = self.engine.lock(lock) else { return Line::default() };
        let claimant = |claim: ClaimView| {
            let client = client_of(&self.clients, claim.session);
            assert_eq!(claim.peer, address(client));
            Claimant {
                client,
                since: claim.since.as_nanos(),
                last_heard: claim.last_heard.as_nanos(),
                lease_ms: claim.lease_ms.get(),
                token: claim.token.map(Token::get),
            }
        };
        let waiters: Vec<Claimant> = view.waiters().map(claimant).collect();
        assert_eq!(view.waiters_len() as usize, waiters.len());
        Line { holder: view.holder().map(claimant), waiters }
    }

    /// What the engine asks for.
    fn asked(&mut self) -> Vec<Asked> {
        let effects = std::iter::from_fn(|| self.engine.poll_effect());
        let number = |id| client_of(&self.clients, id);
        effects
            .map(|effect| match effect {
                Effect::Transmit(id) => Asked::Transmit(number(id)),
                Effect::Probe(id) => Asked::Probe(number(id)),
                Effect::ShutdownWrite(id) => Asked::ShutdownWrite(number(id)),
                Effect::Close(id) => Asked::Close(number(id)),
                Effect::Move { .. } | Effect::GiveBackPlace { .. } => {
                    unreachable!("there is one shard")
                }
            })
            .collect()
    }

    /// Which locks changed hands.
    fn changes(&mut self) -> Vec<Change> {
        let changes = std::iter::from_fn(|| self.engine.poll_change());
        changes.map(|change| change_of(&change, client_of(&self.clients, change.session))).collect()
    }

    fn now(&self) -> Now {
        now(&self.model)
    }
}

fn now(model: &Model) -> Now {
    let secs = u64::try_from(model.unix_nanos / 1_000_000_000).expect("this century");
    let subsec_nanos = u32::try_from(model.unix_nanos % 1_000_000_000).expect("less than a second");
    Now { instant: Instant::from_nanos(model.now), unix: UnixTime::new(secs, subsec_nanos) }
}

fn address(client: usize) -> PeerAddress {
    let port = u16::try_from(client).expect("few clients");
    PeerAddress::from(SocketAddr::from(([10, 0, 0, 5], port)))
}

fn client_of(clients: &[Client], id: SessionId) -> usize {
    clients.iter().position(|client| client.id == id).expect("the id was given to a client")
}

/// Each client's effects have an order; between clients there is none.
fn assert_alike(mut asked: Vec<Asked>, mut expected: Vec<Asked>) {
    let client = |asked: &Asked| match *asked {
        Asked::Transmit(client)
        | Asked::Probe(client)
        | Asked::ShutdownWrite(client)
        | Asked::Close(client) => client,
    };
    asked.sort_by_key(client);
    expected.sort_by_key(client);
    assert_eq!(asked, expected, "what the driver is asked for");
}

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let frame = decode_server(bytes).expect("frames of a server");
        let (frame, len) = frame.expect("whole frames only");
        frames.push(match frame {
            ServerFrame::Waiting => Frame::Waiting,
            ServerFrame::Acquired(token) => Frame::Acquired(token.get()),
            ServerFrame::Error { code, .. } => Frame::Error(code.get()),
        });
        bytes = &bytes[len..];
    }
    frames
}

fn change_of(change: &OwnershipChange, client: usize) -> Change {
    assert_eq!(change.peer, address(client));
    let (lock, token) = (change.lock.to_string(), change.token.get());
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("not centuries");
    match change.what {
        Ownership::Granted { wait } => Change::Granted { lock, client, token, wait: nanos(wait) },
        Ownership::Released { held, reason } => {
            let (held, reason) = (nanos(held), reason.as_str());
            Change::Released { lock, client, token, held, reason }
        }
    }
}

fn tally(counts: &Counts) -> Tally {
    let releases = ReleaseReason::ALL.map(|reason| (reason.as_str(), counts.releases(reason)));
    let codes = (0..=u8::MAX).map(|code| (code, counts.protocol_errors(ErrorCode::new(code))));
    Tally {
        connections: counts.connections,
        unclaimed: counts.connections_unclaimed,
        locks_held: counts.locks_held,
        waiters: counts.waiters,
        acquires: counts.acquires,
        heartbeats: counts.heartbeats,
        first_frame_timeouts: counts.first_frame_timeouts,
        releases: releases.into_iter().filter(|&(_, count)| count > 0).collect(),
        protocol_errors: codes.filter(|&(_, count)| count > 0).collect(),
    }
}
