//! One thread's sessions on its ring: opens them, keeps their heartbeats going, times and judges
//! what the server says, and reports what has happened. What is to be opened and released when is
//! the scenario's business.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolock_core::claim::{Loss, News, Standing};
use monolock_core::lease_heap::LeaseHeap;
use monolock_core::time::Instant;
use monolock_core::wire::{Acquire, HEARTBEAT, encode_acquire};
use monolock_ring::{ConnectionId, Event, Reading, Ring};
use socket2::SockRef;

use crate::checker::ServerEnd;
use crate::clock;
use crate::course::Course;
use crate::forwarder::Routes;
use crate::judges::Judges;
use crate::lock_names::LockNames;
use crate::pace::Pace;
use crate::phase::Phase;
use crate::plain_text;
use crate::recorder::{Recorder, Timing};
use crate::session::{Session, SessionTable, Stage};
use crate::source::{ConnectError, Source};

/// How long to wait before trying again what a send in flight prevents.
const SEND_PATIENCE: Duration = Duration::from_millis(1);

/// Sessions that are opened before answers are read again.
const OPENED_A_TURN: u32 = 64;

/// Deadlines that are passed before answers are read again: those to the first heartbeats of a tick
/// are there by then, and cheaper to read while their sockets are still in the cache.
const DEADLINES_A_TURN: u32 = 16;

/// The receive buffer of a session that is not going to read: small, so that it is soon full.
const DEAF_BUFFER_BYTES: usize = 2048;

/// Something that a scenario may want to go by. Sessions are named by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The claim has come into its queue.
    Queued(u32),
    /// The claim holds its lock.
    Granted(u32),
    /// The claim was ended by something other than the scenario. `Closed` follows.
    Lost(u32),
    /// The connection is gone, and the place free.
    Closed(u32),
    /// No connection could be begun for this lock.
    Failed(u32),
    /// A deaf session's flood has gone out.
    Flooded(u32),
    /// A deaf session's flood is stuck.
    Stuck(u32),
    /// A session that has been silent still has its claim.
    Survived(u32),
}

/// What a drive was made for.
#[derive(Debug)]
pub struct DriveConfig {
    /// Sessions at once.
    pub sessions_max: u32,
    /// Locks of this thread.
    pub locks: u32,
    /// The lease of all sessions.
    pub lease_ms: NonZeroU32,
    /// What the locks are called.
    pub names: LockNames,
    /// Where connections come from.
    pub source: Source,
    /// Whether connecting is recorded before measuring begins.
    pub counts_setup: bool,
    /// When heartbeats are sent.
    pub pace: Pace,
    /// Which server each connection leads to, if there are several.
    pub routes: Option<Routes>,
}

/// The last release of a lock, for timing how long it takes to change hands.
#[derive(Clone, Copy, Debug)]
struct Release {
    intended: Instant,
    begun: Instant,
}

/// A session that is silent, or was and hasn't heard from the server since.
#[derive(Debug, Default)]
struct Sleeper {
    /// What came meanwhile, from receives that were under way.
    bytes: Vec<u8>,
    end: Option<Loss>,
    woken_at: Option<Instant>,
}

/// What a receive has made of a claim, kept until the bytes are given back.
#[derive(Clone, Copy, Debug)]
struct Heard {
    index: u32,
    before: Standing,
    news: News,
    confirmed_at: Instant,
    arrived_at: Instant,
}

