//! The event loop: what has come in is taken in, then deadlines are passed, then what the engine
//! asks for is carried out, then it sleeps once.

mod moving;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use monolock_core::effect::{Effect, Ownership, Reading};
use monolock_core::engine::Engine;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::ShardNumber;
use monolock_core::time::Now;
use monolock_core::wire::ErrorCode;
use monolock_ring::{Bell, ConnectionId, Errno, Event, Ring};
use tracing::{debug, warn};

use crate::audit::{self, Recorder};
use crate::clock::{self, Clocks, whole_ms};
use crate::ended_holds::EndedHolds;
use crate::inspection::{Inspected, Tally};
use crate::peer_limit::PeerLimit;
use crate::shards::{Command, ShardHandle, share_processors};
use moving::Moves;

/// Deadlines that are passed in one turn. A mass of them is worked off in slices, between which
/// everybody else is served: the kernel hands out what has come in strictly in order and in small
/// portions, so what the end of many sessions brings about would stand before a heartbeat. Each end
/// brings about up to four completions, and the kernel hands out some twenty in a turn: with more
/// ends in a turn than this they pile up, and a heartbeat waits behind all of them.
const DEADLINES_A_TURN: usize = 4;

/// What is taken out of the inbox in one turn. A burst of new connections is worked off in slices,
/// so that between them deadlines are passed and everybody else is served.
const COMMANDS_A_TURN: usize = 16;

/// Places of the table of locks that are looked at in one turn when locks are granted again.
const PROMOTED_PLACES_A_TURN: u32 = 64;

/// Places whose sessions are told of a shutdown in one turn.
const TOLD_A_TURN: u32 = 64;

/// A deadline that is further away is slept for with an alarm, which is set once in this time at
/// most; a nearer one with a timeout, which needs no request of its own.
const FAR: Duration = Duration::from_millis(10);

/// What an event loop needs of its surroundings.
#[derive(Debug)]
pub struct Surroundings {
    /// All event loops of the server, in the order of their numbers.
    pub shards: Arc<[ShardHandle]>,
    /// Wakes the acceptor when there may be room.
    pub bell: Bell,
    /// The limit of connections from one address, if there is one.
    pub peer_limit: Option<Arc<PeerLimit>>,
    /// For how many locks it is kept how their last hold ended.
    pub ended_holds_max: usize,
    /// Where it tells of changes of ownership, if there is an audit log.
    pub recorder: Option<Recorder>,
}

/// One event loop.
#[expect(missing_debug_implementations, reason = "a ring is memory shared with the kernel")]
pub struct Driver {
    ring: Ring,
    engine: Engine,
    inbox: Receiver<Command>,
    /// There may be something in the inbox that the loop is not woken for any more.
    is_inbox_unread: bool,
    around: Surroundings,
    clocks: Clocks,
    /// Which of the loops this is.
    number: ShardNumber,
    /// There are more loops than processors: one with much to do lets the others have a turn after
    /// each of its own, or their sessions would wait for as long as the kernel lets a thread run,
    /// some milliseconds each.
    shares_processor: bool,
    moves: Moves,
    now: Now,
    /// Passed deadlines have waited for a turn, for what had come in before them.
    has_waited: bool,
    shutting_down: bool,
    /// Sessions at this place and behind it have not been told of the shutdown.
    telling_from: Option<u32>,
    /// How many places more may be told of it now.
    may_tell: u32,
    /// Locks at this place and behind it may have waiters and no holder, because nothing was
    /// granted for a while.
    promoting_from: Option<u32>,
    /// Places given back in this turn.
    freed: u32,
    /// Dealt sockets that have been taken, and have no descriptor any more, in this turn.
    undealt: u32,
    /// Connections that the ring could not take.
    unattached: HashSet<SessionId>,
    /// Connections that the limit of their peer does not count.
    over_limit: HashSet<SessionId>,
    ended_holds: EndedHolds,
    tally: Tally,
}

