//! One event loop around an engine, with the order of a real one: what has come in, then the
//! deadlines, then what the engine asks for. Like the real one it doesn't decide anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use monolock_core::effect::{Effect, Ownership, OwnershipChange, Reading};
use monolock_core::engine::Departure;
use monolock_core::fencing::Token;
use monolock_core::places::{PlaceQueue, Places};
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::ShardNumber;
use monolock_core::time::{Instant, Now};
use monolock_core::wire::ERROR_LEN_MAX;

use super::auditor::Auditor;
use super::draws::Draws;
use super::lock_server::LockServer;
use super::network::{Input, Network};
use super::sighting::{Connection, End, Gauges, Remains, Sighting};
use super::workload::Habits;

/// The bytes that one read can take.
const BUFFER_LEN: usize = 4096;

/// What a turn has to do with: the true time, the server's clocks, the wire, and who looks on.
pub(crate) struct Turn<'a> {
    pub(crate) time: u64,
    pub(crate) now: Now,
    pub(crate) network: &'a mut Network,
    pub(crate) auditor: &'a mut Auditor,
}

impl Turn<'_> {
    fn see(&mut self, sighting: Sighting) {
        self.auditor.see(self.time, sighting);
    }
}

/// A send that the engine has not been told the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Send {
    /// Since that turn.
    UnderWay(u64),
    /// The engine knows that it is stuck.
    Blocked,
    Taken,
}

/// What an event loop is told by another thread.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Connection(Connection),
    Adopt { connection: Connection, departure: Departure },
    PlacesWanted { from: ShardNumber, count: u32 },
    PlaceKept { at: ShardNumber },
    PlaceReturned { from: ShardNumber, still_wanted: u32 },
    ShutDown,
}

impl Message {
    /// The connection that it is about to hand over.
    pub(crate) fn connection(&self) -> Option<Connection> {
        match *self {
            Message::Connection(connection) | Message::Adopt { connection, .. } => Some(connection),
            _ => None,
        }
    }
}

/// A place in another event loop.
#[derive(Clone, Copy)]
enum Place {
    Taken(SessionId, ShardNumber),
    Offered(ShardNumber),
}

/// A connection whose socket is being taken out of the ring.
struct Leaver {
    connection: Connection,
    /// A read was under way, and may still find something.
    is_read: bool,
    /// The turn in which it is out.
    gone_in: u64,
}

/// One event loop of a process.
pub(crate) struct Driver {
    number: ShardNumber,
    server: Box<dyn LockServer>,
    habits: Habits,
    draws: Draws,
    turn: u64,
    inbox: VecDeque<Message>,
    outbox: Vec<(ShardNumber, Message)>,
    /// Those of all event loops.
    places: Arc<[Places]>,
    places_wanted: PlaceQueue,
    places_elsewhere: VecDeque<Place>,
    leavers: Vec<Leaver>,
    freed: u32,
    connections: BTreeMap<SessionId, Connection>,
    sessions: BTreeMap<Connection, SessionId>,
    sends: BTreeMap<Connection, Send>,
    /// To be answered in the next turn.
    probes: Vec<Connection>,
    /// To be forgotten in the next turn.
    closed: Vec<Connection>,
    is_shutting_down: bool,
    /// Sessions at this place and behind it have not been told of it.
    telling_from: Option<u32>,
}

impl Driver {
    pub(crate) fn new(
        number: ShardNumber,
        server: Box<dyn LockServer>,
        places: Arc<[Places]>,
        habits: Habits,
        draws: Draws,
    ) -> Driver {
        Driver {
            number,
            server,
            habits,
            draws,
            turn: 0,
            inbox: VecDeque::new(),
            outbox: Vec::new(),
            places_wanted: PlaceQueue::new(u32::try_from(places.len()).expect("few")),
            places,
            places_elsewhere: VecDeque::new(),
            leavers: Vec::new(),
            freed: 0,
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            sends: BTreeMap::new(),
            probes: Vec::new(),
            closed: Vec::new(),
            is_shutting_down: false,
            telling_from: None,
        }
    }

    /// A message has arrived.
    pub(crate) fn tell(&mut self, message: Message) {
        self.inbox.push_back(message);
    }

