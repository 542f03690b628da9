//! One process of the server: its event loops, the acceptor that deals to them, and the messages
//! that are under way between its threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use monolock_core::fencing::{Token, TokenMint};
use monolock_core::places::Places;
use monolock_core::shard_map::ShardMap;
use monolock_core::time::Instant;

use super::draws::Draws;
use super::driver::{Driver, Message, Turn};
use super::lock_server::{LockServer, Parts};
use super::network::Network;
use super::sighting::{Connection, Gauges, Remains, Shard, Sighting};
use super::workload::Scenario;

/// Makes the server of an event loop out of the parts of its engine.
pub(crate) type Founder = fn(Parts) -> Box<dyn LockServer>;

/// A thread that sends messages: the event loops by their numbers, then the acceptor, then the one
/// that shuts the server down.
type Sender = usize;

/// Messages from one thread to another arrive in their order.
#[derive(Default)]
struct Channel {
    under_way: VecDeque<Message>,
    last_arrival: u64,
}

pub(crate) struct Process {
    shards: Vec<Driver>,
    shard_map: ShardMap,
    places: Arc<[Places]>,
    /// Connections that wait for the acceptor.
    backlog: VecDeque<Connection>,
    /// The event loop whose turn it is to be dealt a connection.
    next: Shard,
    dealt: Vec<(Shard, Message)>,
    channels: BTreeMap<(Sender, Shard), Channel>,
    message_delay_max: u64,
    draws: Draws,
    is_shutting_down: bool,
}

impl Process {
    pub(crate) fn new(
        scenario: &Scenario,
        founder: Founder,
        config: monolock_core::engine::EngineConfig,
        mut draws: impl FnMut(&str) -> Draws,
    ) -> Process {
        let count = scenario.shards;
        let shards = std::num::NonZeroU32::new(count).expect("one at least");
        let mut own_draws = draws("process");
        let key = [own_draws.among(&[4, 5, 6, 7]); 16];
        let shard_map = ShardMap::new(shards, key);
        let mint = Arc::new(TokenMint::new());
        let places: Arc<[Places]> = (0..count).map(|_| Places::new(config.sessions_max)).collect();
        let shards = (0..count).map(|shard| {
            let server = founder(Parts { shard, shard_map, config, mint: Arc::clone(&mint) });
            let draws = draws(&format!("driver {shard}"));
            Driver::new(shard, server, Arc::clone(&places), scenario.habits.clone(), draws)
        });
        Process {
            shards: shards.collect(),
            shard_map,
            places,
            backlog: VecDeque::new(),
            next: 0,
            dealt: Vec::new(),
            channels: BTreeMap::new(),
            message_delay_max: scenario.message_delay_max,
            draws: own_draws,
            is_shutting_down: false,
        }
    }

    pub(crate) fn shard_map(&self) -> ShardMap {
        self.shard_map
    }

