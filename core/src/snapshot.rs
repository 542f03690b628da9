//! Read-only views of locks and queues. A server may have a million locks, so they are looked at in
//! slices, between which it goes on serving.

use core::num::NonZeroU32;

use crate::engine::Engine;
use crate::fencing::Token;
use crate::lock_table::{Lock, LockName};
use crate::session::{PeerAddress, Session, SessionId, Standing};
use crate::time::Instant;
use crate::waiter_queue::WaiterQueue;

/// A lock that somebody holds.
#[derive(Clone, Copy, Debug)]
pub struct LockView<'a> {
    engine: &'a Engine,
    lock: &'a Lock,
}

/// A claim, of the holder or of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// Whose it is.
    pub session: SessionId,
    /// Where it comes from.
    pub peer: PeerAddress,
    /// Since when it holds the lock, or waits for it.
    pub since: Instant,
    /// When its lease was last restarted.
    pub last_heard: Instant,
    /// Its lease, in milliseconds.
    pub lease_ms: NonZeroU32,
    /// The holder's token; a waiter has none.
    pub token: Option<Token>,
}

impl Engine {
    /// The lock with this name, if somebody holds it or waits for it.
    pub fn lock(&self, name: &str) -> Option<LockView<'_>> {
        let lock = self.locks().get(self.locks().find(name)?)?;
        Some(LockView { engine: self, lock })
    }

    /// Locks at the places from `from` on, at most `limit` places, and the place to go on from, or
    /// `None` if there are no more. A lock keeps its place for as long as it is there, so what is
    /// there during the whole walk is seen exactly once.
    pub fn locks_from(
        &self,
        from: u32,
        limit: u32,
    ) -> (impl Iterator<Item = LockView<'_>>, Option<u32>) {
        let places = self.locks().places();
        let end = from.saturating_add(limit).min(places);
        let views = (from..end)
            .filter_map(|place| Some(LockView { engine: self, lock: self.locks().get(place)? }));
        (views, (end < places).then_some(end))
    }
}

impl<'a> LockView<'a> {
    /// The lock's name.
    pub fn name(&self) -> &'a LockName {
        &self.lock.name
    }

    /// Who holds it; nobody does only while the server shuts down.
    pub fn holder(&self) -> Option<ClaimView> {
        self.engine.claim_view(self.lock.holder)
    }

    /// How many wait for it.
    pub fn waiters_len(&self) -> u32 {
        self.lock.waiters.len()
    }

    /// Who waits for it, in the order in which they will get it.
    pub fn waiters(&self) -> impl Iterator<Item = ClaimView> + use<'a> {
        let engine = self.engine;
        let mut next = self.lock.waiters.front();
        core::iter::from_fn(move || {
            let index = next?;
            let Standing::Waiting(links) = engine.session(index)?.standing else {
                unreachable!("only waiters stand in a queue");
            };
            next = WaiterQueue::behind(links);
            engine.claim_view(index)
        })
    }
}

impl Engine {
    fn claim_view(&self, index: u32) -> Option<ClaimView> {
        let session: &Session = self.session(index)?;
        Some(ClaimView {
            session: SessionId { index, generation: session.generation },
            peer: session.peer,
            since: session.since,
            last_heard: session.last_seen,
            lease_ms: NonZeroU32::new(session.lease_ms)?,
            token: session.token(),
        })
    }
}
