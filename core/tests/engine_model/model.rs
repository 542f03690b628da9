//! The lock server as its specification tells it: lists that are searched, deadlines that are
//! computed when they are asked for, nothing kept that can be derived.

use std::collections::{BTreeMap, VecDeque};

use crate::operation::{LOCKS, Setup, WhoseToken};

const MS: u64 = 1_000_000;

/// What a client is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Waiting,
    Acquired(u64),
    Error(u8),
}

/// What the driver is asked for, by the number of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Transmit(usize),
    Probe(usize),
    ShutdownWrite(usize),
    Close(usize),
}

/// A lock got or lost, by the number of the client; durations are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Granted { lock: String, client: usize, token: u64, wait: u64 },
    Released { lock: String, client: usize, token: u64, held: u64, reason: &'static str },
}

impl Change {
    pub(crate) fn lock(&self) -> &str {
        match self {
            Change::Granted { lock, .. } | Change::Released { lock, .. } => lock,
        }
    }
}

/// A claim as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub(crate) client: usize,
    pub(crate) since: u64,
    pub(crate) last_heard: u64,
    pub(crate) lease_ms: u32,
    pub(crate) token: Option<u64>,
}

/// A lock as an administrator sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) holder: Option<Claimant>,
    pub(crate) waiters: Vec<Claimant>,
}

/// All that is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) connections: u64,
    pub(crate) unclaimed: u64,
    pub(crate) locks_held: u64,
    pub(crate) waiters: u64,
    pub(crate) acquires: u64,
    pub(crate) heartbeats: u64,
    pub(crate) first_frame_timeouts: u64,
    pub(crate) releases: BTreeMap<&'static str, u64>,
    pub(crate) protocol_errors: BTreeMap<u8, u64>,
}

/// How a connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Off,
    Once,
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// A claim, or on the way to one.
    Alive,
    /// A claim whose answers have been stuck since that moment.
    Stuck(u64),
    /// A holder whom the kernel gave up on.
    Lost,
    /// Ended at that moment; answers and an ERROR are still to be sent.
    Ended(u64),
    /// The ERROR was given to the driver; ended at that moment.
    Told(u64),
    /// What still comes has been read away since that moment.
    Draining(u64),
    Closed,
    Forgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Nothing,
    Asked,
    UnderWay,
}

#[derive(Clone, Debug)]
struct Claim {
    lock: String,
    lease_ms: u32,
    last_heard: u64,
    since: u64,
    token: Option<u64>,
}

#[derive(Clone, Debug)]
struct Client {
    life: Life,
    connected: u64,
    /// All bytes until the first frame was whole.
    first_frame: Vec<u8>,
    claim: Option<Claim>,
    answers: usize,
    error: Option<u8>,
    sending: Sending,
    probed: bool,
    hung_up: bool,
    read_away: usize,
}

#[derive(Clone, Debug, Default)]
struct Lock {
    holder: Option<usize>,
    waiters: VecDeque<usize>,
}

pub(crate) struct Model {
    setup: Setup,
    /// Nanoseconds since the start, and since 1970.
    pub(crate) now: u64,
    pub(crate) unix_nanos: u128,
    last_token: u128,
    clients: Vec<Client>,
    locks: BTreeMap<String, Lock>,
    granting_is_stopped: bool,
    shutting_down: bool,
    pub(crate) asked: Vec<Asked>,
    pub(crate) changes: Vec<Change>,
    counted: Tally,
}

impl Client {
    fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive | Life::Stuck(_) | Life::Lost)
    }

    fn token(&self) -> Option<u64> {
        self.claim.as_ref().and_then(|claim| claim.token)
    }

    fn lease_end(&self) -> Option<u64> {
        self.claim.as_ref().map(|claim| claim.last_heard + u64::from(claim.lease_ms) * MS)
    }
}

impl Model {
    pub(crate) fn new(setup: Setup, now: u64, unix_nanos: u128) -> Model {
        Model {
            setup,
            now,
            unix_nanos,
            last_token: 0,
            clients: Vec::new(),
            locks: BTreeMap::new(),
            granting_is_stopped: false,
            shutting_down: false,
            asked: Vec::new(),
            changes: Vec::new(),
            counted: Tally::default(),
        }
    }