impl Driver {
    /// Joins a ring and an engine. Must be called on the ring's thread.
    pub fn new(
        ring: Ring,
        engine: Engine,
        inbox: Receiver<Command>,
        around: Surroundings,
    ) -> Driver {
        let shards = u32::try_from(around.shards.len()).expect("as many as there are threads");
        let mut clocks = Clocks::read();
        Driver {
            ring,
            shares_processor: share_processors(&around.shards),
            number: engine.shard(),
            ended_holds: EndedHolds::new(around.ended_holds_max),
            engine,
            inbox,
            is_inbox_unread: false,
            around,
            moves: Moves::new(shards),
            now: clocks.now(),
            clocks,
            has_waited: false,
            shutting_down: false,
            telling_from: None,
            may_tell: 0,
            promoting_from: None,
            freed: 0,
            undealt: 0,
            unattached: HashSet::new(),
            over_limit: HashSet::new(),
            tally: Tally::default(),
        }
    }

    /// Serves until it was told to shut down and the last connection is gone. Returns the engine
    /// for what it has counted.
    ///
    /// # Errors
    /// If the kernel refuses the ring what it granted at the start.
    pub fn run(mut self) -> io::Result<Engine> {
        loop {
            self.sleep()?;
            // Read after the wait: a lease restarts when its heartbeat is read, or a little later.
            self.now = self.clocks.now();
            self.tally.turns += 1;
            self.take_in();
            self.pass_deadlines();
            self.promote_waiters();
            self.tell_of_shutdown();
            self.carry_out();
            self.publish();
            if self.shutting_down && self.everybody_is_gone() {
                // They may not have been awake to see it.
                self.around.shards.iter().for_each(ShardHandle::wake);
                return Ok(self.engine);
            }
        }
    }

    /// Sleeps until something has come in, or a deadline may have passed.
    fn sleep(&mut self) -> io::Result<()> {
        let wake_at = self.engine.wake_at(self.now);
        let has_more_to_do = self.is_inbox_unread
            || self.promoting_from.is_some()
            || (self.telling_from.is_some() && self.may_tell > 0)
            || wake_at.is_some_and(|at| at <= self.now.instant);
        if self.shares_processor && (has_more_to_do || !self.ring.is_settled()) {
            thread::yield_now();
        }
        if has_more_to_do {
            return self.ring.wait(Some(Duration::ZERO));
        }
        let Some(wake_at) = wake_at else {
            return self.ring.wait(None);
        };
        if wake_at.since(self.now.instant) > FAR {
            self.ring.set_alarm(Duration::from_nanos(wake_at.as_nanos()));
            return self.ring.wait(None);
        }
        self.ring.wait(Some(wake_at.since(clock::monotonic())))
    }

    /// Whether no loop has a connection, nor one on its way to another.
    fn everybody_is_gone(&self) -> bool {
        self.around.shards.iter().all(|shard| shard.places().taken() == 0)
    }

    fn shard(&self, number: ShardNumber) -> &ShardHandle {
        &self.around.shards[number as usize]
    }

    fn take_in(&mut self) {
        let now = self.now;
        while let Some(event) = self.ring.next_event() {
            self.tally.events += 1;
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
                Event::Detached { id, socket } => self.send(session_of(id), socket.0),
                Event::DetachFailed { id, error } => self.fail_to_send(session_of(id), error),
                Event::Woken => {
                    self.is_inbox_unread = true;
                    self.send_off();
                }
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
            let Ok(command) = self.inbox.try_recv() else {
                self.is_inbox_unread = false;
                return;
            };
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Connection { socket, peer, refusal } => {
                self.connect(socket, peer, refusal);
            }
            Command::Ask(question) => {
                // What has happened before it is told before it.
                self.report_changes();
                question.put_to(Inspected {
                    engine: &mut self.engine,
                    now: self.now,
                    ended_holds: &self.ended_holds,
                    recorder: self.around.recorder.as_ref(),
                    tally: self.tally,
                });
            }
            Command::StopGranting => {
                self.engine.stop_granting();
                self.promoting_from = None;
            }
            Command::ResumeGranting => {
                self.engine.resume_granting();
                self.promoting_from = Some(0);
            }
            Command::Adopt { socket, departure, from } => self.adopt(socket, &departure, from),
            Command::PlacesWanted { from, count } => self.note_wanted(from, count),
            Command::PlaceKept { at } => self.use_place(at),
            Command::PlaceReturned { from, still_wanted } => {
                self.freed += 1;
                self.note_wanted(from, still_wanted);
            }
            Command::ShutDown => {
                self.shutting_down = true;
                self.engine.shut_down();
                self.telling_from = Some(0);
            }
            Command::TellOfShutdown { places_max } => self.may_tell = places_max,
        }
    }