    /// The messages that it has sent.
    pub(crate) fn take_sent(&mut self) -> Vec<(ShardNumber, Message)> {
        std::mem::take(&mut self.outbox)
    }

    /// The kernel has taken the rest of what was sent.
    pub(crate) fn taken(&mut self, connection: Connection) {
        self.sends.insert(connection, Send::Taken);
    }

    /// When the loop has to turn though nothing comes in: at once if something is left to do.
    pub(crate) fn next_turn(&mut self, turn: &Turn<'_>) -> Option<Instant> {
        let is_busy = !self.probes.is_empty()
            || !self.closed.is_empty()
            || !self.inbox.is_empty()
            || !self.places_elsewhere.is_empty()
            || !self.leavers.is_empty()
            || self.telling_from.is_some()
            || self.sends.values().any(|send| *send != Send::Blocked)
            || self.next_to_read(turn.network, &BTreeSet::new()).is_some();
        if is_busy { Some(turn.now.instant) } else { self.server.wake_at(turn.now) }
    }

    /// All connections that it has or is being handed.
    pub(crate) fn all_connections(&self) -> Vec<Connection> {
        let handed_over = self.inbox.iter().filter_map(Message::connection);
        self.sessions.keys().copied().chain(handed_over).collect()
    }

    pub(crate) fn has(&self, connection: Connection) -> bool {
        self.sessions.contains_key(&connection)
    }

    /// Whether it was told to end, and everybody is gone.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.is_shutting_down && self.server.may_end(&self.places)
    }

    pub(crate) fn gauges(&mut self) -> Gauges {
        self.server.gauges()
    }

    /// What is left when nothing happens any more.
    pub(crate) fn remains(&mut self) -> Remains {
        self.server.remains()
    }
}

/// What an operator does.
impl Driver {
    pub(crate) fn force_release(&mut self, lock: &str, token: Option<Token>, turn: &mut Turn<'_>) {
        let forced = self.server.force_release(lock, token, turn.now);
        let from = forced.ok().map(|session| self.connections[&session]);
        turn.see(Sighting::ForceRelease { lock: lock.to_owned(), token, from });
        self.report(turn);
        self.carry_out(turn);
    }

    pub(crate) fn kick(&mut self, lock: &str, connection: Connection, turn: &mut Turn<'_>) {
        let kicked = self.server.kick_waiter(lock, address(connection), turn.now);
        let done = kicked.is_ok_and(|session| self.connections[&session] == connection);
        turn.see(Sighting::Kick { lock: lock.to_owned(), connection, done });
        self.report(turn);
        self.carry_out(turn);
    }
}

/// What the loop does.
impl Driver {
    pub(crate) fn turn(&mut self, turn: &mut Turn<'_>) {
        self.turn += 1;
        self.forget_closed();
        let armed = self.armed(turn);
        let reads_inbox_first = self.draws.chance(50);
        if reads_inbox_first {
            self.read_inbox(turn);
        }
        if self.draws.chance(50) {
            self.end_sends(turn);
            self.take_in(&armed, turn);
        } else {
            self.take_in(&armed, turn);
            self.end_sends(turn);
        }
        if !reads_inbox_first {
            self.read_inbox(turn);
        }
        for connection in std::mem::take(&mut self.probes) {
            self.probe(connection, turn);
        }
        self.pass_deadlines(turn);
        self.carry_out(turn);
        self.tell_of_shutdown(turn);
        self.carry_out(turn);
        self.publish();
    }

    fn read_inbox(&mut self, turn: &mut Turn<'_>) {
        while let Some(message) = self.inbox.pop_front() {
            match message {
                Message::Connection(connection) => {
                    if self.connect(connection, turn).is_some() {
                        turn.see(Sighting::Accepted(connection, self.number as usize));
                    }
                }
                Message::Adopt { connection, departure } => {
                    let Some(session) = self.connect(connection, turn) else { return };
                    turn.see(Sighting::Adopted(connection, self.number as usize));
                    self.server.adopt(session, &departure, turn.now);
                    self.report(turn);
                }
                Message::PlacesWanted { from, count } => self.note_wanted(from, count),
                Message::PlaceKept { at } => self.places_elsewhere.push_back(Place::Offered(at)),
                Message::PlaceReturned { from, still_wanted } => {
                    self.freed += 1;
                    self.note_wanted(from, still_wanted);
                }
                Message::ShutDown => {
                    self.is_shutting_down = true;
                    self.telling_from = Some(0);
                    turn.see(Sighting::Shutdown(self.number as usize));
                    self.server.shut_down();
                }
            }
        }
        self.let_go(turn);
    }