    /// The new client's number, or nothing if the table is full.
    pub(crate) fn connect(&mut self) -> Option<usize> {
        if self.sessions() == self.setup.sessions_max as usize {
            return None;
        }
        self.clients.push(Client {
            life: Life::Alive,
            connected: self.now,
            first_frame: Vec::new(),
            claim: None,
            answers: 0,
            error: None,
            sending: Sending::Nothing,
            probed: false,
            hung_up: false,
            read_away: 0,
        });
        let client = self.clients.len() - 1;
        if self.shutting_down {
            self.refuse(client, 0x01);
        }
        Some(client)
    }

    pub(crate) fn receive(&mut self, client: usize, bytes: &[u8]) {
        let was_probed = std::mem::take(&mut self.clients[client].probed);
        match self.clients[client].life {
            Life::Alive | Life::Stuck(_) => self.hear(client, bytes),
            Life::Draining(_) => {
                self.clients[client].read_away += bytes.len();
                if self.clients[client].read_away >= 1 << 20 {
                    self.close(client);
                }
            }
            Life::Lost | Life::Ended(_) | Life::Told(_) | Life::Closed | Life::Forgotten => {}
        }
        if was_probed {
            self.nothing_more_to_read(client);
        }
    }

    /// One byte after the other.
    fn hear(&mut self, client: usize, bytes: &[u8]) {
        for &byte in bytes {
            if !self.clients[client].is_alive() {
                return;
            }
            match &mut self.clients[client].claim {
                None => {
                    self.clients[client].first_frame.push(byte);
                    self.judge_first_frame(client);
                }
                Some(claim) if byte == 0x02 => {
                    claim.last_heard = self.now;
                    self.counted.heartbeats += 1;
                    self.answer(client);
                }
                Some(_) if byte == 0x01 => self.end_with_error(client, 0x12),
                Some(_) => self.end_with_error(client, 0x13),
            }
        }
    }

    fn judge_first_frame(&mut self, client: usize) {
        let frame = self.clients[client].first_frame.clone();
        let [kind, rest @ ..] = &frame[..] else { return };
        match kind {
            0x01 => {}
            0x02 => return self.end_with_error(client, 0x11),
            _ => return self.end_with_error(client, 0x13),
        }
        if rest.first().is_some_and(|&version| version != 1) {
            return self.end_with_error(client, 0x10);
        }
        let [_, a, b, c, d, high, low, name @ ..] = rest else { return };
        let lease_ms = u32::from_be_bytes([*a, *b, *c, *d]);
        let name_len = usize::from(*high) << 8 | usize::from(*low);
        match name_len {
            0 => return self.end_with_error(client, 0x14),
            256.. => return self.end_with_error(client, 0x15),
            _ if name.len() < name_len => return,
            _ => {}
        }
        match String::from_utf8(name.to_vec()) {
            Err(_) => self.end_with_error(client, 0x16),
            Ok(_) if lease_ms == 0 => self.end_with_error(client, 0x17),
            Ok(_) if self.setup.lease_max_ms.is_some_and(|max| lease_ms > max.get()) => {
                self.end_with_error(client, 0x19);
            }
            Ok(name) => self.claim(client, name, lease_ms),
        }
    }

    fn claim(&mut self, client: usize, name: String, lease_ms: u32) {
        let (last_heard, since) = (self.now, self.now);
        let claim = Claim { lock: name.clone(), lease_ms, last_heard, since, token: None };
        self.clients[client].claim = Some(claim);
        let lock = self.locks.entry(name).or_default();
        let is_free = lock.holder.is_none() && lock.waiters.is_empty();
        if is_free && !self.granting_is_stopped {
            self.grant(client);
        } else {
            lock.waiters.push_back(client);
            self.answer(client);
        }
    }

    fn grant(&mut self, client: usize) {
        let clock = (self.unix_nanos << 20) / 1_000_000_000;
        self.last_token = clock.max(self.last_token + 1);
        let token = u64::try_from(self.last_token).expect("not before 2242");
        let claim = self.clients[client].claim.as_mut().expect("it has claimed");
        claim.token = Some(token);
        let wait = self.now - claim.since;
        claim.since = self.now;
        let lock = claim.lock.clone();
        self.locks.get_mut(&lock).expect("it is claimed").holder = Some(client);
        self.counted.acquires += 1;
        self.changes.push(Change::Granted { lock, client, token, wait });
        self.answer(client);
    }

