//! Engines that are broken on purpose: each does one thing wrong with what the real one says, and
//! the judge must see it. A judge that is never right to complain is worth nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use monolock_core::effect::{Effect, Ownership, OwnershipChange, ReleaseReason};
use monolock_core::engine::{Departure, Engine, ForceReleaseError, TableFull};
use monolock_core::fencing::Token;
use monolock_core::places::Places;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::ShardNumber;
use monolock_core::time::{Instant, Now};
use monolock_core::wire::{ACQUIRED_LEN, ERROR, ErrorCode, HEARTBEAT};

use super::lock_server::{LockServer, Parts};
use super::workload::LOCKS;

/// A canary: an engine, and what it remembers besides.
macro_rules! canary {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $initial:expr),* }) => {
        $(#[$doc])*
        pub(crate) struct $name {
            engine: Engine,
            $($field: $kind,)*
        }

        impl $name {
            pub(crate) fn found(parts: Parts) -> Box<dyn LockServer> {
                Box::new($name { engine: parts.engine(), $($field: $initial),* })
            }
        }
    };
}

/// What is not said otherwise is done by the engine.
macro_rules! has_an_engine {
    () => {
        fn engine(&mut self) -> &mut Engine {
            &mut self.engine
        }
    };
}

fn is_grant(change: &OwnershipChange) -> bool {
    matches!(change.what, Ownership::Granted { .. })
}

/// Who has waited longest for a lock.
fn first_waiter(engine: &Engine, lock: &str) -> Option<(SessionId, PeerAddress)> {
    let claim = engine.lock(lock)?.waiters().next()?;
    Some((claim.session, claim.peer))
}

fn is_holder(engine: &Engine, id: SessionId) -> bool {
    let holders = LOCKS.iter().filter_map(|lock| engine.lock(lock)?.holder());
    holders.into_iter().any(|holder| holder.session == id)
}

fn too_late(now: Now) -> Now {
    Now { instant: now.instant.after_ms(100), ..now }
}

/// Whether a session has a claim: its bytes are heartbeats then.
fn has_claim(engine: &Engine, id: SessionId) -> bool {
    LOCKS.iter().filter_map(|lock| engine.lock(lock)).any(|lock| {
        lock.holder().into_iter().chain(lock.waiters()).any(|claim| claim.session == id)
    })
}

canary! {
    /// Grants a lock to its first waiter too, right after it was granted to somebody else.
    GrantsTwice { forged: Option<OwnershipChange> = None }
}

impl LockServer for GrantsTwice {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        if self.forged.is_some() {
            return self.forged.take();
        }
        let change = self.engine.poll_change()?;
        if is_grant(&change)
            && let Some((session, peer)) = first_waiter(&self.engine, &change.lock)
        {
            let token = Token::new(change.token.get() + 1).expect("not zero");
            self.forged = Some(OwnershipChange { session, peer, token, ..change.clone() });
        }
        Some(change)
    }
}

canary! {
    /// Reports the next grant before the release that made it possible.
    GrantsBeforeRelease { turned: VecDeque<OwnershipChange> = VecDeque::new() }
}

impl LockServer for GrantsBeforeRelease {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        while let Some(change) = self.engine.poll_change() {
            self.turned.push_front(change);
        }
        self.turned.pop_front()
    }
}

canary! {
    /// Gives the token of the last grant once more.
    RepeatsToken { last: Option<Token> = None }
}

impl LockServer for RepeatsToken {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let mut change = self.engine.poll_change()?;
        if is_grant(&change) {
            change.token = self.last.replace(change.token).unwrap_or(change.token);
        }
        Some(change)
    }
}

canary! {
    /// Takes its tokens from a clock of its own, a second ahead.
    MintsByAnotherClock {}
}

impl LockServer for MintsByAnotherClock {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let mut change = self.engine.poll_change()?;
        change.token = Token::new(change.token.get() + (1 << 20)).expect("not zero");
        Some(change)
    }
}

canary! {
    /// Promotes the second of a queue, and tells the first nothing.
    ForgetsFifo { passed_over: BTreeSet<SessionId> = BTreeSet::new() }
}

