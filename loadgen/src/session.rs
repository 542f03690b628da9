//! What one thread knows of its sessions.

use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::claim::{Claim, Standing};
use monolock_core::lease_heap::HeapPositions;
use monolock_core::time::Instant;
use monolock_ring::ConnectionId;

use crate::checker::Who;
use crate::pace::Pace;

/// The heap position of a session that is in no heap.
const NOWHERE: u32 = u32::MAX;

/// Where a session's place in the table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has it.
    Free,
    /// A claim lives.
    Open,
    /// A claim lives, and its answers are not read.
    Deaf,
    /// A claim lives, of a process that doesn't run: nothing is read, written or given up.
    Silent,
    /// The process runs again, and hasn't heard from the server since.
    Waking,
    /// The connection is being closed.
    Closing,
}

/// One place in the table.
#[derive(Debug)]
pub struct Session {
    /// Tells apart the successive users of the place.
    pub generation: u32,
    /// How far it is.
    pub stage: Stage,
    /// The lock, by the number that it has in this thread's checker.
    pub lock: u32,
    /// When it should have begun.
    pub intended: Instant,
    /// When the heartbeat that is in flight was due; never if none is.
    pub heartbeat_due: Instant,
    /// When the lock is to be released, if that is decided.
    pub release_at: Instant,
    /// The claim.
    pub claim: Claim,
    /// When the ACQUIRE was sent.
    pub begun: Instant,
    /// When the kernel was seen to have taken the ACQUIRE, on a connection that stands.
    pub connected_at: Instant,
    /// The claim has had its first answer, or failed.
    is_settled: bool,
}

impl Session {
    /// Notes that it has had its first answer, or failed; false if that was known.
    pub fn settle(&mut self) -> bool {
        !std::mem::replace(&mut self.is_settled, true)
    }

    /// How long to stay away after it: not at all, unless it was lost.
    pub fn pause(&self, backoff: Duration) -> Duration {
        let is_lost = matches!(self.claim.standing(), Standing::Lost(_));
        if is_lost { backoff } else { Duration::ZERO }
    }

    /// Whether a claim lives, read or not.
    pub fn is_alive(&self) -> bool {
        !matches!(self.stage, Stage::Free | Stage::Closing)
    }

    /// Whether it holds its lock.
    pub fn is_holding(&self) -> bool {
        self.is_alive() && matches!(self.claim.standing(), Standing::Holding(_))
    }

    /// When something is to be done about it next.
    pub fn deadline(&self, pace: Pace) -> Instant {
        match self.stage {
            Stage::Open | Stage::Waking => {
                let heartbeat_at = pace.tick_before(self.claim.heartbeat_at());
                heartbeat_at.min(self.claim.give_up_at()).min(self.release_at)
            }
            Stage::Deaf | Stage::Silent | Stage::Free | Stage::Closing => Instant::NEVER,
        }
    }
}

/// The table. Places are made when they are first needed.
#[derive(Debug)]
pub struct SessionTable {
    sessions: Vec<Session>,
    /// By session, its place in the heap of deadlines. Not in the sessions: when one sinks in the
    /// heap others rise, and theirs would all have to be fetched.
    heap_positions: Vec<u32>,
    free: Vec<u32>,
    places_max: u32,
    lease_ms: NonZeroU32,
}

impl SessionTable {
    /// Room for `places_max` sessions of this lease.
    pub fn new(places_max: u32, lease_ms: NonZeroU32) -> SessionTable {
        SessionTable {
            sessions: Vec::new(),
            heap_positions: Vec::new(),
            free: Vec::new(),
            places_max,
            lease_ms,
        }
    }

    /// Whether a session could be opened.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.sessions.len() < self.places_max as usize
    }

    /// Whether there is a session, if only one that is being closed.
    pub fn has_some(&self) -> bool {
        self.free.len() < self.sessions.len()
    }

    /// Opens a session at a free place, with a new generation.
    ///
    /// # Panics
    /// Unless [`SessionTable::has_room`].
    pub fn open(&mut self, lock: u32, intended: Instant, now: Instant) -> u32 {
        assert!(self.has_room(), "it is asked before");
        let (index, generation) = match self.free.pop() {
            Some(index) => (index, self.at(index).generation),
            None => (u32::try_from(self.sessions.len()).expect("below places_max"), 0),
        };
        let session = Session {
            generation: generation.wrapping_add(1),
            stage: Stage::Open,
            lock,
            intended,
            heartbeat_due: Instant::NEVER,
            release_at: Instant::NEVER,
            claim: Claim::new(self.lease_ms, now),
            begun: now,
            connected_at: Instant::NEVER,
            is_settled: false,
        };
        match self.sessions.get_mut(index as usize) {
            Some(place) => *place = session,
            None => {
                self.sessions.push(session);
                self.heap_positions.push(NOWHERE);
            }
        }
        index
    }

    /// Gives a place back after its connection is gone.
    pub fn free(&mut self, index: u32) {
        self.sessions[index as usize].stage = Stage::Free;
        self.free.push(index);
    }

    /// The session at a place that has been used.
    pub fn at(&mut self, index: u32) -> &mut Session {
        &mut self.sessions[index as usize]
    }

    /// Whether a session is in the heap of deadlines.
    pub fn is_scheduled(&self, index: u32) -> bool {
        self.heap_positions[index as usize] != NOWHERE
    }

    /// The session, if it is still the one.
    pub fn find(&mut self, who: Who) -> Option<&mut Session> {
        let session = &mut self.sessions[who.index as usize];
        (session.generation == who.generation && session.is_alive()).then_some(session)
    }

    /// All places that were ever used.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Session)> {
        (0..).zip(&self.sessions)
    }

    /// The session's name for the checker.
    pub fn who(&self, index: u32) -> Who {
        Who { index, generation: self.sessions[index as usize].generation }
    }

    /// The session's name for the ring.
    pub fn connection(&self, index: u32) -> ConnectionId {
        ConnectionId { index, generation: self.sessions[index as usize].generation }
    }
}

impl HeapPositions for SessionTable {
    fn heap_position(&mut self, index: u32) -> &mut u32 {
        &mut self.heap_positions[index as usize]
    }
}