/// One thread's sessions.
#[expect(missing_debug_implementations, reason = "a ring is memory shared with the kernel")]
pub struct Drive {
    /// The course of the run.
    pub course: Arc<Course>,
    /// The sessions.
    pub sessions: SessionTable,
    /// What is recorded.
    pub recorder: Recorder,
    /// The judges.
    pub judges: Judges,
    /// What happened, in order, until the scenario takes it.
    pub happenings: VecDeque<Happening>,
    /// Sessions that ended unasked, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Sessions that the server ended as it shut down, by what it said.
    pub shut_down: BTreeMap<String, u64>,
    /// What this process could not do, by reason.
    pub own_limits: BTreeMap<String, u64>,
    /// Connections that nobody was there to take.
    pub refusals: u64,
    /// Heartbeats of the measured time that were answered.
    pub heartbeats: u64,
    /// Grants of the measured time.
    pub grants: u64,
    ring: Ring,
    deadlines: LeaseHeap,
    pace: Pace,
    source: Source,
    names: LockNames,
    routes: Option<Routes>,
    /// By place, where a session's connection comes from, if there are routes.
    local_addresses: Vec<Option<SocketAddr>>,
    lease_ms: NonZeroU32,
    releases: Vec<Option<Release>>,
    heard: Vec<Heard>,
    /// By their places.
    sleepers: HashMap<u32, Sleeper>,
    frame: Vec<u8>,
    /// What was received last.
    answer: Vec<u8>,
    /// The wall clock when events were reaped last.
    unix_now: Duration,
    /// Sessions opened since the last wait.
    opened: u32,
}

impl Drive {
    /// No session is open. To be called on the ring's thread.
    pub fn new(ring: Ring, config: DriveConfig, course: Arc<Course>) -> Drive {
        let locks = config.locks as usize;
        Drive {
            course,
            sessions: SessionTable::new(config.sessions_max, config.lease_ms),
            recorder: Recorder::new(config.counts_setup),
            judges: Judges::new(config.locks, config.routes.is_some()),
            happenings: VecDeque::new(),
            losses: BTreeMap::new(),
            shut_down: BTreeMap::new(),
            own_limits: BTreeMap::new(),
            refusals: 0,
            heartbeats: 0,
            grants: 0,
            ring,
            deadlines: LeaseHeap::with_capacity(config.sessions_max as usize),
            pace: config.pace,
            source: config.source,
            names: config.names,
            routes: config.routes,
            local_addresses: Vec::new(),
            lease_ms: config.lease_ms,
            releases: vec![None; locks],
            heard: Vec::new(),
            sleepers: HashMap::new(),
            frame: Vec::new(),
            answer: Vec::new(),
            unix_now: Duration::ZERO,
            opened: 0,
        }
    }

    /// Whether a session may be opened: there is a place, and it isn't time to read answers.
    pub fn may_open(&self) -> bool {
        self.opened < OPENED_A_TURN && self.sessions.has_room()
    }

    /// Opens a session: connects and asks for the lock. Returns its place, unless no connection
    /// could be begun.
    ///
    /// # Panics
    /// Unless [`Drive::may_open`].
    pub fn open(&mut self, lock: u32, intended: Instant) -> Option<u32> {
        self.open_with(lock, intended, None)
    }

    /// Opens a session that will not read much.
    pub fn open_hard_of_hearing(&mut self, lock: u32, intended: Instant) {
        self.open_with(lock, intended, Some(DEAF_BUFFER_BYTES));
    }