impl LockServer for ForgetsFifo {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let mut change = self.engine.poll_change()?;
        let has_waited = matches!(change.what, Ownership::Granted { wait } if !wait.is_zero());
        if has_waited && let Some((second, _)) = first_waiter(&self.engine, &change.lock) {
            self.passed_over.insert(change.session);
            change.session = second;
        }
        Some(change)
    }

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        let len = self.engine.transmit(id, out);
        if self.passed_over.contains(&id) { 0 } else { len }
    }
}

canary! {
    /// Grants a lock to who has just left it, and not to who waits for it.
    GrantsToTheDead { released: Option<OwnershipChange> = None }
}

impl LockServer for GrantsToTheDead {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let Some(mut change) = self.engine.poll_change() else {
            self.released = None;
            return None;
        };
        if !is_grant(&change) {
            self.released = Some(change.clone());
        } else if let Some(released) = self.released.take() {
            change.session = released.session;
        }
        Some(change)
    }
}

canary! {
    /// Does not report, nor tell, who is promoted.
    ForgetsToPromote { forgotten: BTreeSet<SessionId> = BTreeSet::new() }
}

impl LockServer for ForgetsToPromote {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let change = self.engine.poll_change()?;
        if matches!(change.what, Ownership::Granted { wait } if !wait.is_zero()) {
            self.forgotten.insert(change.session);
            return self.poll_change();
        }
        Some(change)
    }

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        let len = self.engine.transmit(id, out);
        if self.forgotten.contains(&id) { 0 } else { len }
    }
}

canary! {
    /// Takes no notice of a holder's half-close.
    IgnoresHalfClose {}
}

impl LockServer for IgnoresHalfClose {
    has_an_engine!();

    fn end_of_stream(&mut self, id: SessionId, now: Now) {
        if !is_holder(&self.engine, id) {
            self.engine.end_of_stream(id, now);
        }
    }
}

canary! {
    /// Its clock for leases runs fast.
    ExpiresEarly {}
}

impl LockServer for ExpiresEarly {
    has_an_engine!();

    fn expire(&mut self, now: Now, limit: usize) {
        self.engine.expire(too_late(now), limit);
    }

    fn silent(&mut self, id: SessionId, now: Now) {
        self.engine.silent(id, too_late(now));
    }
}

canary! {
    /// Its driver's alarm clock runs slow.
    ExpiresLate {}
}

impl LockServer for ExpiresLate {
    has_an_engine!();

    fn wake_at(&mut self, now: Now) -> Option<Instant> {
        self.engine.wake_at(now).map(|at| at.after_ms(3))
    }
}

canary! {
    /// Does not look whether there is something to be read before it lets a session expire.
    ProbesNothing { effects: VecDeque<Effect> = VecDeque::new() }
}

impl LockServer for ProbesNothing {
    has_an_engine!();

    fn expire(&mut self, now: Now, limit: usize) {
        self.engine.expire(now, limit);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Probe(id) => self.engine.silent(id, now),
                _ => self.effects.push_back(effect),
            }
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.engine.poll_effect())
    }
}

canary! {
    /// Forgets about a deadline when it has passed.
    KeepsDeadSessions {}
}

impl LockServer for KeepsDeadSessions {
    has_an_engine!();

    fn poll_effect(&mut self) -> Option<Effect> {
        match self.engine.poll_effect()? {
            Effect::Probe(_) => self.poll_effect(),
            effect => Some(effect),
        }
    }
}

canary! {
    /// Answers two heartbeats that came together once.
    LosesAnswers {}
}

impl LockServer for LosesAnswers {
    has_an_engine!();

    fn receive(&mut self, id: SessionId, bytes: &[u8], now: Now) {
        match bytes {
            [HEARTBEAT, HEARTBEAT] if has_claim(&self.engine, id) => {
                self.engine.receive(id, &[HEARTBEAT], now);
            }
            _ => self.engine.receive(id, bytes, now),
        }
    }
}

canary! {
    /// Answers two heartbeats that came together three times.
    AnswersTooOften {}
}