    pub(crate) fn end_of_stream(&mut self, client: usize) {
        self.clients[client].hung_up = true;
        match self.clients[client].life {
            Life::Alive => {
                self.end(client, "graceful");
                self.go_on(client);
            }
            Life::Stuck(_) | Life::Lost => {
                self.end(client, "graceful");
                self.close(client);
            }
            Life::Draining(_) => self.close(client),
            Life::Ended(_) | Life::Told(_) | Life::Closed | Life::Forgotten => {}
        }
    }

    pub(crate) fn disconnected(&mut self, client: usize) {
        if matches!(self.clients[client].life, Life::Closed | Life::Forgotten) {
            return;
        }
        self.clients[client].hung_up = true;
        self.end(client, "graceful");
        self.close(client);
    }

    pub(crate) fn unreachable(&mut self, client: usize) {
        if self.clients[client].is_alive() && self.clients[client].token().is_some() {
            self.clients[client].life = Life::Lost;
            self.clients[client].probed = false;
        } else {
            self.disconnected(client);
        }
    }

    pub(crate) fn refuse(&mut self, client: usize, code: u8) {
        if self.clients[client].is_alive() {
            self.end_with_error(client, code);
        }
    }

    pub(crate) fn shut_down(&mut self) {
        self.shutting_down = true;
        for client in 0..self.clients.len() {
            self.refuse(client, 0x01);
        }
    }

    pub(crate) fn grant_from_now_on(&mut self, grants: bool) {
        self.granting_is_stopped = !grants;
    }

    /// If nobody holds the lock, who has waited longest gets it.
    pub(crate) fn promote(&mut self, lock: &str) {
        if self.shutting_down || self.granting_is_stopped {
            return;
        }
        let lock = self.locks.get_mut(lock).expect("the engine has it");
        if lock.holder.is_none()
            && let Some(next) = lock.waiters.pop_front()
        {
            self.grant(next);
        }
    }

    /// The client that held the lock, or the token of who does if it is another one's.
    pub(crate) fn force_release(
        &mut self,
        lock: usize,
        token: Option<u64>,
    ) -> Result<usize, Option<u64>> {
        let holder = self.holder(LOCKS[lock]).ok_or(None)?;
        let held = self.clients[holder].token();
        if token.is_some() && token != held {
            return Err(held);
        }
        self.end_with_error(holder, 0x02);
        Ok(holder)
    }

    /// Whether the client was there to be put out.
    pub(crate) fn kick(&mut self, lock: usize, client: usize) -> bool {
        let waits = self.locks.get(LOCKS[lock]).is_some_and(|lock| lock.waiters.contains(&client));
        if waits {
            self.end_with_error(client, 0x02);
        }
        waits
    }

    /// The token to give with a force-release.
    pub(crate) fn token_of(&self, lock: usize, whose: WhoseToken) -> Option<u64> {
        let held = self.holder(LOCKS[lock]).and_then(|holder| self.clients[holder].token());
        match whose {
            WhoseToken::Anybodys => None,
            WhoseToken::TheHolders => held.or(Some(1)),
            WhoseToken::AnotherOnes => Some(held.map_or(1, |token| token - 1)),
        }
    }

    fn holder(&self, lock: &str) -> Option<usize> {
        self.locks.get(lock)?.holder
    }

    fn end_with_error(&mut self, client: usize, code: u8) {
        let could_be_told = self.clients[client].life != Life::Lost;
        if (0x10..=0x19).contains(&code) {
            *self.counted.protocol_errors.entry(code).or_default() += 1;
        }
        self.end(
            client,
            match code {
                0x01 => "shutdown",
                0x02..=0x0f => "force",
                _ => "protocol_error",
            },
        );
        if could_be_told {
            self.clients[client].error = Some(code);
            self.go_on(client);
        } else {
            self.close(client);
        }
    }

