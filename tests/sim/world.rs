//! Everything together: one occasion after the other, in the order of their times.

use std::collections::{BTreeMap, BTreeSet};

use monolock_core::engine::EngineConfig;
use monolock_core::fencing::Token;

use super::auditor::{Auditor, Limits, Tally};
use super::client::{Client, Move, Moves};
use super::clock::Clocks;
use super::draws::Draws;
use super::driver::Turn;
use super::invariants::Violation;
use super::network::{Network, Segment, Side};
use super::process::{Founder, Process};
use super::sighting::{Connection, Shard, Sighting};
use super::workload::{self, Disturbance, LOCKS, Plan, Scenario};

/// A world that does not come to rest has a fault of its own.
const OCCASIONS_MAX: u64 = 300_000;

/// Between two turns of a server that is busy.
const TURN: u64 = 20_000;

/// Something that has its time.
#[derive(Clone, Copy, Debug)]
enum Occasion {
    /// An event loop turns, unless it was moved to another time.
    Turn(Shard),
    /// The acceptor looks whether it can take somebody.
    Accept,
    /// A message from one of a process's threads to an event loop arrives.
    Message {
        process: u64,
        from: usize,
        to: Shard,
    },
    Arrival(Side, Connection),
    /// A client does what it meant to do with a connection.
    Client(usize, Option<Connection>, Move),
    Disturbance(Disturbance),
    /// The server's kernel has hoped for long enough.
    GiveUp(Connection),
    /// The server's process goes on, or begins.
    Continue,
    Start,
    WindUp,
}

/// How a world came to its end.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violation: Option<Violation>,
    pub(crate) story: String,
    pub(crate) events: Tally,
}

/// One world.
pub(crate) struct World {
    scenario: Scenario,
    founder: Founder,
    now: u64,
    agenda: BTreeMap<(u64, u64), Occasion>,
    serial: u64,
    network: Network,
    clients: Vec<Client>,
    /// Nothing between two processes.
    process: Option<Process>,
    /// When each event loop turns next.
    turns_due: BTreeMap<Shard, u64>,
    /// Event loops that have ended before the process has.
    ended: BTreeSet<Shard>,
    accept_due: bool,
    stopped_until: u64,
    clocks: Clocks,
    auditor: Auditor,
    is_winding_up: bool,
    processes: u64,
    seed: u64,
    client_draws: Draws,
    driver_draws: Draws,
    clock_draws: Draws,
    administrator_draws: Draws,
    disturbance_draws: Draws,
}

impl World {
    /// The world of a seed, with what `founder` makes of its engines.
    pub(crate) fn new(seed: u64, founder: Founder) -> World {
        let scenario = Scenario::draw(seed);
        let limits = Limits {
            io_timeout: scenario.io_timeout,
            lease_max_ms: scenario.lease_max_ms.map(std::num::NonZeroU32::get),
        };
        let (uptime_nanos, unix_nanos) = (scenario.uptime_nanos, scenario.unix_nanos);
        World {
            founder,
            now: 0,
            agenda: BTreeMap::new(),
            serial: 0,
            network: Network::new(seed),
            clients: Vec::new(),
            process: None,
            turns_due: BTreeMap::new(),
            ended: BTreeSet::new(),
            accept_due: false,
            stopped_until: 0,
            clocks: Clocks { uptime_nanos, unix_nanos },
            auditor: Auditor::new(limits),
            is_winding_up: false,
            processes: 0,
            seed,
            client_draws: Draws::named(seed, "clients"),
            driver_draws: Draws::named(seed, "driver"),
            clock_draws: Draws::named(seed, "clocks"),
            administrator_draws: Draws::named(seed, "administrator"),
            disturbance_draws: Draws::named(seed, "disturbed connections"),
            scenario,
        }
    }

    /// Lets everything happen until nothing does any more, or the judge has seen enough.
    pub(crate) fn run(mut self) -> Outcome {
        self.begin();
        let mut occasions = 0;
        while let Some(((time, _), occasion)) = self.agenda.pop_first() {
            self.now = time;
            self.auditor.see_nothing(time);
            if self.auditor.violation().is_some() {
                break;
            }
            self.happen(occasion);
            self.follow_up();
            occasions += 1;
            assert!(
                occasions < OCCASIONS_MAX,
                "the world of seed {} is restless\n{}",
                self.seed,
                self.auditor.story()
            );
        }
        if let Some(process) = &mut self.process {
            let remains = process.remains();
            self.auditor.see(self.now, remains);
        }
        Outcome {
            violation: self.auditor.violation().cloned(),
            story: self.auditor.story(),
            events: self.auditor.events().clone(),
        }
    }

