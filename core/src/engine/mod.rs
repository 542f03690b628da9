//! The lock server. Inputs are methods that take the present; what is to be done about them is
//! asked for with [`Engine::poll_effect`], and when to come back at the latest with
//! [`Engine::wake_at`].
//!
//! What the driver owes the engine: everything that had come in by a moment is given to the engine
//! before that moment is given to [`Engine::expire`]; effects are carried out in their order.

mod administration;
mod claim;
mod deadline;
mod ending;
mod moving;
mod output;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use slab::Slab;

pub use administration::{ForceReleaseError, NoSuchWaiter};
pub use deadline::NEAR;
pub use moving::Departure;

use crate::counts::Counts;
use crate::effect::{Effect, OwnershipChange, Reading};
use crate::fencing::TokenMint;
use crate::lease_heap::LeaseHeap;
use crate::lock_table::{HashKey, LockTable};
use crate::session::{PeerAddress, Phase, Session, SessionId, SessionTable, Standing};
use crate::shard_map::{ShardMap, ShardNumber};
use crate::time::{Instant, Now};
use crate::wire::{ACQUIRED_LEN, ErrorCode, Farewell};
use moving::Move;

/// The most that is read away from a peer that was sent an ERROR.
pub const DRAINED_MAX_BYTES: u32 = 1 << 20;

/// The longest that is read away from a peer that was sent an ERROR.
pub const DRAIN_MAX: Duration = Duration::from_secs(1);

/// A session that is owed this many answers is not read from until some are sent: 64 KiB of them.
pub const OWED_MAX: u32 = 7281;
const _: () = assert!(OWED_MAX as usize == (64 << 10) / ACQUIRED_LEN);

/// Locks that the table takes before it grows for the first time.
const LOCKS_WITHOUT_GROWING: u32 = 1 << 15;

/// What an engine is told once.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Connections at a time, with a claim or without one.
    pub sessions_max: u32,
    /// The time for the first frame, and for a write that is stuck.
    pub io_timeout: Duration,
    /// The longest lease, in milliseconds; without a limit of its own the protocol's holds.
    pub lease_max_ms: Option<NonZeroU32>,
    /// The secret of the hash over lock names.
    pub hash_key: HashKey,
}

/// All sessions and locks of one event loop.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    shard: ShardNumber,
    shard_map: ShardMap,
    mint: Arc<TokenMint>,
    sessions: SessionTable,
    locks: LockTable,
    deadlines: LeaseHeap,
    /// First frames of which only a part has come.
    partial_frames: Slab<Vec<u8>>,
    /// Claims on locks of other event loops, on their way there.
    moves: Slab<Move>,
    /// Those of them that wait for a place, for each loop the longest first.
    waiting: Vec<BTreeMap<u64, u32>>,
    waits_begun: u64,
    /// When the writes that are stuck run into the io-timeout. Few are, so that the sessions need
    /// no room for it.
    write_deadlines: BTreeMap<u32, Instant>,
    effects: VecDeque<Effect>,
    changes: VecDeque<OwnershipChange>,
    counts: Counts,
    /// Nothing is granted any more, though the server goes on.
    is_granting_stopped: bool,
    /// Nothing is granted any more.
    shutting_down: bool,
}

/// Why a connection can't be taken: every place is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

impl Engine {
    /// The one engine of a server, without sessions.
    pub fn new(config: EngineConfig, mint: Arc<TokenMint>) -> Engine {
        Engine::of_shard(0, ShardMap::single(), config, mint)
    }

    /// The engine of one event loop of many. All engines of a server share the map and the mint.
    pub fn of_shard(
        shard: ShardNumber,
        shard_map: ShardMap,
        config: EngineConfig,
        mint: Arc<TokenMint>,
    ) -> Engine {
        let shards = shard_map.shards().get();
        assert!(shard < shards, "shard {shard} of {shards}");
        let locks = config.sessions_max.min(LOCKS_WITHOUT_GROWING) as usize;
        Engine {
            config,
            shard,
            shard_map,
            mint,
            sessions: SessionTable::new(config.sessions_max),
            locks: LockTable::new(locks, config.hash_key),
            deadlines: LeaseHeap::with_capacity(config.sessions_max as usize),
            partial_frames: Slab::new(),
            moves: Slab::new(),
            waiting: (0..shards).map(|_| BTreeMap::new()).collect(),
            waits_begun: 0,
            write_deadlines: BTreeMap::new(),
            effects: VecDeque::new(),
            changes: VecDeque::new(),
            counts: Counts::default(),
            is_granting_stopped: false,
            shutting_down: false,
        }
    }

    /// A peer has connected. It is to be read [once](Reading::Once).
    ///
    /// # Errors
    /// If `sessions_max` connections are there, ended ones that are not forgotten yet included.
    pub fn connect(&mut self, peer: PeerAddress, now: Now) -> Result<SessionId, TableFull> {
        let session = Session::new(peer, now.instant);
        let id = self.sessions.insert(session).ok_or(TableFull)?;
        let deadline = now.instant.after(self.config.io_timeout);
        self.deadlines.insert(&mut self.sessions, id.index, deadline);
        self.counts.connections += 1;
        self.counts.connections_unclaimed += 1;
        if self.shutting_down {
            self.refuse(id, ErrorCode::SHUTTING_DOWN, now);
        }
        Ok(id)
    }