    fn open_with(
        &mut self,
        lock: u32,
        intended: Instant,
        buffer_bytes: Option<usize>,
    ) -> Option<u32> {
        assert!(self.may_open(), "it is asked before");
        self.opened += 1;
        let begun = clock::now();
        let socket = match self.source.connect(buffer_bytes) {
            Ok(socket) => socket,
            Err(error) => {
                self.connect_failed(&error, lock, intended);
                return None;
            }
        };
        let index = self.sessions.open(lock, intended, begun);
        self.note_local_address(index, &socket);
        let id = self.sessions.connection(index);
        if let Err(error) = self.ring.attach(id, socket) {
            self.sessions.free(index);
            self.connect_failed(&ConnectError::Descriptors(error), lock, intended);
            return None;
        }
        self.frame.clear();
        let name = self.names.name(lock);
        encode_acquire(Acquire { lease_ms: self.lease_ms, name: &name }, &mut self.frame);
        let frame = &self.frame;
        self.ring.send(id, |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        self.ring.read(id, Reading::Stream);
        self.course.open.fetch_add(1, Ordering::Relaxed);
        self.schedule(index);
        Some(index)
    }

    fn note_local_address(&mut self, index: u32, socket: &OwnedFd) {
        if self.routes.is_none() {
            return;
        }
        let place = index as usize;
        if self.local_addresses.len() <= place {
            self.local_addresses.resize(place + 1, None);
        }
        let address = SockRef::from(socket).local_addr();
        self.local_addresses[place] = address.ok().and_then(|address| address.as_socket());
    }

    /// The first answer of a session has come: which server gave it?
    fn note_server(&mut self, index: u32) {
        let server = self.routes.as_ref().map_or(0, |routes| {
            let address = self.local_addresses[index as usize].expect("a socket has an address");
            routes.server_of(address).expect("a route is noted before a byte is forwarded")
        });
        self.judges.answered(self.sessions.who(index), server);
    }

    fn connect_failed(&mut self, error: &ConnectError, lock: u32, intended: Instant) {
        self.recorder.fail(Phase::Connect, intended, &self.course);
        let text = error.to_string();
        self.refusals += u64::from(error.is_nobody_there());
        if error.is_own_limit() {
            *self.own_limits.entry(text).or_default() += 1;
        } else {
            *self.losses.entry(text).or_default() += 1;
        }
        self.course.lost.fetch_add(1, Ordering::Relaxed);
        self.happenings.push_back(Happening::Failed(lock));
    }

    /// Lets a session hold its lock until then.
    pub fn release_at(&mut self, index: u32, at: Instant) {
        self.sessions.at(index).release_at = at;
        self.schedule(index);
    }

    /// Releases a lock, or leaves its queue, by closing the connection. A session that the judge
    /// wants to hear first is released a little later.
    pub fn release(&mut self, index: u32, intended: Instant, now: Instant) {
        let who = self.sessions.who(index);
        if self.judges.is_witness(who) {
            self.sessions.at(index).release_at = now.after(SEND_PATIENCE);
            self.schedule(index);
            return;
        }
        let session = self.sessions.at(index);
        let lock = session.lock;
        if session.is_holding() {
            self.releases[lock as usize] = Some(Release { intended, begun: now });
        }
        self.judges.released(lock, who, now, now);
        self.close(index);
    }

    /// Stops reading a session's answers. From here on nothing of it is judged.
    pub fn turn_deaf(&mut self, index: u32, now: Instant) {
        let who = self.sessions.who(index);
        let session = self.sessions.at(index);
        session.stage = Stage::Deaf;
        let lock = session.lock;
        self.judges.released(lock, who, now, now);
        self.ring.read(self.sessions.connection(index), Reading::Off);
        self.schedule(index);
    }

    /// Sends as many heartbeats as fit into one send, for a deaf session.
    pub fn flood(&mut self, index: u32) {
        let id = self.sessions.connection(index);
        if !self.ring.is_sending(id) {
            self.ring.send(id, |buffer| {
                buffer.fill(HEARTBEAT);
                buffer.len()
            });
        }
    }

    /// A deaf session whose answers were stuck was ended. Counted if that was in the measured time,
    /// whenever they got stuck: it takes seconds.
    pub fn record_cutoff(&mut self, stuck_since: Instant, now: Instant) {
        let timing = Timing { intended: stuck_since, begun: stuck_since, done: now };
        self.recorder.record_if(self.course.is_measured(now), Phase::Cutoff, timing);
    }

    /// From here on a session is one of a process that doesn't run: it reads nothing, sends nothing
    /// and doesn't look at the clock.
    pub fn fall_silent(&mut self, index: u32) {
        let session = self.sessions.at(index);
        session.stage = Stage::Silent;
        // If a heartbeat is in flight, its time would be the sleeper's and not the server's.
        session.heartbeat_due = Instant::NEVER;
        self.sleepers.insert(index, Sleeper::default());
        self.ring.read(self.sessions.connection(index), Reading::Off);
        self.schedule(index);
    }

    /// A silent session's process runs again. It reads what has come, and then looks at the clock:
    /// `Survived`, or `Lost` and `Closed`, follow.
    pub fn wake(&mut self, index: u32, now: Instant) {
        self.sessions.at(index).stage = Stage::Waking;
        let id = self.sessions.connection(index);
        let sleeper = self.sleepers.entry(index).or_default();
        sleeper.woken_at = Some(now);
        let (bytes, end) = (std::mem::take(&mut sleeper.bytes), sleeper.end);
        self.receive(index, &bytes, now);
        if let Some(loss) = end {
            self.cut(index, loss, now);
        }
        if self.sessions.at(index).stage == Stage::Waking {
            self.ring.read(id, Reading::Stream);
            self.deadlines.change(&mut self.sessions, index, now.after(SEND_PATIENCE));
        }
    }

    /// Counts a session of the setup that stands now, or has failed to. Says whether it is one.
    pub fn count_settled(&mut self, happening: Happening) -> bool {
        let is_first = match happening {
            Happening::Queued(index) | Happening::Granted(index) | Happening::Lost(index) => {
                self.sessions.at(index).settle()
            }
            Happening::Failed(_) => true,
            Happening::Closed(_)
            | Happening::Flooded(_)
            | Happening::Stuck(_)
            | Happening::Survived(_) => false,
        };
        if is_first {
            self.course.settled.fetch_add(1, Ordering::Relaxed);
        }
        is_first
    }

    /// Waits until a deadline of ours or `until` comes, or, if it is to be answered at once, until
    /// something happens; and takes in what has happened.
    ///
    /// # Errors
    /// If the kernel refuses the ring what it granted at the start.
    pub fn wait(&mut self, until: Instant, answers_at_once: bool) -> io::Result<()> {
        let until = self.deadlines.first().map_or(until, |(first, _)| first.min(until));
        // Who had to stop opening goes on at once.
        let is_in_haste = self.opened == OPENED_A_TURN;
        self.opened = 0;
        let sleep = if is_in_haste { Duration::ZERO } else { until.since(clock::now()) };
        if answers_at_once {
            self.ring.wait(Some(sleep))?;
        } else {
            self.ring.rest(sleep)?;
        }
        // What is reaped has come by now. What is made of it takes longer, and that is our time.
        let now = clock::now();
        self.unix_now = clock::unix_now();
        self.recorder.turn(now, &self.course)?;
        self.take_in(now);
        Ok(())
    }

    /// Does what is due: heartbeats, releases, giving up, and the judge's questions.
    pub fn pass_deadlines(&mut self, now: Instant) {
        for _ in 0..DEADLINES_A_TURN {
            match self.deadlines.first() {
                Some((deadline, index)) if deadline <= now => self.pass_deadline(index, now),
                _ => break,
            }
        }
        self.judges.turn(now);
        for who in self.judges.take_questions() {
            let Some(session) = self.sessions.find(who) else {
                continue;
            };
            // If it can't be asked now, its next answer asks again.
            let id = ConnectionId { index: who.index, generation: who.generation };
            if session.stage == Stage::Open
                && !self.ring.is_sending(id)
                && session.claim.send_early(now)
            {
                session.heartbeat_due = now;
                self.send_heartbeat(who.index);
                self.schedule(who.index);
            }
        }
    }

    fn pass_deadline(&mut self, index: u32, now: Instant) {
        let id = self.sessions.connection(index);
        let session = self.sessions.at(index);
        if session.release_at <= now {
            let intended = session.release_at;
            session.release_at = Instant::NEVER;
            self.release(index, intended, now);
            return;
        }
        if now >= session.claim.give_up_at() {
            let before = session.claim.standing();
            let loss = session.claim.end(Loss::Silence);
            self.lose(index, before, loss, now);
            return;
        }
        if self.ring.is_sending(id) {
            self.deadlines.change(&mut self.sessions, index, now.after(SEND_PATIENCE));
            return;
        }
        let due = session.claim.heartbeat_at();
        if self.pace.tick_before(due) <= now && session.claim.send_early(now) {
            session.heartbeat_due = due.min(now);
            self.send_heartbeat(index);
        }
        self.schedule(index);
    }

    fn send_heartbeat(&mut self, index: u32) {
        self.ring.send(self.sessions.connection(index), |buffer| {
            buffer[0] = HEARTBEAT;
            1
        });
    }

    fn take_in(&mut self, now: Instant) {
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { id, bytes } => match self.sessions.at(id.index).stage {
                    Stage::Open | Stage::Waking => {
                        self.answer.clear();
                        self.answer.extend_from_slice(bytes);
                        let at = self.arrived_at(id.index, now);
                        listen(&mut self.sessions, &mut self.heard, id.index, &self.answer, at);
                        self.take_heard(now);
                    }
                    Stage::Silent => {
                        self.sleepers.entry(id.index).or_default().bytes.extend_from_slice(bytes);
                    }
                    Stage::Deaf | Stage::Closing | Stage::Free => {}
                },
                Event::EndOfStream { id } => self.cut(id.index, Loss::EndOfStream, now),
                Event::ReceiveFailed { id, .. } => self.cut(id.index, Loss::Disconnected, now),
                Event::SendFailed { id, error } => {
                    if self.sessions.at(id.index).claim.standing() == Standing::Asking {
                        let error = ConnectError::from(io::Error::from(error));
                        self.refusals += u64::from(error.is_nobody_there());
                        *self.losses.entry(error.to_string()).or_default() += 1;
                    }
                    self.cut(id.index, Loss::Disconnected, now);
                }
                Event::Sent { id } => self.sent(id.index, now),
                Event::SendBlocked { id } => {
                    if self.sessions.at(id.index).stage == Stage::Deaf {
                        self.happenings.push_back(Happening::Stuck(id.index));
                    }
                }
                Event::Closed { id } => {
                    self.sessions.free(id.index);
                    self.course.open.fetch_sub(1, Ordering::Relaxed);
                    self.happenings.push_back(Happening::Closed(id.index));
                }
                Event::Detached { .. } | Event::DetachFailed { .. } => {
                    unreachable!("nothing is detached")
                }
                Event::Silent { .. } | Event::Woken => {}
            }
        }
    }

    /// When what was received last arrived. A session that was silent knows only when it reads.
    fn arrived_at(&mut self, index: u32, now: Instant) -> Instant {
        let session = self.sessions.at(index);
        let Some(stamp) = self.ring.arrived_at().filter(|_| session.stage == Stage::Open) else {
            return now;
        };
        let arrived_at = now.before(self.unix_now.saturating_sub(stamp));
        // The wall clock that it was stamped with may have been set meanwhile.
        if arrived_at < session.claim.sent_at() { now } else { arrived_at }
    }

    fn sent(&mut self, index: u32, now: Instant) {
        let session = self.sessions.at(index);
        if session.stage == Stage::Deaf {
            self.happenings.push_back(Happening::Flooded(index));
        } else if session.claim.standing() == Standing::Asking {
            session.connected_at = now;
        }
    }

    /// Records how long connecting took. That is known when the answer comes: it is seen late, and
    /// was done before the answer came.
    fn record_connect(&mut self, index: u32, answered_at: Instant) {
        let session = self.sessions.at(index);
        let done = session.connected_at.min(answered_at);
        if done != Instant::NEVER {
            let timing = Timing { intended: session.intended, begun: session.begun, done };
            self.recorder.record(Phase::Connect, timing, &self.course);
        }
    }

    /// At the end: of the sessions that wait for their first answer, how long connecting took.
    pub fn record_unanswered(&mut self) {
        let is_asking =
            |session: &Session| session.is_alive() && session.claim.standing() == Standing::Asking;
        let asking = self.sessions.iter().filter(|(_, session)| is_asking(session));
        let asking: Vec<u32> = asking.map(|(index, _)| index).collect();
        for index in asking {
            self.record_connect(index, Instant::NEVER);
        }
    }

    fn cut(&mut self, index: u32, loss: Loss, now: Instant) {
        let session = self.sessions.at(index);
        if !session.is_alive() {
            return;
        }
        if session.stage == Stage::Silent {
            self.sleepers.entry(index).or_default().end.get_or_insert(loss);
            return;
        }
        let before = session.claim.standing();
        session.claim.end(loss);
        self.lose(index, before, loss, now);
    }

    fn receive(&mut self, index: u32, bytes: &[u8], now: Instant) {
        listen(&mut self.sessions, &mut self.heard, index, bytes, now);
        self.take_heard(now);
    }

    fn take_heard(&mut self, now: Instant) {
        let mut heard = std::mem::take(&mut self.heard);
        for heard in heard.drain(..) {
            match heard.news {
                News::Queued => self.queued(heard, now),
                News::Granted(_) => self.granted(heard, now),
                News::Standing => self.confirmed(heard, now),
                News::Lost(loss) => self.lose(heard.index, heard.before, loss, now),
            }
        }
        self.heard = heard;
    }

    fn queued(&mut self, heard: Heard, now: Instant) {
        let Heard { index, arrived_at: done, .. } = heard;
        let who = self.sessions.who(index);
        let session = self.sessions.at(index);
        let timing = Timing { intended: session.intended, begun: session.begun, done };
        let lock = session.lock;
        self.note_server(index);
        self.judges.queued(lock, who, now);
        self.record_connect(index, done);
        self.recorder.record(Phase::Acquire, timing, &self.course);
        self.happenings.push_back(Happening::Queued(index));
        self.schedule(index);
    }

    fn granted(&mut self, heard: Heard, now: Instant) {
        let News::Granted(token) = heard.news else {
            return;
        };
        let Heard { index, arrived_at: done, .. } = heard;
        let who = self.sessions.who(index);
        let session = self.sessions.at(index);
        let lock = session.lock;
        let timing = Timing { intended: session.intended, begun: session.begun, done };
        if self.course.is_measured(now) {
            self.grants += 1;
        }
        self.recorder.grant(now, &self.course);
        if heard.before == Standing::Asking {
            self.note_server(index);
        }
        self.judges.granted(lock, who, token, timing.begun, now);
        let release = self.releases[lock as usize].take();
        if heard.before == Standing::Queued {
            self.recorder.record(Phase::Wait, timing, &self.course);
            if let Some(Release { intended, begun }) = release {
                let timing = Timing { intended, begun, done };
                self.recorder.record(Phase::Handover, timing, &self.course);
            }
        } else {
            self.record_connect(index, done);
            self.recorder.record(Phase::Acquire, timing, &self.course);
        }
        self.course.recorded.fetch_add(1, Ordering::Relaxed);
        self.happenings.push_back(Happening::Granted(index));
        self.schedule(index);
    }

    fn confirmed(&mut self, heard: Heard, now: Instant) {
        let who = self.sessions.who(heard.index);
        let session = self.sessions.at(heard.index);
        let intended = std::mem::replace(&mut session.heartbeat_due, Instant::NEVER);
        // It may be a second answer to the ACQUIRE, or one to an older heartbeat, which can't be
        // timed any more.
        if intended != Instant::NEVER && heard.confirmed_at == session.claim.sent_at() {
            let timing = Timing { intended, begun: heard.confirmed_at, done: heard.arrived_at };
            self.recorder.record(Phase::Heartbeat, timing, &self.course);
            if self.course.is_measured(intended) {
                self.heartbeats += 1;
            }
            self.course.recorded.fetch_add(1, Ordering::Relaxed);
        }
        // An answer to what was sent before its sleep doesn't say where it stands now.
        if session.stage == Stage::Waking
            && let Some(sleeper) = self.sleepers.get(&heard.index)
            && sleeper.woken_at.is_some_and(|woken_at| heard.confirmed_at >= woken_at)
        {
            session.stage = Stage::Open;
            self.sleepers.remove(&heard.index);
            self.happenings.push_back(Happening::Survived(heard.index));
        }
        self.judges.confirmed(who, heard.confirmed_at, now);
        self.schedule(heard.index);
    }

    /// A claim is over that we didn't end.
    fn lose(&mut self, index: u32, before: Standing, loss: Loss, now: Instant) {
        let who = self.sessions.who(index);
        let session = self.sessions.at(index);
        let (lock, intended) = (session.lock, session.intended);
        let believed_until = now.min(session.claim.give_up_at());
        let stage = session.stage;
        let end = ServerEnd {
            loss,
            confirmed_at: session.claim.confirmed_at(),
            lease_ends_no_earlier_than: session.claim.lease_ends_no_earlier_than(),
        };
        if stage != Stage::Deaf {
            match loss {
                Loss::Silence if stage == Stage::Waking => {
                    self.judges.overslept(lock, who, end, believed_until, now);
                }
                // We end it, and the server may not have noticed anything.
                Loss::Silence => self.judges.released(lock, who, believed_until, now),
                _ => self.judges.ended(lock, who, end, believed_until, now),
            }
            if before == Standing::Asking {
                self.record_connect(index, Instant::NEVER);
            }
        }
        let text = describe_loss(before, loss, self.sessions.at(index).claim.reason());
        // Whoever was silent has its own silence to blame.
        if self.course.is_shutting_down() {
            *self.shut_down.entry(text).or_default() += 1;
        } else if !matches!(stage, Stage::Deaf | Stage::Waking) {
            let (phase, failed_at) = match before {
                Standing::Asking => (Phase::Acquire, intended),
                Standing::Queued => (Phase::Wait, now),
                Standing::Holding(_) | Standing::Lost(_) => (Phase::Heartbeat, now),
            };
            self.recorder.fail(phase, failed_at, &self.course);
            *self.losses.entry(text).or_default() += 1;
            self.course.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.sleepers.remove(&index);
        self.happenings.push_back(Happening::Lost(index));
        self.close(index);
    }

    fn close(&mut self, index: u32) {
        self.sessions.at(index).stage = Stage::Closing;
        self.ring.close(self.sessions.connection(index));
        self.schedule(index);
    }

    fn schedule(&mut self, index: u32) {
        let deadline = self.sessions.at(index).deadline(self.pace);
        if self.sessions.is_scheduled(index) {
            self.deadlines.change(&mut self.sessions, index, deadline);
        } else {
            self.deadlines.insert(&mut self.sessions, index, deadline);
        }
    }
}