    fn begin(&mut self) {
        self.start();
        for number in 0..self.scenario.clients {
            let plan = Plan::draw(&mut self.client_draws, &self.scenario);
            let time = self.client_draws.between(0..=self.scenario.unit * 2);
            self.clients.push(Client::new(plan));
            self.plan(time, Occasion::Client(number, None, Move::Connect));
        }
        for (time, disturbance) in self.scenario.disturbances.timetable(self.seed, &self.scenario) {
            self.plan(time, Occasion::Disturbance(disturbance));
        }
        self.plan(self.scenario.duration, Occasion::WindUp);
    }

    fn plan(&mut self, time: u64, occasion: Occasion) {
        self.serial += 1;
        self.agenda.insert((time.max(self.now), self.serial), occasion);
    }

    fn happen(&mut self, occasion: Occasion) {
        match occasion {
            Occasion::Turn(shard) => self.turn(shard),
            Occasion::Accept => self.accept(),
            Occasion::Message { process, from, to } => self.deliver(process, from, to),
            Occasion::Arrival(Side::Server, connection) => self.reach_server(connection),
            Occasion::Arrival(Side::Client, connection) => self.reach_client(connection),
            Occasion::Client(number, None, _) => self.connect(number),
            Occasion::Client(number, Some(connection), step) => {
                self.act(number, connection, step);
            }
            Occasion::Disturbance(disturbance) => self.disturb(disturbance),
            Occasion::GiveUp(connection) => {
                if self.network.give_up(connection, self.now) {
                    self.wake_for(connection);
                }
            }
            Occasion::Continue => self.go_on(),
            Occasion::Start => self.start(),
            Occasion::WindUp => self.wind_up(),
        }
    }

    /// What the occasion has set going.
    fn follow_up(&mut self) {
        for (time, side, connection) in self.network.take_due() {
            self.plan(time, Occasion::Arrival(side, connection));
        }
        let Some(process) = &mut self.process else { return };
        let sent = process.post(self.now);
        if process.can_accept() && !std::mem::replace(&mut self.accept_due, true) {
            let latency = self.driver_draws.between(0..=TURN);
            self.plan(self.now + latency, Occasion::Accept);
        }
        self.plan_messages(sent);
    }

    fn plan_messages(&mut self, sent: Vec<(u64, usize, Shard)>) {
        for (time, from, to) in sent {
            self.plan(time, Occasion::Message { process: self.processes, from, to });
        }
    }
}

/// The server.
impl World {
    fn start(&mut self) {
        let config = EngineConfig {
            sessions_max: self.scenario.sessions_max,
            io_timeout: self.scenario.io_timeout,
            lease_max_ms: self.scenario.lease_max_ms,
            hash_key: [self.driver_draws.among(&[0, 1, 2, 3]); 16],
        };
        self.processes += 1;
        let (seed, number) = (self.seed, self.processes);
        let draws = |of: &str| Draws::named(seed, &format!("{of} of process {number}"));
        let process = Process::new(&self.scenario, self.founder, config, draws);
        self.auditor.see(self.now, Sighting::Started(process.shard_map()));
        self.process = Some(process);
        self.stopped_until = self.now;
    }