    /// Ends a session with an ERROR for a reason that the engine can't know of.
    pub fn refuse(&mut self, id: SessionId, code: ErrorCode, now: Now) {
        if self.sessions.get(id).is_some_and(|session| session.phase.is_alive()) {
            self.end_with_error(id.index, Farewell::new(code), now);
        }
    }

    /// Bytes have come from the peer. Whatever they are, they are read at `now`: a lease is
    /// restarted at the moment at which its heartbeat is read, not when it was sent.
    pub fn receive(&mut self, id: SessionId, bytes: &[u8], now: Now) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let probed = session.phase == Phase::Probing;
        if probed {
            session.phase = Phase::Open;
        }
        match session.phase {
            Phase::Open | Phase::Blocked | Phase::Leaving => match session.standing {
                Standing::Connected => self.receive_first_frame(id.index, bytes, now),
                Standing::Moving => self.receive_while_moving(id.index, bytes, now),
                Standing::Waiting(_) | Standing::Acquired(_) => {
                    self.receive_heartbeats(id.index, bytes, now);
                }
            },
            Phase::Draining => self.drain(id.index, bytes),
            // The deadline is that of the write; what comes meanwhile has no meaning any more.
            Phase::Unreachable | Phase::Finishing | Phase::FarewellSent | Phase::Closed => {}
            Phase::Probing => unreachable!("it is over, since something was read"),
        }
        if probed {
            self.probed(id, now);
        }
    }

    /// The peer will send nothing more: the claim is released. What is owed to it is still sent,
    /// for it may have closed only one direction.
    pub fn end_of_stream(&mut self, id: SessionId, now: Now) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.hung_up = true;
        match session.phase {
            Phase::Open | Phase::Probing | Phase::Leaving => self.end_with_answers(id.index, now),
            // Nothing is lost by not waiting for a peer that has left and does not read either.
            Phase::Blocked | Phase::Unreachable => self.end_by_peer(id.index, now),
            Phase::Draining => self.close(id.index),
            Phase::Finishing | Phase::FarewellSent | Phase::Closed => {}
        }
    }

    /// The peer has broken the connection off: nothing can be sent either.
    pub fn disconnected(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.get_mut(id)
            && session.phase != Phase::Closed
        {
            session.hung_up = true;
            self.end_by_peer(id.index, now);
        }
    }

    /// The kernel has given up on the peer, which itself has closed nothing and may be alive behind
    /// a cut network. If it holds a lock, it holds it until the lease ends, as it was promised.
    pub fn unreachable(&mut self, id: SessionId, now: Now) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let is_holder = session.phase.is_alive() && session.token().is_some();
        if is_holder {
            session.phase = Phase::Unreachable;
            self.write_deadlines.remove(&id.index);
            let deadline = session.lease_end();
            self.deadlines.change(&mut self.sessions, id.index, deadline);
        } else {
            self.disconnected(id, now);
        }
    }

    /// How the connection is to be read now. It may change with everything that comes in for the
    /// session, and with [`Engine::sent`] and [`Engine::send_blocked`].
    pub fn reading(&self, id: SessionId) -> Reading {
        let Some(session) = self.sessions.get(id) else {
            return Reading::Off;
        };
        match session.phase {
            _ if session.hung_up => Reading::Off,
            Phase::Open | Phase::Probing => match session.standing {
                Standing::Connected => Reading::Once,
                Standing::Moving if self.is_read_while_moving(session.lock_or_frame) => {
                    Reading::Once
                }
                Standing::Moving => Reading::Off,
                _ if session.owed >= OWED_MAX => Reading::Off,
                _ => Reading::Stream,
            },
            Phase::Finishing | Phase::FarewellSent | Phase::Draining => Reading::Stream,
            Phase::Blocked | Phase::Unreachable | Phase::Leaving | Phase::Closed => Reading::Off,
        }
    }

    /// The driver has closed the connection as [`Effect::Close`] told it to, and nothing more will
    /// come of it: the place may be used again. Returns whose it was.
    ///
    /// # Panics
    /// If the engine has not asked for it.
    pub fn forget(&mut self, id: SessionId) -> PeerAddress {
        let session = self.sessions.get(id).expect("a session is forgotten once");
        assert_eq!(session.phase, Phase::Closed, "only what was closed is forgotten");
        self.sessions.remove(id.index).peer
    }

    /// The next thing that the driver is to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The next change of an ownership, to be reported.
    pub fn poll_change(&mut self) -> Option<OwnershipChange> {
        self.changes.pop_front()
    }

    /// Which of its server's event loops this is the engine of.
    pub fn shard(&self) -> ShardNumber {
        self.shard
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Connections in the table, ended ones that are not forgotten yet included.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn locks(&self) -> &LockTable {
        &self.locks
    }

    pub(crate) fn session_places(&self) -> u32 {
        self.sessions.places()
    }

    pub(crate) fn session(&self, index: u32) -> Option<&Session> {
        self.sessions.at(index)
    }
}
