//! Connections whose lock belongs to another event loop. Such a connection is in no queue here: it
//! leaves as soon as there is a place for it there, and until then it waits, unanswered, under the
//! lease that it asked for.
//!
//! It leaves in steps, since a loop must not wait for another one: [`Effect::Move`] asks for a
//! place; [`Engine::leave`] or [`Engine::wait_for_place`] is the answer; once the socket is out of
//! the ring, [`Engine::depart`] gives what the other engine has to know, whose
//! [`Engine::adopt`] takes it up.

use core::num::NonZeroU32;

use super::{Engine, OWED_MAX};
use crate::effect::Effect;
use crate::lock_table::LockName;
use crate::session::{PeerAddress, Phase, SessionId, Standing};
use crate::shard_map::ShardNumber;
use crate::time::{Instant, Now};
use crate::wire::{ACQUIRE, Acquire, ErrorCode, Farewell, HEARTBEAT};

/// A claim on its way to the event loop that owns its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The event loop that owns the lock.
    pub to: ShardNumber,
    /// Where the connection comes from.
    pub peer: PeerAddress,
    /// The lock that it claims.
    pub lock: LockName,
    /// The lease, in milliseconds.
    pub lease_ms: NonZeroU32,
    /// When the lease was last restarted.
    pub last_seen: Instant,
    /// When its ACQUIRE was read.
    pub since: Instant,
    /// HEARTBEATs that were read behind the ACQUIRE. None is answered yet.
    pub heartbeats: u32,
    /// The byte behind them that is none, if one was read: what follows it has no meaning.
    pub wrong_byte: Option<u8>,
}

/// What is known of a claim on another loop's lock besides its session.
#[derive(Debug)]
pub(super) struct Move {
    to: ShardNumber,
    lock: LockName,
    heartbeats: u32,
    wrong_byte: Option<u8>,
    /// Its place among those that wait for a place there, if it does.
    queued: Option<u64>,
}

impl Engine {
    /// The whole ACQUIRE is there, and names a lock of another event loop.
    pub(super) fn claim_elsewhere(
        &mut self,
        index: u32,
        to: ShardNumber,
        acquire: Acquire<'_>,
        rest: &[u8],
        now: Now,
    ) {
        let Acquire { lease_ms, name } = acquire;
        let lock = LockName::new(name);
        let place =
            self.moves.insert(Move { to, lock, heartbeats: 0, wrong_byte: None, queued: None });
        let place = u32::try_from(place).expect("no more moves than sessions");
        let session = &mut self.sessions[index];
        session.begin_claim(place, lease_ms, now.instant);
        session.standing = Standing::Moving;
        let deadline = session.lease_end();
        self.deadlines.change(&mut self.sessions, index, deadline);
        self.note_while_moving(index, rest, now);
        let id = self.sessions.id(index);
        self.effects.push_back(Effect::Move { session: id, to });
    }

    /// Bytes of a session on its way to another loop.
    pub(super) fn receive_while_moving(&mut self, index: u32, bytes: &[u8], now: Now) {
        self.note_while_moving(index, bytes, now);
        let is_leaving = self.sessions[index].phase == Phase::Leaving;
        if !is_leaving {
            self.end_if_wrong(index, now);
        }
    }

    fn note_while_moving(&mut self, index: u32, bytes: &[u8], now: Now) {
        let session = &mut self.sessions[index];
        let to_elsewhere = &mut self.moves[session.lock_or_frame as usize];
        if to_elsewhere.wrong_byte.is_some() {
            return;
        }
        let count = bytes.iter().position(|&byte| byte != HEARTBEAT).unwrap_or(bytes.len());
        if count > 0 {
            session.last_seen = now.instant;
        }
        let heartbeats = u32::try_from(count).unwrap_or(u32::MAX);
        to_elsewhere.heartbeats = to_elsewhere.heartbeats.saturating_add(heartbeats);
        to_elsewhere.wrong_byte = bytes.get(count).copied();
    }

    /// A session that waits is told at once of what it must not send: its claim would only be made
    /// to be ended.
    fn end_if_wrong(&mut self, index: u32, now: Now) {
        let to_elsewhere = &self.moves[self.sessions[index].lock_or_frame as usize];
        if let Some(byte) = to_elsewhere.wrong_byte {
            self.end_with_error(index, wrong_byte(byte), now);
        }
    }

    /// Whether a session still waits to move; it may have ended since [`Effect::Move`].
    pub fn is_to_move(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(|session| {
            matches!(session.phase, Phase::Open | Phase::Probing)
                && matches!(session.standing, Standing::Moving)
        })
    }

    /// A place was taken for a session that [is to move](Engine::is_to_move). Its socket is to be
    /// taken out of the ring; then [`Engine::depart`] follows, or the end of the connection if that
    /// is what is found.
    ///
    /// # Panics
    /// If it is not to move.
    pub fn leave(&mut self, id: SessionId) {
        assert!(self.is_to_move(id), "only who is to move leaves");
        self.leave_queue(id.index);
        self.sessions[id.index].phase = Phase::Leaving;
        // It takes a turn or two. Whatever passes meanwhile is seen at the other end.
        self.deadlines.change(&mut self.sessions, id.index, Instant::NEVER);
    }