    /// Has the process do something now.
    fn drive<T>(&mut self, with: impl FnOnce(&mut Process, &mut Turn<'_>) -> T) -> Option<T> {
        let mut turn = Turn {
            time: self.now,
            now: self.clocks.read(self.now),
            network: &mut self.network,
            auditor: &mut self.auditor,
        };
        Some(with(self.process.as_mut()?, &mut turn))
    }

    fn wake(&mut self, shard: Shard) {
        let latency = self.driver_draws.between(0..=TURN);
        self.turn_at(shard, self.now + latency);
    }

    /// Wakes the event loop that has a connection, if one has it.
    fn wake_for(&mut self, connection: Connection) {
        let shard = self.process.as_ref().and_then(|process| process.shard_of(connection));
        if let Some(shard) = shard {
            self.wake(shard);
        }
    }

    fn turn_at(&mut self, shard: Shard, time: u64) {
        if self.ended.contains(&shard) {
            return;
        }
        let time = time.max(self.stopped_until);
        if self.turns_due.get(&shard).is_none_or(|&due| time < due) {
            self.turns_due.insert(shard, time);
            self.plan(time, Occasion::Turn(shard));
        }
    }

    fn turn(&mut self, shard: Shard) {
        if self.turns_due.get(&shard) != Some(&self.now) {
            return;
        }
        self.turns_due.remove(&shard);
        if self.now < self.stopped_until {
            return self.turn_at(shard, self.stopped_until);
        }
        self.drive(|process, turn| process.turn(shard, turn));
        self.sleep(shard);
    }

    /// When an event loop has to turn again, unless something wakes it before.
    fn sleep(&mut self, shard: Shard) {
        if self.drive(|process, _| process.has_ended(shard)) == Some(true) {
            return self.end_shard(shard);
        }
        let next = self.drive(|process, turn| process.next_turn(shard, turn));
        if let Some(deadline) = next.flatten() {
            let time = self.clocks.when(deadline);
            self.turn_at(shard, time.max(self.now + TURN));
        }
    }

    /// It wakes the others, which may not have been awake to see that they can end too.
    fn end_shard(&mut self, shard: Shard) {
        self.ended.insert(shard);
        let Some(process) = &mut self.process else { return };
        let count = process.shards();
        if self.ended.len() < count {
            return (0..count).for_each(|other| self.wake(other));
        }
        let remains = process.remains();
        self.auditor.see(self.now, remains);
        self.end_process();
    }

    fn accept(&mut self) {
        self.accept_due = false;
        if self.now < self.stopped_until {
            self.accept_due = true;
            return self.plan(self.stopped_until, Occasion::Accept);
        }
        self.drive(|process, turn| process.accept(turn));
    }

    fn deliver(&mut self, process: u64, from: usize, to: Shard) {
        if process == self.processes && self.process.is_some() {
            self.drive(|process, _| process.deliver(from, to));
            self.wake(to);
        }
    }

    fn go_on(&mut self) {
        let shards = self.process.as_ref().map_or(0, Process::shards);
        if shards > 0 && self.now >= self.stopped_until {
            self.auditor.see(self.now, Sighting::Continued);
            (0..shards).for_each(|shard| self.turn_at(shard, self.now));
        }
    }

    fn kill(&mut self) {
        let Some(process) = &self.process else { return };
        for connection in process.all_connections() {
            self.network.close(connection, self.now);
        }
        self.end_process();
    }

    fn end_process(&mut self) {
        self.process = None;
        self.turns_due.clear();
        self.ended.clear();
        self.accept_due = false;
        self.auditor.see(self.now, Sighting::Died);
        if !self.is_winding_up {
            self.reboot();
        }
    }

    /// Another process, at times on another machine, and at times with a clock that was set.
    fn reboot(&mut self) {
        let downtime = self.clock_draws.between(0..=self.scenario.unit * 3);
        if self.clock_draws.chance(30) {
            self.clocks.uptime_nanos = workload::uptime(&mut self.clock_draws);
        }
        if self.clock_draws.chance(30) {
            let step = workload::clock_step(&mut self.clock_draws, self.scenario.unit);
            self.clocks.step(step);
        }
        self.plan(self.now + downtime, Occasion::Start);
    }

    fn reach_server(&mut self, connection: Connection) {
        let Some(segment) = self.network.arrive(Side::Server, connection, self.now) else {
            return;
        };
        if segment == Segment::Syn {
            let listens = self.process.as_mut().is_some_and(|process| process.knock(connection));
            if !listens {
                self.network.refuse(connection, self.now);
            }
        } else {
            let sighting = match &segment {
                Segment::Bytes(bytes) => Sighting::Arrived(connection, bytes.len()),
                _ => Sighting::ArrivedEnd(connection),
            };
            if !self.network.reach(connection, segment, self.now) {
                return;
            }
            self.auditor.see(self.now, sighting);
            self.wake_for(connection);
        }
    }
}

/// The clients.
impl World {
    fn connect(&mut self, number: usize) {
        if self.is_winding_up {
            return;
        }
        let plan = Plan::draw(&mut self.client_draws, &self.scenario);
        let moves = self.clients[number].connect(plan, &mut self.network, self.now);
        self.intend(number, moves);
    }

    fn act(&mut self, number: usize, connection: Connection, step: Move) {
        if !self.clients[number].has(connection) {
            return;
        }
        let moves = self.clients[number].act(step, &mut self.network, self.now);
        self.intend(number, moves);
        if step == Move::Resume {
            self.read_as_client(number, connection);
        }
        self.come_again(number);
    }