    /// The claim is over, and its lock or its place in the queue is free.
    fn end(&mut self, client: usize, reason: &'static str) {
        if !self.clients[client].is_alive() {
            return;
        }
        self.clients[client].life = Life::Ended(self.now);
        self.clients[client].probed = false;
        let Some(claim) = self.clients[client].claim.clone() else { return };
        let lock = self.locks.get_mut(&claim.lock).expect("it is claimed");
        lock.waiters.retain(|&waiter| waiter != client);
        if lock.holder == Some(client) {
            lock.holder = None;
            let may_grant = !self.shutting_down && !self.granting_is_stopped;
            let next = if may_grant { lock.waiters.pop_front() } else { None };
            let token = claim.token.expect("holders have one");
            let held = self.now - claim.since;
            *self.counted.releases.entry(reason).or_default() += 1;
            let lock = claim.lock.clone();
            self.changes.push(Change::Released { lock, client, token, held, reason });
            if let Some(next) = next {
                self.grant(next);
            }
        }
        self.locks.retain(|_, lock| lock.holder.is_some() || !lock.waiters.is_empty());
    }

    /// One more answer.
    fn answer(&mut self, client: usize) {
        self.clients[client].answers += 1;
        self.ask_to_transmit(client);
    }

    fn ask_to_transmit(&mut self, client: usize) {
        let owed = self.clients[client].answers > 0 || self.clients[client].error.is_some();
        if owed && self.clients[client].sending == Sending::Nothing {
            self.clients[client].sending = Sending::Asked;
            self.asked.push(Asked::Transmit(client));
        }
    }

    /// An ended client is closed when it has had all.
    fn go_on(&mut self, client: usize) {
        self.ask_to_transmit(client);
        if self.clients[client].sending == Sending::Nothing {
            self.close(client);
        }
    }

    fn close(&mut self, client: usize) {
        self.clients[client].life = Life::Closed;
        self.asked.push(Asked::Close(client));
    }

    pub(crate) fn is_asked_to_transmit(&self, client: usize) -> bool {
        self.clients[client].sending == Sending::Asked
            && self.clients[client].life != Life::Forgotten
    }

    pub(crate) fn is_sending(&self, client: usize) -> bool {
        self.clients[client].sending == Sending::UnderWay
            && self.clients[client].life != Life::Forgotten
    }

    pub(crate) fn is_closed(&self, client: usize) -> bool {
        self.clients[client].life == Life::Closed
    }

    /// The frames that go into a buffer of so many bytes.
    pub(crate) fn transmit(&mut self, client: usize, room: usize) -> Vec<Frame> {
        let client = &mut self.clients[client];
        client.sending = Sending::Nothing;
        if matches!(client.life, Life::Lost | Life::Closed) {
            return Vec::new();
        }
        let (standing, len) = match client.token() {
            Some(token) => (Frame::Acquired(token), 9),
            None => (Frame::Waiting, 1),
        };
        let count = client.answers.min(room / len);
        let mut frames = vec![standing; count];
        client.answers -= count;
        if client.answers == 0
            && room - count * len >= 258
            && let Life::Ended(since) = client.life
            && let Some(code) = client.error.take()
        {
            frames.push(Frame::Error(code));
            client.life = Life::Told(since);
        }
        client.sending = Sending::UnderWay;
        frames
    }

    pub(crate) fn sent(&mut self, client: usize) {
        self.clients[client].sending = Sending::Nothing;
        match self.clients[client].life {
            Life::Alive | Life::Stuck(_) => {
                self.clients[client].life = Life::Alive;
                self.ask_to_transmit(client);
            }
            Life::Ended(_) => self.go_on(client),
            Life::Told(_) if self.clients[client].hung_up => self.close(client),
            Life::Told(_) => {
                self.clients[client].life = Life::Draining(self.now);
                self.asked.push(Asked::ShutdownWrite(client));
            }
            Life::Lost | Life::Draining(_) | Life::Closed | Life::Forgotten => {}
        }
    }

    pub(crate) fn blocked(&mut self, client: usize) {
        if self.clients[client].life == Life::Alive {
            self.clients[client].life = Life::Stuck(self.now);
            self.clients[client].probed = false;
        }
    }

    pub(crate) fn forget(&mut self, client: usize) {
        self.clients[client].life = Life::Forgotten;
    }