    /// What was ended for another reason in the same turn has been closed before: the judge would
    /// take it for somebody who is to be told.
    fn tell_of_shutdown(&mut self, turn: &mut Turn<'_>) {
        let Some(from) = self.telling_from else { return };
        let limit = self.habits.told_a_turn;
        let places = from..from.saturating_add(limit);
        for (session, connection) in &self.connections {
            if places.contains(&session.index) && !self.closed.contains(connection) {
                turn.see(Sighting::ToldOfShutdown(*connection));
            }
        }
        self.telling_from = self.server.tell_of_shutdown(from, limit, turn.now);
        self.report(turn);
    }

    fn connect(&mut self, connection: Connection, turn: &mut Turn<'_>) -> Option<SessionId> {
        let Ok(session) = self.server.connect(address(connection), turn.now) else {
            turn.see(Sighting::HasNoPlace(connection));
            return None;
        };
        self.connections.insert(session, connection);
        self.sessions.insert(connection, session);
        Some(session)
    }

    /// The connections whose reads are with the kernel already: what these find is given to the
    /// engine even if it would not have them read any more.
    fn armed(&mut self, turn: &Turn<'_>) -> BTreeSet<Connection> {
        let Driver { sessions, server, .. } = self;
        let armed = sessions.iter().filter(|&(&connection, &session)| {
            turn.network.readable_since(connection).is_some()
                && server.reading(session) != Reading::Off
        });
        armed.map(|(&connection, _)| connection).collect()
    }

    fn take_in(&mut self, armed: &BTreeSet<Connection>, turn: &mut Turn<'_>) {
        let mut armed = armed.clone();
        for _ in 0..self.habits.reads_a_turn {
            let Some(connection) = self.next_to_read(turn.network, &armed) else { return };
            armed.remove(&connection);
            let len_max = self.read_max(connection, turn.network);
            let input = turn.network.read(connection, len_max);
            self.give(connection, input, turn);
        }
    }

    /// A single read takes what is there of the first frame: the engine relies on it when the time
    /// for that has passed.
    fn read_max(&mut self, connection: Connection, network: &Network) -> usize {
        match self.server.reading(self.sessions[&connection]) {
            Reading::Once => BUFFER_LEN,
            // A flood is not read byte by byte, for the sake of who waits for this test.
            _ if network.readable_len(connection) > BUFFER_LEN => BUFFER_LEN,
            Reading::Off | Reading::Stream => self.habits.read_max,
        }
    }

    /// What became readable first is read first.
    fn next_to_read(
        &mut self,
        network: &Network,
        armed: &BTreeSet<Connection>,
    ) -> Option<Connection> {
        let Driver { sessions, server, .. } = self;
        let readable = sessions.iter().filter_map(|(&connection, &session)| {
            let since = network.readable_since(connection)?;
            let is_read = armed.contains(&connection) || server.reading(session) != Reading::Off;
            is_read.then_some((since, connection))
        });
        readable.min().map(|(_, connection)| connection)
    }

    fn give(&mut self, connection: Connection, input: Input, turn: &mut Turn<'_>) {
        let Some(&session) = self.sessions.get(&connection) else { return };
        match input {
            Input::Bytes(bytes) => {
                turn.see(Sighting::Read(connection, bytes.clone()));
                self.server.receive(session, &bytes, turn.now);
            }
            Input::End(end) => {
                turn.see(Sighting::ReadEnd(connection, end));
                self.leavers.retain(|leaver| leaver.connection != connection);
                match end {
                    End::Closed => self.server.end_of_stream(session, turn.now),
                    End::Reset => self.server.disconnected(session, turn.now),
                    End::GaveUp => self.server.unreachable(session, turn.now),
                }
            }
            Input::Nothing => self.server.silent(session, turn.now),
        }
        self.report(turn);
    }

