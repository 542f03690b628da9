//! What work that runs under a lock has in its hands.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::fencing::Token;

use crate::failure::{Loss, WriteError};
use crate::tenure::{StopReason, Tenure};

/// A lock that is held, in the hands of the work that runs under it.
///
/// A clone is the same hold. It doesn't keep the lock: when the work has ended, the lock is
/// released, and a handle that outlives it gets [`Loss::Released`].
#[derive(Clone, Debug)]
pub struct Held {
    tenure: Arc<Tenure>,
    index: usize,
}

/// What the guarded resource said to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written<T> {
    /// Done.
    Done(T),
    /// Refused, as it has seen a newer token.
    Refused,
}

impl Written<u64> {
    /// What a number of changed rows says about a statement that has the token in its condition.
    pub fn of_rows(changed: u64) -> Written<u64> {
        if changed == 0 { Written::Refused } else { Written::Done(changed) }
    }
}

impl Held {
    /// The fencing token of this grant, if the lock is still held by a look at the clock.
    ///
    /// To be asked for right before each use, and given to the guarded resource with each write.
    ///
    /// # Errors
    /// Why the lock is not held any more.
    pub fn token(&self) -> Result<Token, Loss> {
        self.tenure.token(self.index)
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.tenure.names[self.index]
    }

    /// The lease, as the server was told.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.tenure.lease_ms.get()))
    }

    /// The time that is left before the server may give the lock to the next if it hears nothing
    /// more; zero if it may have done so.
    ///
    /// The lock counts as lost when a fifth of the lease is left: that is the time to stop in.
    pub fn lease_left(&self) -> Duration {
        self.tenure.lease_left(self.index)
    }

    /// Why the work should stop, if it should. For loops, between two steps.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.tenure.stop_reason()
    }

    /// Waits until the work should stop.
    pub async fn stopping(&self) -> StopReason {
        self.tenure.stopping().await
    }

    /// Waits on a thread until the work should stop, but no longer than this.
    pub fn wait_for_stop(&self, at_most: Duration) -> Option<StopReason> {
        self.tenure.wait_for_stop(at_most)
    }

    /// Writes to the guarded resource with the token of now.
    ///
    /// `write` gets the token and says what the resource answered. A resource that has seen a newer
    /// token has proof that the lock is somebody else's: the lock then counts as lost
    /// ([`Loss::Fenced`]), for this work and everything else that shares the hold.
    ///
    /// # Errors
    /// [`WriteError::Lost`] if the lock is not held, before the write (which then isn't made) or by
    /// the resource's answer; [`WriteError::Failed`] with the error of the write.
    pub async fn write<T, E, Fut>(
        &self,
        write: impl FnOnce(Token) -> Fut,
    ) -> Result<T, WriteError<E>>
    where
        Fut: Future<Output = Result<Written<T>, E>>,
    {
        let token = self.token().map_err(WriteError::Lost)?;
        self.take_answer(write(token).await)
    }

    /// [`Held::write`] for blocking code.
    ///
    /// # Errors
    /// The same.
    pub fn write_blocking<T, E>(
        &self,
        write: impl FnOnce(Token) -> Result<Written<T>, E>,
    ) -> Result<T, WriteError<E>> {
        let token = self.token().map_err(WriteError::Lost)?;
        self.take_answer(write(token))
    }

    fn take_answer<T, E>(&self, answer: Result<Written<T>, E>) -> Result<T, WriteError<E>> {
        match answer.map_err(WriteError::Failed)? {
            Written::Done(value) => Ok(value),
            Written::Refused => {
                self.tenure.lose(self.index, Loss::Fenced);
                Err(WriteError::Lost(Loss::Fenced))
            }
        }
    }
}

/// Several locks that are held together. The loss of one is the loss of all.
#[derive(Clone, Debug)]
pub struct HeldTogether {
    locks: Vec<Held>,
}

impl HeldTogether {
    /// The lock with this name, if it is among them. Each has a token of its own, for the resource
    /// that it guards.
    pub fn get(&self, name: &str) -> Option<&Held> {
        self.locks.iter().find(|held| held.name() == name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Held> {
        self.locks.iter()
    }

    /// Why the work should stop, if it should.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.locks[0].stop_reason()
    }

    /// Waits until the work should stop.
    pub async fn stopping(&self) -> StopReason {
        self.locks[0].stopping().await
    }

    /// Waits on a thread until the work should stop, but no longer than this.
    pub fn wait_for_stop(&self, at_most: Duration) -> Option<StopReason> {
        self.locks[0].wait_for_stop(at_most)
    }
}

/// What work gets: one lock or several.
pub trait Handle: sealed::FromLocks {}

impl Handle for Held {}
impl Handle for HeldTogether {}

/// The hold of all locks of a tenure, as the work wants it.
pub(crate) fn handle<H: Handle>(tenure: &Arc<Tenure>) -> H {
    let held = |index| Held { tenure: Arc::clone(tenure), index };
    H::from_locks((0..tenure.names.len()).map(held).collect())
}

mod sealed {
    use super::{Held, HeldTogether};

    pub trait FromLocks {
        /// From one lock at least.
        fn from_locks(locks: Vec<Held>) -> Self;
    }

    impl FromLocks for Held {
        fn from_locks(mut locks: Vec<Held>) -> Held {
            locks.swap_remove(0)
        }
    }

    impl FromLocks for HeldTogether {
        fn from_locks(locks: Vec<Held>) -> HeldTogether {
            HeldTogether { locks }
        }
    }
}
