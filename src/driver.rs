//! The event loop: what has come in is taken in, then deadlines are passed, then what the engine
//! asks for is carried out, then it sleeps once.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use monolock_core::effect::{Effect, Ownership, Reading};
use monolock_core::engine::Engine;
use monolock_core::session::SessionId;
use monolock_core::time::Now;
use monolock_core::wire::ErrorCode;
use monolock_ring::{Bell, ConnectionId, Errno, Event, Ring};
use tracing::{debug, warn};

use crate::clock;
use crate::peer_limit::PeerLimit;
use crate::shards::{Command, Places};

/// Deadlines that are passed in one turn. A mass of them is worked off in slices, between which
/// everybody else is served: the kernel hands out what has come in strictly in order and in small
/// portions, so what the end of many sessions brings about would stand before a heartbeat.
const DEADLINES_A_TURN: usize = 16;

/// Turns for which passed deadlines wait until all that had come in is read. Under a load without
/// end that would be never; each session is read once more before it is ended in any case.
const UNSETTLED_TURNS_MAX: u32 = 8;

/// Commands that are taken out of the inbox in one turn. Each connection brings about a receive and
/// often a close in the turns after, and many at once would stand before everything else there.
const COMMANDS_A_TURN: usize = 16;

/// What an event loop needs of its surroundings.
#[derive(Debug)]
pub struct Surroundings {
    /// What it is told.
    pub inbox: Receiver<Command>,
    /// The places of its table.
    pub places: Arc<Places>,
    /// Wakes the acceptor when there may be room.
    pub bell: Bell,
    /// The limit of connections from one address, if there is one.
    pub peer_limit: Option<Arc<PeerLimit>>,
}

/// One event loop.
#[expect(missing_debug_implementations, reason = "a ring is memory shared with the kernel")]
pub struct Driver {
    ring: Ring,
    engine: Engine,
    around: Surroundings,
    now: Now,
    unsettled_turns: u32,
    /// There may be more in the inbox than was taken out in this turn.
    is_inbox_unread: bool,
    shutting_down: bool,
    /// Places given back in this turn.
    freed: u32,
    /// Dealt sockets that have lost their descriptor's number in this turn.
    unnumbered: u32,
    /// Connections that the ring could not take.
    unattached: HashSet<SessionId>,
    /// Connections that the limit of their peer does not count.
    over_limit: HashSet<SessionId>,
}

impl Driver {
    /// Joins a ring and an engine. Must be called on the ring's thread.
    pub fn new(ring: Ring, engine: Engine, around: Surroundings) -> Driver {
        Driver {
            ring,
            engine,
            around,
            now: clock::now(),
            unsettled_turns: 0,
            is_inbox_unread: false,
            shutting_down: false,
            freed: 0,
            unnumbered: 0,
            unattached: HashSet::new(),
            over_limit: HashSet::new(),
        }
    }

    /// Serves until it was told to shut down and the last connection is gone. Returns the engine
    /// for what it has counted.
    ///
    /// # Errors
    /// If the kernel refuses the ring what it granted at the start.
    pub fn run(mut self) -> io::Result<Engine> {
        loop {
            let timeout = self.time_to_sleep();
            self.ring.wait(timeout)?;
            // Read after the wait: a lease restarts when its heartbeat is read, or a little later.
            self.now = clock::now();
            self.take_in();
            self.pass_deadlines();
            self.carry_out();
            self.publish();
            if self.shutting_down && self.engine.sessions() == 0 {
                return Ok(self.engine);
            }
        }
    }

    fn time_to_sleep(&mut self) -> Option<Duration> {
        if self.is_inbox_unread {
            return Some(Duration::ZERO);
        }
        let wake_at = self.engine.wake_at(self.now)?;
        Some(wake_at.since(clock::monotonic()))
    }

