//! Read-only views of locks, queues and sessions. A server may have a million of each, so they are
//! looked at in slices, between which it goes on serving.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use crate::engine::Engine;
use crate::fencing::Token;
use crate::lock_table::{Lock, LockName};
use crate::session::{PeerAddress, Session, SessionId, Standing};
use crate::time::Instant;
use crate::waiter_queue::{Links, WaiterQueue};

/// A lock that somebody holds.
#[derive(Clone, Copy, Debug)]
pub struct LockView<'a> {
    engine: &'a Engine,
    lock: &'a Lock,
}

/// How far a walk along a queue has come.
#[derive(Clone, Debug, Default)]
pub struct QueueCursor {
    /// The waiters of the last slice, in their order. It is gone on behind the last one of them
    /// that still waits.
    recent: Vec<SessionId>,
    /// When the last one had begun to wait.
    since: Instant,
    /// None of them waits any more, so it is looked for where to go on.
    has_lost_its_place: bool,
}

/// A connection that is not ended.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Where it comes from.
    pub peer: PeerAddress,
    /// How far it has come.
    pub state: SessionState,
    /// The lock that it holds or waits for in this event loop.
    pub lock: Option<LockName>,
    /// Since when it holds the lock, waits for it, or is connected.
    pub since: Instant,
    /// When it was last heard.
    pub last_heard: Instant,
    /// Its lease, in milliseconds; without a claim it has none.
    pub lease_ms: Option<NonZeroU32>,
    /// The holder's token.
    pub token: Option<Token>,
}

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Its ACQUIRE has not come.
    Connected,
    /// On its way to the event loop that owns its lock.
    Moving,
    /// In a queue.
    Waiting,
    /// Holds a lock.
    Acquired,
}

impl SessionState {
    /// The state's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            SessionState::Connected => "connected",
            SessionState::Moving => "moving",
            SessionState::Waiting => "waiting",
            SessionState::Acquired => "acquired",
        }
    }
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

impl Engine {
    /// Sessions at the places from `from` on, as [`Engine::locks_from`] has locks.
    pub fn sessions_from(
        &self,
        from: u32,
        limit: u32,
    ) -> (impl Iterator<Item = SessionView>, Option<u32>) {
        let places = self.session_places();
        let end = from.saturating_add(limit).min(places);
        let views = (from..end).filter_map(|index| self.session_view(index));
        (views, (end < places).then_some(end))
    }

    fn session_view(&self, index: u32) -> Option<SessionView> {
        let session = self.session(index).filter(|session| session.phase.is_alive())?;
        let state = match session.standing {
            Standing::Connected => SessionState::Connected,
            Standing::Moving => SessionState::Moving,
            Standing::Waiting(_) => SessionState::Waiting,
            Standing::Acquired(_) => SessionState::Acquired,
        };
        let is_claim = matches!(state, SessionState::Waiting | SessionState::Acquired);
        let lock = if is_claim { self.locks().get(session.lock_or_frame) } else { None };
        Some(SessionView {
            peer: session.peer,
            state,
            lock: lock.map(|lock| lock.name.clone()),
            since: session.since,
            last_heard: session.last_seen,
            lease_ms: NonZeroU32::new(session.lease_ms),
            token: session.token(),
        })
    }
}

impl<'a> LockView<'a> {
    /// The lock's name.
    pub fn name(&self) -> &'a LockName {
        &self.lock.name
    }

    /// Who holds it; nobody does only while the server shuts down or is emptied.
    pub fn holder(&self) -> Option<ClaimView> {
        self.engine.claim_view(self.lock.holder)
    }

    /// How many wait for it.
    pub fn waiters_len(&self) -> u32 {
        self.lock.waiters.len()
    }

    /// Who waits for it, in the order in which they will get it.
    pub fn waiters(&self) -> impl Iterator<Item = ClaimView> + use<'a> {
        self.waiters_from(self.lock.waiters.front())
    }

    /// Who has waited longest.
    pub fn first_waiter(&self) -> Option<ClaimView> {
        self.waiters().next()
    }

    /// The waiters behind the cursor, at most `limit` of them, and whether the walk is at its end.
    /// The cursor moves behind them.
    ///
    /// Who waits during the whole walk is seen exactly once, with one exception: if a whole slice
    /// of neighbours has left since the last call, it is gone on by the time since when they wait,
    /// which is the order of the queue but for connections that came from another event loop.
    pub fn waiters_behind(&self, cursor: &mut QueueCursor, limit: usize) -> (Vec<ClaimView>, bool) {
        let behind = cursor.recent.iter().rev().find_map(|&id| self.links_of_waiter(id));
        cursor.has_lost_its_place |= behind.is_none() && !cursor.recent.is_empty();
        let from = match behind {
            Some(links) => WaiterQueue::behind(links),
            None => self.lock.waiters.front(),
        };
        let walked: Vec<ClaimView> = self.waiters_from(from).take(limit).collect();
        let is_at_end = walked.len() < limit;
        cursor.recent = walked.iter().map(|waiter| waiter.session).collect();
        let mut waiters = walked;
        if cursor.has_lost_its_place {
            waiters.retain(|waiter| waiter.since > cursor.since);
            cursor.has_lost_its_place = waiters.is_empty();
        }
        if let Some(last) = waiters.last() {
            cursor.since = last.since;
        }
        (waiters, is_at_end)
    }

    pub(crate) fn is_waiter(&self, id: SessionId) -> bool {
        self.links_of_waiter(id).is_some()
    }

    fn links_of_waiter(&self, id: SessionId) -> Option<Links> {
        let session = self.engine.session(id.index)?;
        let is_here = session.generation == id.generation && session.phase.is_alive();
        match session.standing {
            Standing::Waiting(links) if is_here => {
                let lock = self.engine.locks().get(session.lock_or_frame)?;
                core::ptr::eq(lock, self.lock).then_some(links)
            }
            _ => None,
        }
    }

    fn waiters_from(&self, first: Option<u32>) -> impl Iterator<Item = ClaimView> + use<'a> {
        let engine = self.engine;
        let mut next = first;
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