    /// The moment at which something must happen to a client though nothing comes in.
    fn deadline(&self, client: &Client) -> Option<u64> {
        let io_timeout = u64::try_from(self.setup.io_timeout.as_nanos()).expect("seconds");
        match client.life {
            Life::Alive if client.probed => None,
            Life::Alive => client.lease_end().or(Some(client.connected + io_timeout)),
            Life::Stuck(since) => client.lease_end().min(Some(since + io_timeout)),
            Life::Lost => client.lease_end(),
            Life::Ended(since) | Life::Told(since) => Some(since + io_timeout),
            Life::Draining(since) => Some(since + io_timeout.min(1000 * MS)),
            Life::Closed | Life::Forgotten => None,
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.clients.iter().filter_map(|client| self.deadline(client)).min()
    }

    /// How many clients' deadlines have passed.
    pub(crate) fn due(&self) -> usize {
        let deadlines = self.clients.iter().filter_map(|client| self.deadline(client));
        deadlines.filter(|&deadline| deadline <= self.now).count()
    }

    /// The deadline of this client has passed, and no other one's has passed before it.
    pub(crate) fn expire(&mut self, client: usize) {
        let deadline = self.deadline(&self.clients[client]);
        assert_eq!(deadline, self.next_deadline(), "client {client} is not the next to expire");
        assert!(deadline <= Some(self.now), "client {client} expires early");
        let lease_end = self.clients[client].lease_end();
        match self.clients[client].life {
            Life::Alive => {
                self.clients[client].probed = true;
                self.asked.push(Asked::Probe(client));
            }
            Life::Stuck(_) if deadline < lease_end => self.end_silently(client, "io_timeout"),
            Life::Stuck(_) | Life::Lost => self.end_silently(client, "expired"),
            _ => self.close(client),
        }
    }

    pub(crate) fn silent(&mut self, client: usize) {
        if std::mem::take(&mut self.clients[client].probed) {
            self.nothing_more_to_read(client);
        }
    }

    fn nothing_more_to_read(&mut self, client: usize) {
        if self.clients[client].life == Life::Alive
            && self.deadline(&self.clients[client]) <= Some(self.now)
        {
            let unclaimed = self.clients[client].claim.is_none();
            self.counted.first_frame_timeouts += u64::from(unclaimed);
            self.end_silently(client, "expired");
        }
    }

    fn end_silently(&mut self, client: usize, reason: &'static str) {
        self.end(client, reason);
        self.close(client);
    }

    pub(crate) fn reading(&self, client: usize) -> Read {
        let client = &self.clients[client];
        match client.life {
            _ if client.hung_up => Read::Off,
            Life::Alive if client.claim.is_none() => Read::Once,
            Life::Alive if client.answers * 9 >= (64 << 10) - 8 => Read::Off,
            Life::Alive | Life::Ended(_) | Life::Told(_) | Life::Draining(_) => Read::Stream,
            Life::Stuck(_) | Life::Lost | Life::Closed | Life::Forgotten => Read::Off,
        }
    }

    /// Connections that are not forgotten.
    pub(crate) fn sessions(&self) -> usize {
        self.clients.iter().filter(|client| client.life != Life::Forgotten).count()
    }

    pub(crate) fn line(&self, lock: &str) -> Line {
        let Some(lock) = self.locks.get(lock) else { return Line::default() };
        Line {
            holder: lock.holder.map(|holder| self.claimant(holder)),
            waiters: lock.waiters.iter().map(|&waiter| self.claimant(waiter)).collect(),
        }
    }

    fn claimant(&self, client: usize) -> Claimant {
        let claim = self.clients[client].claim.as_ref().expect("it has claimed");
        let &Claim { lease_ms, last_heard, since, token, .. } = claim;
        Claimant { client, since, last_heard, lease_ms, token }
    }

    /// The gauges are counted anew every time.
    pub(crate) fn tally(&self) -> Tally {
        let alive = || self.clients.iter().filter(|client| client.is_alive());
        let count = |clients: usize| clients as u64;
        Tally {
            connections: count(alive().count()),
            unclaimed: count(alive().filter(|client| client.claim.is_none()).count()),
            locks_held: count(self.locks.values().filter(|lock| lock.holder.is_some()).count()),
            waiters: self.locks.values().map(|lock| count(lock.waiters.len())).sum(),
            ..self.counted.clone()
        }
    }
}
