//! What an administrator may do to claims.

use core::fmt;

use super::Engine;
use crate::NONE;
use crate::fencing::Token;
use crate::session::{PeerAddress, SessionId};
use crate::time::Now;
use crate::wire::{ErrorCode, Farewell};

/// Why a lock was not taken from its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceReleaseError {
    /// Nobody holds it.
    NotHeld,
    /// The holder is not the one that was meant; this is its token.
    OtherToken(Token),
}

impl fmt::Display for ForceReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForceReleaseError::NotHeld => f.write_str("nobody holds this lock"),
            ForceReleaseError::OtherToken(token) => write!(f, "the holder's token is {token}"),
        }
    }
}

impl core::error::Error for ForceReleaseError {}

/// Nobody from that address waits for that lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchWaiter;

impl fmt::Display for NoSuchWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such waiter")
    }
}

impl core::error::Error for NoSuchWaiter {}

impl Engine {
    /// Takes a lock from its holder, who gets the ERROR
    /// [`CLOSED_BY_ADMINISTRATOR`](ErrorCode::CLOSED_BY_ADMINISTRATOR); the next waiter gets the
    /// lock. With a token, only the holder that it was granted to is meant. Returns the session
    /// that held it.
    ///
    /// # Errors
    /// If nobody holds it, or somebody else.
    pub fn force_release(
        &mut self,
        name: &str,
        token: Option<Token>,
        now: Now,
    ) -> Result<SessionId, ForceReleaseError> {
        let lock = self.locks.find(name).ok_or(ForceReleaseError::NotHeld)?;
        let holder = self.locks.get_mut(lock).holder;
        if holder == NONE {
            return Err(ForceReleaseError::NotHeld);
        }
        let held = self.sessions[holder].token().expect("a holder has a token");
        if token.is_some_and(|token| token != held) {
            return Err(ForceReleaseError::OtherToken(held));
        }
        let id = self.sessions.id(holder);
        self.end_with_error(holder, Farewell::new(ErrorCode::CLOSED_BY_ADMINISTRATOR), now);
        Ok(id)
    }

    /// Takes a waiter out of a lock's queue, by the address that it came from; it gets the ERROR
    /// [`CLOSED_BY_ADMINISTRATOR`](ErrorCode::CLOSED_BY_ADMINISTRATOR). Returns its session.
    ///
    /// # Errors
    /// If nobody from there waits for this lock.
    pub fn kick_waiter(
        &mut self,
        name: &str,
        peer: PeerAddress,
        now: Now,
    ) -> Result<SessionId, NoSuchWaiter> {
        let lock = self.lock(name).ok_or(NoSuchWaiter)?;
        let waiter = lock.waiters().find(|waiter| waiter.peer == peer).ok_or(NoSuchWaiter)?;
        self.kick_session(name, waiter.session, now)?;
        Ok(waiter.session)
    }

    /// Does the same to a waiter whose session is known: in a long queue it is searched for in
    /// slices before.
    ///
    /// # Errors
    /// If it does not wait for this lock any more.
    pub fn kick_session(
        &mut self,
        name: &str,
        waiter: SessionId,
        now: Now,
    ) -> Result<(), NoSuchWaiter> {
        let is_waiter = self.lock(name).is_some_and(|lock| lock.is_waiter(waiter));
        if !is_waiter {
            return Err(NoSuchWaiter);
        }
        self.end_with_error(waiter.index, Farewell::new(ErrorCode::CLOSED_BY_ADMINISTRATOR), now);
        Ok(())
    }

    /// From now on no lock is granted to anybody: who claims one waits, also for one that is free,
    /// and who holds one keeps it for as long as it likes. So a server can be emptied before it is
    /// shut down.
    pub fn stop_granting(&mut self) {
        self.is_granting_stopped = true;
    }

    /// From now on locks are granted again. Those that nobody holds because nothing was granted are
    /// handed on by [`Engine::promote_waiters`].
    pub fn resume_granting(&mut self) {
        self.is_granting_stopped = false;
    }

    /// Gives locks that nobody holds to those who have waited longest for them, at the places from
    /// `from` on, at most `limit` places. Returns the place to go on from, or `None` if there are
    /// no more. What is claimed meanwhile keeps its order: behind those who wait.
    pub fn promote_waiters(&mut self, from: u32, limit: u32, now: Now) -> Option<u32> {
        let places = self.locks.places();
        let end = from.saturating_add(limit).min(places);
        for lock in from..end {
            if self.locks.get(lock).is_some_and(|lock| lock.holder == NONE) {
                self.promote(lock, now);
            }
        }
        (end < places).then_some(end)
    }
}
