//! What the driver uses of an engine. Whoever has an engine is one; a broken one does something of
//! it otherwise.

use std::sync::Arc;

use monolock_core::effect::{Effect, OwnershipChange, Reading};
use monolock_core::engine::{
    Departure, Engine, EngineConfig, ForceReleaseError, NoSuchWaiter, TableFull,
};
use monolock_core::fencing::{Token, TokenMint};
use monolock_core::places::Places;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::shard_map::{ShardMap, ShardNumber};
use monolock_core::time::{Instant, Now};

use super::sighting::{Gauges, Remains};

/// What the engine of one event loop is made of.
pub(crate) struct Parts {
    pub(crate) shard: ShardNumber,
    pub(crate) shard_map: ShardMap,
    pub(crate) config: EngineConfig,
    pub(crate) mint: Arc<TokenMint>,
}

impl Parts {
    pub(crate) fn engine(self) -> Engine {
        Engine::of_shard(self.shard, self.shard_map, self.config, self.mint)
    }
}

pub(crate) trait LockServer {
    fn engine(&mut self) -> &mut Engine;

    fn connect(&mut self, peer: PeerAddress, now: Now) -> Result<SessionId, TableFull> {
        self.engine().connect(peer, now)
    }

    fn receive(&mut self, id: SessionId, bytes: &[u8], now: Now) {
        self.engine().receive(id, bytes, now);
    }

    fn end_of_stream(&mut self, id: SessionId, now: Now) {
        self.engine().end_of_stream(id, now);
    }

    fn disconnected(&mut self, id: SessionId, now: Now) {
        self.engine().disconnected(id, now);
    }

    fn unreachable(&mut self, id: SessionId, now: Now) {
        self.engine().unreachable(id, now);
    }

    fn silent(&mut self, id: SessionId, now: Now) {
        self.engine().silent(id, now);
    }

    fn reading(&mut self, id: SessionId) -> Reading {
        // By its full name: this trait's own method would be nearer.
        Engine::reading(self.engine(), id)
    }

    fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        self.engine().transmit(id, out)
    }

    fn sent(&mut self, id: SessionId, now: Now) {
        self.engine().sent(id, now);
    }

    fn send_blocked(&mut self, id: SessionId, now: Now) {
        self.engine().send_blocked(id, now);
    }

    fn wake_at(&mut self, now: Now) -> Option<Instant> {
        self.engine().wake_at(now)
    }

    fn expire(&mut self, now: Now, limit: usize) {
        self.engine().expire(now, limit);
    }

    fn force_release(
        &mut self,
        lock: &str,
        token: Option<Token>,
        now: Now,
    ) -> Result<SessionId, ForceReleaseError> {
        self.engine().force_release(lock, token, now)
    }

    fn kick_waiter(
        &mut self,
        lock: &str,
        peer: PeerAddress,
        now: Now,
    ) -> Result<SessionId, NoSuchWaiter> {
        self.engine().kick_waiter(lock, peer, now)
    }

    fn is_to_move(&mut self, id: SessionId) -> bool {
        Engine::is_to_move(self.engine(), id)
    }

    fn leave(&mut self, id: SessionId) {
        self.engine().leave(id);
    }

    fn wait_for_place(&mut self, id: SessionId, now: Now) {
        self.engine().wait_for_place(id, now);
    }

    fn waiting_for(&mut self, to: ShardNumber) -> u32 {
        Engine::waiting_for(self.engine(), to)
    }

    fn leave_next(&mut self, to: ShardNumber, now: Now) -> Option<SessionId> {
        self.engine().leave_next(to, now)
    }

    fn depart(&mut self, id: SessionId) -> Departure {
        self.engine().depart(id)
    }

    fn adopt(&mut self, id: SessionId, departure: &Departure, now: Now) {
        self.engine().adopt(id, departure, now);
    }

    /// Whether the event loop of a server that shuts down has nothing more to do.
    fn may_end(&mut self, places: &[Places]) -> bool {
        places.iter().all(|places| places.taken() == 0)
    }

    fn shut_down(&mut self) {
        self.engine().shut_down();
    }

    fn tell_of_shutdown(&mut self, from: u32, limit: u32, now: Now) -> Option<u32> {
        self.engine().tell_of_shutdown(from, limit, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.engine().poll_effect()
    }

    fn poll_change(&mut self) -> Option<OwnershipChange> {
        self.engine().poll_change()
    }

    fn forget(&mut self, id: SessionId) {
        self.engine().forget(id);
    }

    fn waiters(&mut self) -> u64 {
        self.engine().counts().waiters
    }

    fn gauges(&mut self) -> Gauges {
        let waiters = self.waiters();
        let counts = self.engine().counts();
        let gauge = |count: u64| usize::try_from(count).expect("few");
        Gauges {
            connections: gauge(counts.connections),
            unclaimed: gauge(counts.connections_unclaimed),
            locks_held: gauge(counts.locks_held),
            waiters: gauge(waiters),
        }
    }

    fn remains(&mut self) -> Remains {
        let gauges = self.gauges();
        let engine = self.engine();
        let has_deadline = engine.wake_at(Now::default()).is_some();
        let (locks, _) = engine.locks_from(0, u32::MAX);
        let (sessions, locks) = (engine.sessions(), locks.count());
        Remains { gauges, sessions, locks, has_deadline, places_taken: 0 }
    }
}

impl LockServer for Engine {
    fn engine(&mut self) -> &mut Engine {
        self
    }
}