    fn probe(&mut self, connection: Connection, turn: &mut Turn<'_>) {
        let input = turn.network.read(connection, BUFFER_LEN);
        self.give(connection, input, turn);
    }

    /// Tells the engine how its sends have gone.
    fn end_sends(&mut self, turn: &mut Turn<'_>) {
        for (connection, send) in self.sends.clone() {
            let session = self.sessions[&connection];
            if let Some(end) = turn.network.broken(connection) {
                self.sends.remove(&connection);
                self.give(connection, Input::End(end), turn);
            } else if send == Send::Taken {
                self.sends.remove(&connection);
                self.server.sent(session, turn.now);
            } else if matches!(send, Send::UnderWay(since) if since < self.turn) {
                self.sends.insert(connection, Send::Blocked);
                self.server.send_blocked(session, turn.now);
            }
            self.report(turn);
        }
    }

    fn pass_deadlines(&mut self, turn: &mut Turn<'_>) {
        if self.server.wake_at(turn.now).is_some_and(|at| at <= turn.now.instant) {
            self.server.expire(turn.now, self.habits.deadlines_a_turn);
            self.report(turn);
        }
    }

    fn carry_out(&mut self, turn: &mut Turn<'_>) {
        while let Some(effect) = self.server.poll_effect() {
            match effect {
                Effect::Transmit(session) => self.transmit(session, turn),
                Effect::Probe(session) => {
                    let connection = self.connections[&session];
                    if self.draws.chance(self.habits.probed_at_once) {
                        self.probe(connection, turn);
                    } else {
                        self.probes.push(connection);
                    }
                }
                Effect::ShutdownWrite(session) => {
                    let connection = self.connections[&session];
                    turn.see(Sighting::ShutdownWrite(connection));
                    turn.network.shutdown_write(connection, turn.time);
                }
                Effect::Close(session) => self.close(session, turn),
                Effect::Move { session, to } => self.move_to(session, to, turn),
                Effect::GiveBackPlace { at } => self.give_back_place(at),
            }
        }
    }

    fn transmit(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        let connection = self.connections[&session];
        let mut out = vec![0; self.draws.among(&[ERROR_LEN_MAX, ERROR_LEN_MAX + 1, 512, 4096])];
        let len = self.server.transmit(session, &mut out);
        if len == 0 {
            return;
        }
        turn.see(Sighting::Submitted(connection, out[..len].to_vec()));
        if !turn.network.submit(connection, &out[..len], turn.time) {
            turn.see(Sighting::Stuck(connection));
            self.sends.insert(connection, Send::UnderWay(self.turn));
            return;
        }
        turn.see(Sighting::Taken(connection));
        if self.draws.chance(self.habits.sent_at_once) {
            self.server.sent(session, turn.now);
            self.report(turn);
        } else {
            self.sends.insert(connection, Send::Taken);
        }
    }

    fn close(&mut self, session: SessionId, turn: &mut Turn<'_>) {
        let connection = self.connections[&session];
        turn.see(Sighting::Closed(connection));
        turn.network.close(connection, turn.time);
        self.sends.remove(&connection);
        self.closed.push(connection);
        if self.draws.chance(self.habits.forgotten_at_once) {
            self.forget_closed();
        }
    }

    fn forget_closed(&mut self) {
        for connection in std::mem::take(&mut self.closed) {
            let session = self.sessions.remove(&connection).expect("it is closed once");
            self.connections.remove(&session);
            self.probes.retain(|&probed| probed != connection);
            self.server.forget(session);
            self.freed += 1;
        }
    }

    /// Passes on what has happened to locks.
    fn report(&mut self, turn: &mut Turn<'_>) {
        while let Some(change) = self.server.poll_change() {
            let OwnershipChange { lock, session, token, what, .. } = change;
            let (lock, connection) = (lock.to_string(), self.connections[&session]);
            turn.see(match what {
                Ownership::Granted { .. } => {
                    Sighting::Granted { lock, connection, token, clock: turn.now.unix }
                }
                Ownership::Released { reason, .. } => {
                    Sighting::Released { lock, connection, token, reason }
                }
            });
        }
    }
}