    fn connect(&mut self, socket: OwnedFd, peer: SocketAddr, refusal: Option<ErrorCode>) {
        self.undealt += 1;
        let session = self.new_session(peer.into());
        if refusal.is_some() {
            self.over_limit.insert(session);
        }
        if !self.attach(session, socket) {
            return;
        }
        if let Some(code) = refusal {
            debug!(%peer, "one connection too many from this address");
            self.engine.refuse(session, code, self.now);
        }
        self.read(session);
    }

    fn new_session(&mut self, peer: PeerAddress) -> SessionId {
        let session = self.engine.connect(peer, self.now);
        session.expect("who sends a connection has taken a place for it")
    }

    /// Puts a session's socket into the ring. For want of memory it may fail: then the connection
    /// is closed, and the server goes on.
    fn attach(&mut self, session: SessionId, socket: OwnedFd) -> bool {
        let attached = self.ring.attach(connection_of(session), socket);
        if let Err(error) = &attached {
            warn!("cannot take a connection: {error}");
            self.unattached.insert(session);
            self.engine.disconnected(session, self.now);
        }
        attached.is_ok()
    }

    /// A heartbeat that came in before its deadline may still be unread. Most are read within a
    /// turn more; whoever then still seems silent is read once more before it is ended. To wait
    /// until nothing is unread would be to wait for as long as others are busy.
    fn pass_deadlines(&mut self) {
        let is_due = self.engine.wake_at(self.now).is_some_and(|at| at <= self.now.instant);
        if is_due && !self.has_waited && !self.ring.is_settled() {
            self.has_waited = true;
            return;
        }
        self.has_waited = false;
        if is_due {
            self.engine.expire(self.now, DEADLINES_A_TURN);
        }
    }

    /// A few a turn, for there may be many.
    fn promote_waiters(&mut self) {
        if let Some(from) = self.promoting_from {
            self.promoting_from =
                self.engine.promote_waiters(from, PROMOTED_PLACES_A_TURN, self.now);
        }
    }

    /// A few a turn, and no more than the control plane lets.
    fn tell_of_shutdown(&mut self) {
        let limit = self.may_tell.min(TOLD_A_TURN);
        if let Some(from) = self.telling_from
            && limit > 0
        {
            self.may_tell -= limit;
            self.telling_from = self.engine.tell_of_shutdown(from, limit, self.now);
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
                Effect::Move { session, to } => self.move_to(session, to),
                Effect::GiveBackPlace { at } => self.give_back_place(at),
                Effect::Close(session) if self.unattached.remove(&session) => {
                    self.forget(session);
                }
                Effect::Close(session) => self.ring.close(connection_of(session)),
            }
        }
        self.report_changes();
    }

    fn report_changes(&mut self) {
        while let Some(change) = self.engine.poll_change() {
            self.ended_holds.note(&change, self.now);
            if let Some(recorder) = &self.around.recorder {
                recorder.record(audit::Event::of_change(&change, self.now.unix));
            }
            let (lock, peer, token) = (&*change.lock, change.peer, change.token.get());
            match change.what {
                Ownership::Granted { wait } => {
                    debug!(lock, %peer, token, wait_ms = whole_ms(wait), "granted");
                }
                Ownership::Released { held, reason } => {
                    debug!(lock, %peer, token, held_ms = whole_ms(held), %reason, "released");
                }
            }
        }
    }

    /// Tells the others what room there is.
    fn publish(&mut self) {
        self.keep_freed_places();
        let counts = self.engine.counts();
        let claimed = counts.connections - counts.connections_unclaimed;
        let claimed = u32::try_from(claimed).expect("no more than places");
        let freed = std::mem::take(&mut self.freed);
        let undealt = std::mem::take(&mut self.undealt);
        let shard = self.shard(self.number);
        if undealt > 0 {
            shard.has_taken_dealt(undealt);
        }
        if shard.places().publish(freed, claimed) || undealt > 0 {
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
