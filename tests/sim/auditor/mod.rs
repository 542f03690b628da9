//! The judge. It sees the wire and the reports, with their times, keeps a history of its own, and
//! says of every sighting whether it was permitted. It knows nothing of the engine.

mod balance;
mod closing;
mod input;
mod moving;
mod output;
mod ownership;
mod session;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use monolock_core::fencing::Token;
use monolock_core::shard_map::ShardMap;

use super::clock::{MILLISECOND, SECOND};
use super::invariants::{Invariant, Verdict, Violation};
use super::sighting::{Connection, Shard, Sighting};
use session::{Session, Standing};

/// How late anything may be that is due while the server runs. Its turns take microseconds.
const LATE_MAX: u64 = 2 * MILLISECOND;

/// How long the way from one event loop to another takes at most: a hundred turns of 20 us to
/// leave, and a millisecond for the message.
const WAY_MAX: u64 = 3 * MILLISECOND;

/// How much is read away after an ERROR, and for how long.
const DRAINED_MAX: usize = 1 << 20;
const DRAIN_MAX: u64 = SECOND;

/// How much of the past is told with a violation.
const STORY_LEN: usize = 60;

/// What a server was told about limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) io_timeout: Duration,
    pub(crate) lease_max_ms: Option<u32>,
}

#[derive(Default)]
struct Lock {
    holder: Option<Connection>,
    /// Has claimed it while it was free, so that its grant is due whatever it has sent since.
    next: Option<Connection>,
    waiters: VecDeque<Connection>,
}

/// How often each kind of thing was seen that does not happen in every world.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// The judge and its history.
pub(crate) struct Auditor {
    limits: Limits,
    now: u64,
    /// Since when the server has been running; nothing if it is stopped or dead.
    running: Option<u64>,
    /// The shards that were told to end, and when.
    shut_down: BTreeMap<Shard, u64>,
    /// Where each lock is.
    shard_map: ShardMap,
    /// Shards that have places for connections from others, and since when.
    with_places: BTreeMap<Shard, u64>,
    sessions: BTreeMap<Connection, Session>,
    /// Closed by the server, while something may still be on its way to the client.
    departed: BTreeMap<Connection, Session>,
    /// Accepted, and not in any shard yet.
    dealt: BTreeSet<Connection>,
    /// What had arrived on connections that were not accepted yet.
    arrived_early: BTreeMap<Connection, usize>,
    locks: BTreeMap<String, Lock>,
    /// Who was passed over in a queue: must have been ended by the end of the turn.
    passed_over: Vec<Connection>,
    /// The last token of this process, and of all processes.
    last_token: u64,
    highest_token: u64,
    story: VecDeque<(u64, Sighting)>,
    violation: Option<Violation>,
    events: Tally,
}

impl Auditor {
    pub(crate) fn new(limits: Limits) -> Auditor {
        Auditor {
            limits,
            now: 0,
            running: None,
            shut_down: BTreeMap::new(),
            shard_map: ShardMap::single(),
            with_places: BTreeMap::new(),
            sessions: BTreeMap::new(),
            departed: BTreeMap::new(),
            dealt: BTreeSet::new(),
            arrived_early: BTreeMap::new(),
            locks: BTreeMap::new(),
            passed_over: Vec::new(),
            last_token: 0,
            highest_token: 0,
            story: VecDeque::new(),
            violation: None,
            events: Tally::new(),
        }
    }

    /// Judges what is seen at this time. Only the first violation counts: after it the judge's
    /// history is not the server's any more.
    pub(crate) fn see(&mut self, now: u64, sighting: Sighting) {
        if self.violation.is_some() {
            return;
        }
        self.now = now;
        self.violation = self.judge(&sighting).err();
        if self.story.len() == STORY_LEN {
            self.story.pop_front();
        }
        self.story.push_back((now, sighting));
    }