    fn intend(&mut self, number: usize, moves: Moves) {
        for (time, connection, step) in moves {
            self.plan(time, Occasion::Client(number, Some(connection), step));
        }
    }

    /// A client that is gone comes again after a rest.
    fn come_again(&mut self, number: usize) {
        if let Some(rest) = self.clients[number].rest() {
            self.plan(self.now + rest, Occasion::Client(number, None, Move::Connect));
        }
    }

    fn reach_client(&mut self, connection: Connection) {
        let Some(segment) = self.network.arrive(Side::Client, connection, self.now) else {
            return;
        };
        let attentive = self.network.is_attentive(connection);
        let was_open = self.network.client_is_open(connection);
        self.network.deliver(connection, &segment, self.now);
        let place = self.clients.iter().position(|client| client.has(connection));
        let Some(number) = place.filter(|_| was_open) else { return };
        if segment == Segment::Reset {
            self.auditor.see(self.now, Sighting::ClientReset { connection, attentive });
            self.clients[number].lose();
            return self.come_again(number);
        }
        self.read_as_client(number, connection);
    }

    fn read_as_client(&mut self, number: usize, connection: Connection) {
        let (bytes, at_end) = self.network.client_read(connection);
        if !bytes.is_empty() {
            self.auditor.see(self.now, Sighting::ClientRead(connection, bytes.clone()));
            if self.network.make_room(connection, bytes.len(), self.now)
                && let Some(shard) =
                    self.process.as_mut().and_then(|process| process.taken(connection))
            {
                self.auditor.see(self.now, Sighting::Taken(connection));
                self.wake(shard);
            }
        }
        let moves = self.clients[number].hear(&bytes, at_end, &mut self.network, self.now);
        self.intend(number, moves);
        self.come_again(number);
    }

    /// The clients leave, each as it meant to, and nobody comes any more.
    fn wind_up(&mut self) {
        self.is_winding_up = true;
        if self.scenario.ends_by_shutdown {
            self.disturb(Disturbance::Shutdown);
        }
        for client in &mut self.clients {
            client.wind_up(&mut self.network, self.now);
        }
    }
}

/// What goes wrong.
impl World {
    fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Stop(len) => self.stop(len),
            Disturbance::Cut(len) => self.cut(len),
            Disturbance::StepClock(nanos) => self.clocks.step(nanos),
            Disturbance::Administrator => self.administrate(),
            Disturbance::Kill => self.kill(),
            Disturbance::Shutdown => self.shut_down(),
        }
    }

    fn stop(&mut self, len: u64) {
        if self.process.is_some() {
            self.auditor.see(self.now, Sighting::Stopped);
            self.stopped_until = self.stopped_until.max(self.now + len);
            self.plan(self.stopped_until, Occasion::Continue);
        }
    }

    fn cut(&mut self, len: u64) {
        let number = self.disturbance_draws.place(self.clients.len());
        if let Some(connection) = self.clients[number].connection() {
            self.network.cut(connection, self.now + len);
            if len > self.scenario.hope {
                self.plan(self.now + self.scenario.hope, Occasion::GiveUp(connection));
            }
        }
    }

    /// A stopped process hears of nothing.
    fn shut_down(&mut self) {
        let is_told = self.process.as_ref().is_some_and(|process| !process.is_shutting_down());
        if is_told && self.now >= self.stopped_until {
            let sent = self.drive(|process, turn| process.shut_down(turn.network, turn.time));
            self.plan_messages(sent.unwrap_or_default());
        }
    }

    fn administrate(&mut self) {
        if self.now < self.stopped_until {
            return;
        }
        let draws = &mut self.administrator_draws;
        let lock = LOCKS[draws.place(self.scenario.locks)];
        let waiting = self.auditor.waiting_for(lock);
        let shard = if draws.chance(50) && !waiting.is_empty() {
            // At times one that is not there, or not any more.
            let missed = draws.chance(20);
            let connection = waiting[draws.place(waiting.len())] + usize::from(missed);
            self.drive(|process, turn| process.kick(lock, connection, turn))
        } else {
            let held = self.auditor.token_of(lock);
            let older = held.and_then(|token| Token::new(token.get() - 1));
            let token = self.administrator_draws.among(&[None, held, older]);
            self.drive(|process, turn| process.force_release(lock, token, turn))
        };
        if let Some(shard) = shard {
            self.wake(shard);
        }
    }
}