    /// There is no place for a session that [is to move](Engine::is_to_move): it waits for one. It
    /// is read on, so that its end is seen.
    ///
    /// # Panics
    /// If it is not to move.
    pub fn wait_for_place(&mut self, id: SessionId, now: Now) {
        assert!(self.is_to_move(id), "only who is to move waits for a place");
        let to_elsewhere = &mut self.moves[self.sessions[id.index].lock_or_frame as usize];
        self.waits_begun += 1;
        to_elsewhere.queued = Some(self.waits_begun);
        self.waiting[to_elsewhere.to as usize].insert(self.waits_begun, id.index);
        self.end_if_wrong(id.index, now);
    }

    /// How many sessions wait for a place at that shard.
    pub fn waiting_for(&self, to: ShardNumber) -> u32 {
        u32::try_from(self.waiting[to as usize].len()).expect("no more than sessions")
    }

    /// There is a place at that shard: [leaves](Engine::leave) the session that has waited longest
    /// for one, if there is any, and returns it. One whose lease has passed, and that is only being
    /// read once more, goes nowhere.
    pub fn leave_next(&mut self, to: ShardNumber, now: Now) -> Option<SessionId> {
        let mut in_order = self.waiting[to as usize].values().copied();
        let index = in_order.find(|&index| {
            let session = &self.sessions[index];
            session.phase == Phase::Open && now.instant < session.lease_end()
        })?;
        let id = self.sessions.id(index);
        self.leave(id);
        Some(id)
    }

    /// The socket of a session that [leaves](Engine::leave) is out of the ring: the session is gone
    /// from here, and its place may be used again.
    ///
    /// # Panics
    /// If the session does not leave.
    pub fn depart(&mut self, id: SessionId) -> Departure {
        let session = self.sessions.get(id).expect("who leaves is there");
        assert_eq!(session.phase, Phase::Leaving, "only who leaves departs");
        self.deadlines.remove(&mut self.sessions, id.index);
        self.counts.connections -= 1;
        self.counts.connections_unclaimed -= 1;
        let session = self.sessions.remove(id.index);
        let to_elsewhere = self.moves.remove(session.lock_or_frame as usize);
        Departure {
            to: to_elsewhere.to,
            peer: session.peer,
            lock: to_elsewhere.lock,
            lease_ms: NonZeroU32::new(session.lease_ms).expect("a claim has a lease"),
            last_seen: session.last_seen,
            since: session.since,
            heartbeats: to_elsewhere.heartbeats,
            wrong_byte: to_elsewhere.wrong_byte,
        }
    }

    /// A connection has come from another event loop, and [has been connected](Engine::connect)
    /// here: its claim is taken up where it was left.
    pub fn adopt(&mut self, id: SessionId, departure: &Departure, now: Now) {
        let &Departure { ref lock, lease_ms, last_seen, since, heartbeats, wrong_byte, .. } =
            departure;
        debug_assert_eq!(self.shard_map.owner(lock), self.shard, "a connection moves once");
        // It may have been refused, as the server shuts down.
        if self.sessions.get(id).is_none_or(|session| session.phase != Phase::Open) {
            return;
        }
        if !self.claim_here(id.index, Acquire { lease_ms, name: lock }, since, now) {
            return;
        }
        let session = &mut self.sessions[id.index];
        session.last_seen = last_seen;
        let deadline = session.lease_end();
        self.deadlines.change(&mut self.sessions, id.index, deadline);
        if heartbeats > 0 {
            self.counts.heartbeats += u64::from(heartbeats);
            self.owe(id.index, heartbeats);
        }
        if let Some(byte) = wrong_byte {
            self.end_with_error(id.index, self::wrong_byte(byte), now);
        }
    }

    /// A session that was to move ends here instead.
    pub(super) fn cancel_move(&mut self, index: u32) {
        self.leave_queue(index);
        let session = &self.sessions[index];
        let to_elsewhere = self.moves.remove(session.lock_or_frame as usize);
        if session.phase == Phase::Leaving {
            self.effects.push_back(Effect::GiveBackPlace { at: to_elsewhere.to });
        }
    }

    fn leave_queue(&mut self, index: u32) {
        let to_elsewhere = &mut self.moves[self.sessions[index].lock_or_frame as usize];
        if let Some(queued) = to_elsewhere.queued.take() {
            self.waiting[to_elsewhere.to as usize].remove(&queued);
        }
    }

    /// Whether a session on its way elsewhere is to be read: its end must be seen while it waits.
    pub(super) fn is_read_while_moving(&self, lock_or_frame: u32) -> bool {
        let to_elsewhere = &self.moves[lock_or_frame as usize];
        to_elsewhere.queued.is_some() && to_elsewhere.heartbeats < OWED_MAX
    }
}

/// What to say of a byte that follows an ACQUIRE and is no HEARTBEAT.
pub(super) fn wrong_byte(byte: u8) -> Farewell {
    if byte == ACQUIRE {
        Farewell::new(ErrorCode::DUPLICATE_ACQUIRE)
    } else {
        Farewell::unknown_type(byte)
    }
}