    fn owner(&self, lock: &str) -> Shard {
        self.shard_map.owner(lock) as usize
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// A connection waits to be taken: whether anybody listens.
    pub(crate) fn knock(&mut self, connection: Connection) -> bool {
        if !self.is_shutting_down {
            self.backlog.push_back(connection);
        }
        !self.is_shutting_down
    }

    /// The next event loop, round robin, that has room for a connection.
    fn with_room(&self) -> Option<Shard> {
        let count = self.shards.len();
        let round = (0..count).map(|step| (self.next + step) % count);
        round.into_iter().find(|&shard| self.places[shard].has_room())
    }

    /// Whether the acceptor has something to do.
    pub(crate) fn can_accept(&self) -> bool {
        !self.backlog.is_empty() && self.with_room().is_some()
    }

    pub(crate) fn accept(&mut self, turn: &mut Turn<'_>) {
        while let Some(shard) = self.with_room()
            && let Some(connection) = self.backlog.pop_front()
        {
            self.places[shard].take_for_new();
            turn.auditor.see(turn.time, Sighting::Dealt(connection));
            self.dealt.push((shard, Message::Connection(connection)));
            self.next = (shard + 1) % self.shards.len();
        }
    }

    /// Sends what its threads have to say to each other: when, from whom and to whom something
    /// will arrive.
    pub(crate) fn post(&mut self, now: u64) -> Vec<(u64, Sender, Shard)> {
        let acceptor = self.shards.len();
        let mut sent: Vec<(Sender, Shard, Message)> = Vec::new();
        sent.extend(self.dealt.drain(..).map(|(to, message)| (acceptor, to, message)));
        for (from, shard) in self.shards.iter_mut().enumerate() {
            let messages = shard.take_sent().into_iter();
            sent.extend(messages.map(|(to, message)| (from, to as usize, message)));
        }
        sent.into_iter().map(|(from, to, message)| self.send(from, to, message, now)).collect()
    }

    fn send(
        &mut self,
        from: Sender,
        to: Shard,
        message: Message,
        now: u64,
    ) -> (u64, Sender, Shard) {
        let delay = self.draws.between(0..=self.message_delay_max);
        let channel = self.channels.entry((from, to)).or_default();
        channel.last_arrival = channel.last_arrival.max(now + delay);
        channel.under_way.push_back(message);
        (channel.last_arrival, from, to)
    }

    /// The next message from that thread to that event loop has arrived.
    pub(crate) fn deliver(&mut self, from: Sender, to: Shard) {
        let message =
            self.channels.get_mut(&(from, to)).and_then(|sent| sent.under_way.pop_front());
        self.shards[to].tell(message.expect("it was sent"));
    }

    /// Nobody is accepted any more; who is there is told to leave.
    pub(crate) fn shut_down(
        &mut self,
        network: &mut Network,
        now: u64,
    ) -> Vec<(u64, Sender, Shard)> {
        self.is_shutting_down = true;
        for connection in self.backlog.drain(..) {
            network.refuse(connection, now);
        }
        let control = self.shards.len() + 1;
        let all = 0..self.shards.len();
        all.map(|shard| self.send(control, shard, Message::ShutDown, now)).collect()
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    pub(crate) fn turn(&mut self, shard: Shard, turn: &mut Turn<'_>) {
        self.shards[shard].turn(turn);
        let gauges = self.gauges();
        let places = self.places.iter().map(Places::left_for_moves).collect();
        turn.auditor.see(turn.time, Sighting::TurnEnds { gauges, places });
    }

    pub(crate) fn next_turn(&mut self, shard: Shard, turn: &Turn<'_>) -> Option<Instant> {
        self.shards[shard].next_turn(turn)
    }

    /// Whether an event loop ends, and with it whatever it was still to be told.
    pub(crate) fn has_ended(&mut self, shard: Shard) -> bool {
        self.shards[shard].has_ended()
    }

    /// The kernel has taken the rest of what was sent: which event loop hears of it.
    pub(crate) fn taken(&mut self, connection: Connection) -> Option<Shard> {
        let shard = self.shard_of(connection)?;
        self.shards[shard].taken(connection);
        Some(shard)
    }

    /// Which event loop has a connection.
    pub(crate) fn shard_of(&self, connection: Connection) -> Option<Shard> {
        self.shards.iter().position(|shard| shard.has(connection))
    }

    pub(crate) fn force_release(
        &mut self,
        lock: &str,
        token: Option<Token>,
        turn: &mut Turn<'_>,
    ) -> Shard {
        let shard = self.owner(lock);
        self.shards[shard].force_release(lock, token, turn);
        shard
    }

    pub(crate) fn kick(
        &mut self,
        lock: &str,
        connection: Connection,
        turn: &mut Turn<'_>,
    ) -> Shard {
        let shard = self.owner(lock);
        self.shards[shard].kick(lock, connection, turn);
        shard
    }

    /// All connections that the process has, for when it dies.
    pub(crate) fn all_connections(&self) -> Vec<Connection> {
        let under_way = self.channels.values().flat_map(|channel| &channel.under_way);
        let handed_over = under_way.filter_map(Message::connection);
        let in_shards = self.shards.iter().flat_map(Driver::all_connections);
        in_shards.chain(handed_over).chain(self.backlog.iter().copied()).collect()
    }

    fn gauges(&mut self) -> Gauges {
        let all = self.shards.iter_mut().map(Driver::gauges);
        all.fold(Gauges::default(), Gauges::plus)
    }

    /// What is left when nothing happens any more.
    pub(crate) fn remains(&mut self) -> Sighting {
        let all = self.shards.iter_mut().map(Driver::remains);
        let remains = all.fold(Remains::default(), Remains::plus);
        let places_taken = self.places.iter().map(|places| places.taken() as usize).sum();
        Sighting::AtRest(Remains { places_taken, ..remains })
    }
}