/// Makes of bytes that arrived then what they mean for a claim.
fn listen(
    sessions: &mut SessionTable,
    heard: &mut Vec<Heard>,
    index: u32,
    mut bytes: &[u8],
    arrived_at: Instant,
) {
    let claim = &mut sessions.at(index).claim;
    loop {
        let before = claim.standing();
        let Some(news) = claim.receive(&mut bytes, arrived_at) else {
            return;
        };
        let confirmed_at = claim.confirmed_at();
        heard.push(Heard { index, before, news, confirmed_at, arrived_at });
    }
}

pub(crate) fn describe_loss(before: Standing, loss: Loss, reason: &[u8]) -> String {
    let when = match before {
        Standing::Asking => "before the first answer",
        Standing::Queued => "in the queue",
        Standing::Holding(_) | Standing::Lost(_) => "while holding",
    };
    let what = match loss {
        Loss::Silence => "nothing confirmed for 0.8 of the lease".to_owned(),
        Loss::EndOfStream => "closed by the server without a word".to_owned(),
        Loss::Disconnected => "connection broken".to_owned(),
        Loss::Refused(code) => {
            // It is the server's text, and goes to a terminal.
            let reason = plain_text::one_line(&String::from_utf8_lossy(reason));
            format!("ERROR {code} ({reason})")
        }
        Loss::Unintelligible(unknown) => unknown.to_string(),
        Loss::Contradiction => "an answer that contradicts an earlier one".to_owned(),
    };
    format!("{what}, {when}")
}