/// Connections that move.
impl Driver {
    fn move_to(&mut self, session: SessionId, to: ShardNumber, turn: &mut Turn<'_>) {
        if !self.server.is_to_move(session) {
            return;
        }
        if self.places[to as usize].take_for_move() {
            return self.places_elsewhere.push_back(Place::Taken(session, to));
        }
        turn.see(Sighting::WaitsForPlace(self.connections[&session]));
        self.server.wait_for_place(session, turn.now);
        let count = self.server.waiting_for(to);
        self.outbox.push((to, Message::PlacesWanted { from: self.number, count }));
    }

    /// Those who have a place elsewhere begin to leave, and those who have begun depart.
    fn let_go(&mut self, turn: &mut Turn<'_>) {
        while let Some(place) = self.places_elsewhere.pop_front() {
            self.begin_to_leave(place, turn);
            if self.draws.chance(20) {
                // There are descriptors for a few at a time only.
                break;
            }
        }
        for leaver in std::mem::take(&mut self.leavers) {
            if leaver.gone_in > self.turn || self.probes.contains(&leaver.connection) {
                self.leavers.push(leaver);
            } else {
                self.depart(&leaver, turn);
            }
        }
    }

    fn begin_to_leave(&mut self, place: Place, turn: &mut Turn<'_>) {
        let (session, at, is_read) = match place {
            Place::Taken(session, at) => {
                let session = self.server.is_to_move(session).then_some(session);
                session.inspect(|&session| self.server.leave(session));
                (session, at, false)
            }
            Place::Offered(at) => (self.server.leave_next(at, turn.now), at, true),
        };
        let Some(session) = session else { return self.give_back_place(at) };
        let connection = self.connections[&session];
        turn.see(Sighting::Leaves(connection));
        let turns = self.draws.between(0..=self.habits.turns_to_leave);
        self.leavers.push(Leaver { connection, is_read, gone_in: self.turn + turns });
    }

    fn depart(&mut self, leaver: &Leaver, turn: &mut Turn<'_>) {
        let Leaver { connection, is_read, .. } = *leaver;
        let finds_something = is_read && turn.network.readable_since(connection).is_some();
        if finds_something && self.draws.chance(80) {
            let input = turn.network.read(connection, BUFFER_LEN);
            let is_over = matches!(input, Input::End(_));
            self.give(connection, input, turn);
            if is_over {
                return;
            }
        }
        let session = self.sessions.remove(&connection).expect("who leaves is there");
        self.connections.remove(&session);
        let departure = self.server.depart(session);
        self.freed += 1;
        turn.see(Sighting::Departed(connection));
        self.outbox.push((departure.to, Message::Adopt { connection, departure }));
    }

    fn give_back_place(&mut self, at: ShardNumber) {
        let still_wanted = self.server.waiting_for(at);
        self.outbox.push((at, Message::PlaceReturned { from: self.number, still_wanted }));
    }

    fn note_wanted(&mut self, from: ShardNumber, count: u32) {
        self.places_wanted.set_waiting(from, count);
        while !self.places_wanted.is_empty() && self.places[self.number as usize].take_for_move() {
            self.keep_place();
        }
    }

    fn keep_place(&mut self) -> bool {
        let next = self.places_wanted.pop();
        if let Some(shard) = next {
            self.outbox.push((shard, Message::PlaceKept { at: self.number }));
        }
        next.is_some()
    }

    fn publish(&mut self) {
        while self.freed > 0 && self.keep_place() {
            self.freed -= 1;
        }
        let gauges = self.server.gauges();
        let claimed = u32::try_from(gauges.connections - gauges.unclaimed).expect("few");
        let freed = std::mem::take(&mut self.freed);
        self.places[self.number as usize].publish(freed, claimed);
    }
}

/// Every connection has an address of its own.
fn address(connection: Connection) -> PeerAddress {
    let [.., a, b, c] = connection.to_be_bytes();
    PeerAddress::from(SocketAddr::from(([10, a, b, c], 52114)))
}