    /// Judges that nothing was seen up to this time.
    pub(crate) fn see_nothing(&mut self, now: u64) {
        if self.violation.is_none() {
            self.now = now;
            self.violation = self.nobody_is_late().err();
        }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// What was seen last.
    pub(crate) fn story(&self) -> String {
        let line = |(time, sighting): &(u64, Sighting)| {
            format!("{:>14.6} ms  {sighting:?}\n", *time as f64 / MILLISECOND as f64)
        };
        self.story.iter().map(line).collect()
    }

    pub(crate) fn events(&self) -> &Tally {
        &self.events
    }

    fn count(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    /// Who waits for a lock.
    pub(crate) fn waiting_for(&self, lock: &str) -> Vec<Connection> {
        self.locks.get(lock).map_or(Vec::new(), |lock| lock.waiters.iter().copied().collect())
    }

    /// The token of a lock's holder.
    pub(crate) fn token_of(&self, lock: &str) -> Option<Token> {
        match self.sessions.get(&self.locks.get(lock)?.holder?)?.standing {
            Standing::Holding(token) => Some(token),
            Standing::Connected | Standing::Moving | Standing::Waiting => None,
        }
    }

    /// Nothing is granted from the moment on at which the first shard is told to end.
    fn is_shutting_down(&self) -> bool {
        !self.shut_down.is_empty()
    }

    /// The shard to which a lock belongs.
    fn home(&self, lock: &str) -> Shard {
        self.shard_map.owner(lock) as usize
    }

    fn io_timeout(&self) -> u64 {
        u64::try_from(self.limits.io_timeout.as_nanos()).expect("not centuries")
    }

    fn judge(&mut self, sighting: &Sighting) -> Verdict {
        match *sighting {
            Sighting::Dealt(connection) => {
                self.dealt.insert(connection);
                Ok(())
            }
            Sighting::Accepted(connection, shard) => self.accepted(connection, shard),
            Sighting::HasNoPlace(connection) => Invariant::NothingStays
                .holds(false, || format!("the place of connection {connection} is not free")),
            Sighting::WaitsForPlace(connection) => self.waits_for_place(connection),
            Sighting::Leaves(connection) => self.leaves(connection),
            Sighting::Departed(connection) => self.departed(connection),
            Sighting::Adopted(connection, shard) => self.adopted(connection, shard),
            Sighting::Arrived(connection, len) => self.arrived(connection, len),
            Sighting::ArrivedEnd(connection) => {
                self.session(connection, |session| session.end_unread = true)
            }
            Sighting::Read(connection, ref bytes) => self.read(connection, bytes),
            Sighting::ReadEnd(connection, end) => self.read_end(connection, end),
            Sighting::Submitted(connection, ref bytes) => self.submitted(connection, bytes),
            Sighting::Stuck(connection) => {
                let now = self.now;
                self.session(connection, |session| session.stuck = Some(now))
            }
            Sighting::Taken(connection) => {
                let now = self.now;
                self.session(connection, |session| (session.stuck, session.taken) = (None, now))
            }
            Sighting::ShutdownWrite(connection) => self.shut(connection),
            Sighting::Closed(connection) => self.closed(connection),
            Sighting::ClientRead(connection, ref bytes) => self.client_read(connection, bytes),
            Sighting::ClientReset { connection, attentive } => {
                self.client_reset(connection, attentive)
            }
            Sighting::Granted { ref lock, connection, token, clock } => {
                self.granted(lock, connection, token, clock)
            }
            Sighting::Released { ref lock, connection, token, reason } => {
                self.released(lock, connection, token, reason)
            }
            Sighting::ForceRelease { ref lock, token, from } => self.forced(lock, token, from),
            Sighting::Kick { ref lock, connection, done } => self.kicked(lock, connection, done),
            Sighting::Shutdown(shard) => {
                self.shut_down.insert(shard, self.now);
                Ok(())
            }
            Sighting::ToldOfShutdown(connection) => self.told_of_shutdown(connection),
            Sighting::Stopped => self.stop(),
            Sighting::Continued => self.go_on(),
            Sighting::Started(shard_map) => {
                self.shard_map = shard_map;
                self.go_on()
            }
            Sighting::Died => self.die(),
            Sighting::TurnEnds { gauges, ref places } => self.turn_ends(gauges, places),
            Sighting::AtRest(remains) => self.at_rest(remains),
        }
    }

    /// Notes something about a connection that the server has.
    fn session(&mut self, connection: Connection, note: impl FnOnce(&mut Session)) -> Verdict {
        if let Some(session) = self.sessions.get_mut(&connection) {
            note(session);
        }
        Ok(())
    }
}

/// The process itself.
impl Auditor {
    fn stop(&mut self) -> Verdict {
        let verdict = self.nobody_is_late();
        self.running = None;
        verdict
    }

    fn go_on(&mut self) -> Verdict {
        self.running = Some(self.now);
        Ok(())
    }

    fn die(&mut self) -> Verdict {
        self.running = None;
        self.shut_down.clear();
        self.with_places.clear();
        self.sessions.clear();
        self.departed.clear();
        self.dealt.clear();
        self.arrived_early.clear();
        self.passed_over.clear();
        self.locks.clear();
        self.last_token = 0;
        Ok(())
    }
}