    fn take_in(&mut self) {
        let now = self.now;
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { id, bytes } => {
                    let session = session_of(id);
                    self.engine.receive(session, bytes, now);
                    self.read(session);
                }
                Event::EndOfStream { id } => self.engine.end_of_stream(session_of(id), now),
                Event::Silent { id } => self.engine.silent(session_of(id), now),
                Event::Sent { id } => {
                    self.engine.sent(session_of(id), now);
                    self.read(session_of(id));
                }
                Event::SendBlocked { id } => {
                    self.engine.send_blocked(session_of(id), now);
                    self.read(session_of(id));
                }
                Event::ReceiveFailed { id, error } | Event::SendFailed { id, error } => {
                    self.fail(session_of(id), error);
                }
                Event::Closed { id } => self.forget(session_of(id)),
                Event::Woken => self.is_inbox_unread = true,
            }
        }
        if self.is_inbox_unread {
            self.read_inbox();
        }
    }

    /// Reads the connection as its session wants it to be read now.
    fn read(&mut self, session: SessionId) {
        let mode = match self.engine.reading(session) {
            Reading::Off => monolock_ring::Reading::Off,
            Reading::Once => monolock_ring::Reading::Once,
            Reading::Stream => monolock_ring::Reading::Stream,
        };
        self.ring.read(connection_of(session), mode);
    }

    /// A reset is the peer's own doing. Everything else is the kernel's opinion of the network.
    fn fail(&mut self, session: SessionId, error: Errno) {
        if error.is_by_peer() {
            self.engine.disconnected(session, self.now);
        } else {
            debug!(%error, "a connection failed without being closed by its peer");
            self.engine.unreachable(session, self.now);
        }
    }

    fn forget(&mut self, session: SessionId) {
        let peer = self.engine.forget(session);
        self.freed += 1;
        if let Some(limit) = &self.around.peer_limit
            && !self.over_limit.remove(&session)
        {
            limit.leave(peer.ip());
        }
    }

    fn read_inbox(&mut self) {
        for _ in 0..COMMANDS_A_TURN {
            let Ok(command) = self.around.inbox.try_recv() else {
                self.is_inbox_unread = false;
                return;
            };
            match command {
                Command::Connection { socket, peer, refusal } => {
                    self.connect(socket, peer, refusal);
                }
                Command::ShutDown => {
                    self.shutting_down = true;
                    self.engine.shut_down(self.now);
                }
            }
        }
    }

    fn connect(&mut self, socket: OwnedFd, peer: SocketAddr, refusal: Option<ErrorCode>) {
        let session = self
            .engine
            .connect(peer.into(), self.now)
            .expect("the acceptor deals only what there is a place for");
        let attached = self.ring.attach(connection_of(session), socket);
        self.unnumbered += 1;
        if refusal.is_some() {
            self.over_limit.insert(session);
        }
        match (attached, refusal) {
            (Ok(()), None) => self.read(session),
            (Ok(()), Some(code)) => {
                debug!(%peer, "one connection too many from this address");
                self.engine.refuse(session, code, self.now);
                self.read(session);
            }
            (Err(error), _) => {
                // For want of memory: the connection is closed, the server goes on.
                warn!(%peer, "cannot take a connection: {error}");
                self.unattached.insert(session);
                self.engine.disconnected(session, self.now);
            }
        }
    }

    fn pass_deadlines(&mut self) {
        let is_due = self.engine.wake_at(self.now).is_some_and(|at| at <= self.now.instant);
        if !is_due {
            self.unsettled_turns = 0;
        } else if self.unsettled_turns < UNSETTLED_TURNS_MAX && !self.ring.is_settled() {
            // Something that came in before the deadline may still be unread.
            self.unsettled_turns += 1;
        } else {
            self.unsettled_turns = 0;
            self.engine.expire(self.now, DEADLINES_A_TURN);
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Transmit(session) => {
                    let engine = &mut self.engine;
                    self.ring
                        .send(connection_of(session), |frames| engine.transmit(session, frames));
                }
                Effect::Probe(session) => self.ring.probe(connection_of(session)),
                Effect::ShutdownWrite(session) => {
                    self.ring.shutdown_write(connection_of(session));
                }
                Effect::Close(session) if self.unattached.remove(&session) => {
                    self.forget(session);
                }
                Effect::Close(session) => self.ring.close(connection_of(session)),
            }
        }
        while let Some(change) = self.engine.poll_change() {
            let (lock, peer, token) = (&*change.lock, change.peer, change.token.get());
            match change.what {
                Ownership::Granted { wait } => {
                    debug!(lock, %peer, token, wait_ms = wait.as_millis(), "granted");
                }
                Ownership::Released { held, reason } => {
                    debug!(lock, %peer, token, held_ms = held.as_millis(), %reason, "released");
                }
            }
        }
    }

    /// Tells the acceptor what room there is.
    fn publish(&mut self) {
        let counts = self.engine.counts();
        let claimed = counts.connections - counts.connections_unclaimed;
        let claimed = u32::try_from(claimed).expect("no more than places");
        let freed = std::mem::take(&mut self.freed);
        let unnumbered = std::mem::take(&mut self.unnumbered);
        if self.around.places.publish(freed, unnumbered, claimed) {
            self.around.bell.ring();
        }
    }
}

fn connection_of(session: SessionId) -> ConnectionId {
    ConnectionId { index: session.index, generation: session.generation }
}

fn session_of(connection: ConnectionId) -> SessionId {
    SessionId { index: connection.index, generation: connection.generation }
}