impl LockServer for AnswersTooOften {
    has_an_engine!();

    fn receive(&mut self, id: SessionId, bytes: &[u8], now: Now) {
        match bytes {
            [HEARTBEAT, HEARTBEAT] if has_claim(&self.engine, id) => {
                self.engine.receive(id, &[HEARTBEAT; 3], now);
            }
            _ => self.engine.receive(id, bytes, now),
        }
    }
}

canary! {
    /// Tells a token that is not the grant's when the holder asks again.
    TellsAnotherToken {}
}

impl LockServer for TellsAnotherToken {
    has_an_engine!();

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        let len = self.engine.transmit(id, out);
        if len == 2 * ACQUIRED_LEN {
            out[len - 1] ^= 1;
        }
        len
    }
}

canary! {
    /// Ends a session without telling it why.
    LosesErrors {}
}

impl LockServer for LosesErrors {
    has_an_engine!();

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        let len = self.engine.transmit(id, out);
        if out[..len].first() == Some(&ERROR) { 0 } else { len }
    }
}

canary! {
    /// Closes a connection as soon as its ERROR is sent.
    ClosesWithoutDraining { now: Now = Now::default() }
}

impl LockServer for ClosesWithoutDraining {
    has_an_engine!();

    fn sent(&mut self, id: SessionId, now: Now) {
        self.now = now;
        self.engine.sent(id, now);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self.engine.poll_effect()? {
            Effect::ShutdownWrite(id) => {
                self.engine.disconnected(id, self.now);
                self.poll_effect()
            }
            effect => Some(effect),
        }
    }
}

canary! {
    /// On the way out goes on promoting waiters until all have been told.
    PromotesOnShutdown { sessions: BTreeSet<SessionId> = BTreeSet::new() }
}

impl LockServer for PromotesOnShutdown {
    has_an_engine!();

    fn connect(&mut self, peer: PeerAddress, now: Now) -> Result<SessionId, TableFull> {
        self.engine.connect(peer, now).inspect(|&session| {
            self.sessions.insert(session);
        })
    }

    fn shut_down(&mut self) {}

    fn tell_of_shutdown(&mut self, from: u32, limit: u32, now: Now) -> Option<u32> {
        let end = from.saturating_add(limit);
        let told = self.sessions.iter().filter(|session| (from..end).contains(&session.index));
        for &session in told {
            self.engine.refuse(session, ErrorCode::SHUTTING_DOWN, now);
        }
        if self.sessions.iter().any(|session| session.index >= end) {
            return Some(end);
        }
        self.engine.shut_down();
        None
    }
}

canary! {
    /// On the way out forgets those that are not told at once.
    TellsTheFirstOnly {}
}

impl LockServer for TellsTheFirstOnly {
    has_an_engine!();

    fn tell_of_shutdown(&mut self, from: u32, limit: u32, now: Now) -> Option<u32> {
        self.engine.tell_of_shutdown(from, limit, now);
        None
    }
}

canary! {
    /// Takes a client's leave for an administrator's doing.
    NamesAnotherReason {}
}

impl LockServer for NamesAnotherReason {
    has_an_engine!();

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        let mut change = self.engine.poll_change()?;
        if let Ownership::Released { reason, .. } = &mut change.what
            && *reason == ReleaseReason::Graceful
        {
            *reason = ReleaseReason::Force;
        }
        Some(change)
    }
}

canary! {
    /// Takes a lock from whoever holds it, whatever token the administrator gave.
    HitsTheNextHolder {}
}

impl LockServer for HitsTheNextHolder {
    has_an_engine!();

    fn force_release(
        &mut self,
        lock: &str,
        _: Option<Token>,
        now: Now,
    ) -> Result<SessionId, ForceReleaseError> {
        self.engine.force_release(lock, None, now)
    }
}

canary! {
    /// Counts who has just been promoted as a waiter too.
    Miscounts {}
}

impl LockServer for Miscounts {
    has_an_engine!();

    fn waiters(&mut self) -> u64 {
        let counts = self.engine.counts();
        counts.waiters + u64::from(counts.acquires > counts.locks_held)
    }
}

