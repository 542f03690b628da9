//! What an administrator may do to a claim.

use core::fmt;

use super::Engine;
use crate::NONE;
use crate::fencing::Token;
use crate::session::{PeerAddress, SessionId, Standing};
use crate::time::Now;
use crate::waiter_queue::WaiterQueue;
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
        let lock = self.locks.find(name).ok_or(NoSuchWaiter)?;
        let mut next = self.locks.get_mut(lock).waiters.front();
        while let Some(index) = next {
            let session = &self.sessions[index];
            if session.peer == peer {
                let id = self.sessions.id(index);
                let farewell = Farewell::new(ErrorCode::CLOSED_BY_ADMINISTRATOR);
                self.end_with_error(index, farewell, now);
                return Ok(id);
            }
            let Standing::Waiting(links) = session.standing else {
                unreachable!("only waiters stand in a queue");
            };
            next = WaiterQueue::behind(links);
        }
        Err(NoSuchWaiter)
    }
}
