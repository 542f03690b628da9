//! From the first byte to the grant, and the heartbeats after it.

use alloc::vec::Vec;

use super::Engine;
use super::moving::wrong_byte;
use crate::NONE;
use crate::effect::{Ownership, OwnershipChange};
use crate::fencing::Token;
use crate::session::Standing;
use crate::time::{Instant, Now};
use crate::wire::{ACQUIRE_LEN_MAX, Acquire, ErrorCode, Farewell, First, HEARTBEAT, decode_first};

impl Engine {
    /// Bytes of a session that has no claim yet.
    pub(super) fn receive_first_frame(&mut self, index: u32, bytes: &[u8], now: Now) {
        let partial_frame = self.sessions[index].lock_or_frame;
        if partial_frame == NONE {
            match decode_first(bytes) {
                Ok(First::Incomplete) => self.keep_partial_frame(index, bytes),
                Ok(First::Complete { acquire, len }) => {
                    self.claim(index, acquire, &bytes[len..], now);
                }
                Err(farewell) => self.end_with_error(index, farewell, now),
            }
            return;
        }
        // An incomplete frame is shorter than the longest one, so this takes at least one byte.
        let mut frame = core::mem::take(&mut self.partial_frames[partial_frame as usize]);
        let had = frame.len();
        let taken = bytes.len().min(ACQUIRE_LEN_MAX - had);
        frame.extend_from_slice(&bytes[..taken]);
        match decode_first(&frame) {
            Ok(First::Incomplete) => self.partial_frames[partial_frame as usize] = frame,
            Ok(First::Complete { acquire, len }) => {
                self.drop_partial_frame(index);
                self.claim(index, acquire, &bytes[len - had..], now);
            }
            Err(farewell) => self.end_with_error(index, farewell, now),
        }
    }

    fn keep_partial_frame(&mut self, index: u32, bytes: &[u8]) {
        let place = self.partial_frames.insert(Vec::from(bytes));
        let partial_frame = u32::try_from(place).expect("no more frames than sessions");
        self.sessions[index].lock_or_frame = partial_frame;
    }

    pub(super) fn drop_partial_frame(&mut self, index: u32) {
        let session = &mut self.sessions[index];
        debug_assert!(matches!(session.standing, Standing::Connected));
        let partial_frame = core::mem::replace(&mut session.lock_or_frame, NONE);
        if partial_frame != NONE {
            self.partial_frames.remove(partial_frame as usize);
        }
    }

    fn claim(&mut self, index: u32, acquire: Acquire<'_>, rest: &[u8], now: Now) {
        let Acquire { lease_ms, name } = acquire;
        if self.config.lease_max_ms.is_some_and(|max| lease_ms > max) {
            self.end_with_error(index, Farewell::new(ErrorCode::LEASE_TOO_LONG), now);
            return;
        }
        let owner = self.shard_map.owner(name);
        if owner != self.shard {
            self.claim_elsewhere(index, owner, acquire, rest, now);
        } else if self.claim_here(index, acquire, now.instant, now) && !rest.is_empty() {
            self.receive_heartbeats(index, rest, now);
        }
    }

    /// Makes a claim of a session that has none, on a lock of this event loop, as of the moment at
    /// which its ACQUIRE was read. Whether it was made: nothing is granted once any loop of the
    /// server shuts down.
    pub(super) fn claim_here(
        &mut self,
        index: u32,
        acquire: Acquire<'_>,
        since: Instant,
        now: Now,
    ) -> bool {
        let (lock, is_new) = self.locks.find_or_insert(acquire.name, index);
        let may_hold = is_new && !self.is_granting_stopped;
        let token = if may_hold { self.mint.mint(now.unix) } else { None };
        if may_hold && token.is_none() {
            self.locks.remove(lock);
            self.end_with_error(index, Farewell::new(ErrorCode::SHUTTING_DOWN), now);
            return false;
        }
        if is_new && !may_hold {
            self.locks.get_mut(lock).holder = NONE;
        }
        let session = &mut self.sessions[index];
        session.begin_claim(lock, acquire.lease_ms, since);
        let deadline = session.lease_end();
        self.deadlines.change(&mut self.sessions, index, deadline);
        self.counts.connections_unclaimed -= 1;
        if let Some(token) = token {
            self.counts.locks_held += 1;
            self.grant(index, token, now);
        } else {
            self.locks.get_mut(lock).waiters.push_back(&mut self.sessions, index);
            self.counts.waiters += 1;
            self.owe(index, 1);
        }
        true
    }

    /// Makes a session that is in no queue the holder of its lock. Does not restart the lease: a
    /// waiter that died in the queue must not hold the lock for longer than it was silent before.
    pub(super) fn grant(&mut self, index: u32, token: Token, now: Now) {
        let session = &mut self.sessions[index];
        session.standing = Standing::Acquired(token.into());
        let wait = now.instant.since(session.since);
        session.since = now.instant;
        let (lock, peer) = (session.lock_or_frame, session.peer);
        self.locks.get_mut(lock).holder = index;
        self.counts.count_grant(wait);
        self.changes.push_back(OwnershipChange {
            lock: self.locks.get_mut(lock).name.clone(),
            session: self.sessions.id(index),
            peer,
            token,
            what: Ownership::Granted { wait },
        });
        self.owe(index, 1);
    }

    /// Bytes of a session with a claim: one answer for each heartbeat, and an end at the first byte
    /// that is none.
    pub(super) fn receive_heartbeats(&mut self, index: u32, bytes: &[u8], now: Now) {
        let count = bytes.iter().position(|&byte| byte != HEARTBEAT).unwrap_or(bytes.len());
        if let Ok(heartbeats @ 1..) = u32::try_from(count) {
            let session = &mut self.sessions[index];
            let last_seen = core::mem::replace(&mut session.last_seen, now.instant);
            let silence_nanos = now.instant.as_nanos().saturating_sub(last_seen.as_nanos());
            self.counts.count_heartbeats(heartbeats, silence_nanos, session.lease_ms);
            self.owe(index, heartbeats);
        }
        match bytes.get(count) {
            None => {}
            Some(&byte) => self.end_with_error(index, wrong_byte(byte), now),
        }
    }
}