canary! {
    /// Keeps the places of connections that are closed.
    ForgetsNobody {}
}

impl LockServer for ForgetsNobody {
    has_an_engine!();

    fn forget(&mut self, _: SessionId) {}
}

canary! {
    /// Loses what has come behind the ACQUIRE of a connection that moves.
    LosesBytesInMoves {}
}

impl LockServer for LosesBytesInMoves {
    has_an_engine!();

    fn depart(&mut self, id: SessionId) -> Departure {
        Departure { heartbeats: 0, ..self.engine.depart(id) }
    }
}

canary! {
    /// Restarts the lease of a connection that comes from another event loop.
    RestartsLeaseInMoves {}
}

impl LockServer for RestartsLeaseInMoves {
    has_an_engine!();

    fn adopt(&mut self, id: SessionId, departure: &Departure, now: Now) {
        let departure = Departure { last_seen: now.instant, ..departure.clone() };
        self.engine.adopt(id, &departure, now);
    }
}

/// Its event loops mint for themselves.
pub(crate) struct MintsInEachShard;

impl MintsInEachShard {
    pub(crate) fn found(mut parts: Parts) -> Box<dyn LockServer> {
        parts.mint = Arc::default();
        Box::new(parts.engine())
    }
}

canary! {
    /// Sends on who has come from another event loop.
    MovesTwice {
        again: BTreeMap<SessionId, Departure> = BTreeMap::new(),
        effects: VecDeque<Effect> = VecDeque::new(),
        now: Now = Now::default()
    }
}

impl LockServer for MovesTwice {
    has_an_engine!();

    fn adopt(&mut self, id: SessionId, departure: &Departure, now: Now) {
        self.engine.adopt(id, departure, now);
        let to = u32::from(departure.to == 0);
        self.again.insert(id, Departure { to, ..departure.clone() });
        self.effects.push_back(Effect::Move { session: id, to });
        self.now = now;
    }

    fn is_to_move(&mut self, id: SessionId) -> bool {
        self.again.contains_key(&id) || Engine::is_to_move(&self.engine, id)
    }

    fn leave(&mut self, id: SessionId) {
        if !self.again.contains_key(&id) {
            self.engine.leave(id);
        }
    }

    fn wait_for_place(&mut self, id: SessionId, now: Now) {
        if self.again.remove(&id).is_none() {
            self.engine.wait_for_place(id, now);
        }
    }

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        let len = self.engine.transmit(id, out);
        if self.again.contains_key(&id) { 0 } else { len }
    }

    fn depart(&mut self, id: SessionId) -> Departure {
        let Some(departure) = self.again.remove(&id) else { return self.engine.depart(id) };
        self.engine.disconnected(id, self.now);
        while self.engine.poll_change().is_some() {}
        while let Some(effect) = self.engine.poll_effect() {
            if effect != Effect::Close(id) {
                self.effects.push_back(effect);
            }
        }
        self.engine.forget(id);
        departure
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.engine.poll_effect())
    }
}

canary! {
    /// Tells no other event loop that somebody waits for a place in it.
    ForgetsWhoWaitsForPlaces {}
}

impl LockServer for ForgetsWhoWaitsForPlaces {
    has_an_engine!();

    fn waiting_for(&mut self, _: ShardNumber) -> u32 {
        0
    }
}

canary! {
    /// Keeps the places of those who end on their way to them.
    KeepsPlaces {}
}

impl LockServer for KeepsPlaces {
    has_an_engine!();

    fn poll_effect(&mut self) -> Option<Effect> {
        match self.engine.poll_effect()? {
            Effect::GiveBackPlace { .. } => self.poll_effect(),
            effect => Some(effect),
        }
    }
}

canary! {
    /// Ends when it has nobody itself, whoever may be on the way to it.
    EndsBeforeTheOthers {}
}

impl LockServer for EndsBeforeTheOthers {
    has_an_engine!();

    fn may_end(&mut self, _: &[Places]) -> bool {
        self.engine.sessions() == 0
    }
}
