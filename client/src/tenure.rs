//! What is known of locks that are held together: written by the driver's thread, read by the
//! work. Both look at the clock, so that a driver that didn't run in time can't let the work
//! believe that it still holds.

use std::num::NonZeroU32;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_core::claim::Claim;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use tokio::sync::Notify;

use crate::clock;
use crate::failure::Loss;

/// Why work that runs under a lock should stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The lock is lost: nothing that it guards may be touched any more.
    Lost(Loss),
    /// The lock was held for as long as was permitted. It is still held.
    HeldLongEnough,
    /// Whoever waited for the result doesn't wait any more. The lock is still held, until the work
    /// has ended.
    Cancelled,
}

/// One attempt to hold locks together, and their being held.
#[derive(Debug)]
pub(crate) struct Tenure {
    pub(crate) names: Vec<String>,
    pub(crate) lease_ms: NonZeroU32,
    state: Mutex<State>,
    changed: Notify,
    changed_for_threads: Condvar,
}

/// See [`Tenure`].
#[derive(Debug, Default)]
pub(crate) struct State {
    /// In the order of the names, as far as they are granted.
    grants: Vec<Grant>,
    /// The first loss of any of them, which is the loss of all.
    loss: Option<Loss>,
    /// When the server may give away the lock of the first loss, at the earliest.
    lost_lease_ends_at: Option<Instant>,
    is_cancelled: bool,
    has_held_long_enough: bool,
    is_overdue: bool,
    is_released: bool,
    open_connections: usize,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    token: Token,
    give_up_at: Instant,
    lease_ends_at: Instant,
    is_lost: bool,
}

impl State {
    /// Whether the locks are held now, by the clock too.
    fn look(&mut self, now: Instant) -> Result<(), Loss> {
        if self.loss.is_none()
            && !self.is_released
            && let Some(index) = self.grants.iter().position(|grant| now >= grant.give_up_at)
        {
            self.lose(index, Loss::Expired);
        }
        match &self.loss {
            Some(loss) => Err(loss.clone()),
            None if self.is_released => Err(Loss::Released),
            None => Ok(()),
        }
    }

    fn lose(&mut self, index: usize, loss: Loss) {
        let grant = &mut self.grants[index];
        grant.is_lost = true;
        if self.loss.is_none() && !self.is_released {
            self.loss = Some(loss);
            self.lost_lease_ends_at = Some(grant.lease_ends_at);
        }
    }

    /// Whether the connection of this lock is to be closed.
    pub(crate) fn is_over(&self, index: usize) -> bool {
        self.is_released || self.grants.get(index).is_some_and(|grant| grant.is_lost)
    }

    /// Whether the work may be ended by force after a grace.
    pub(crate) fn must_stop(&self) -> bool {
        self.loss.is_some() || self.has_held_long_enough
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.is_overdue
    }

    pub(crate) fn is_released(&self) -> bool {
        self.is_released
    }

    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    fn stop_reason(&self) -> Option<StopReason> {
        if let Some(loss) = &self.loss {
            return Some(StopReason::Lost(loss.clone()));
        }
        if self.has_held_long_enough {
            return Some(StopReason::HeldLongEnough);
        }
        self.is_cancelled.then_some(StopReason::Cancelled)
    }
}

/// How work ended, as the locks saw it.
#[derive(Debug)]
pub(crate) enum Ending {
    Kept,
    HeldTooLong,
    Lost(Loss),
}

impl Tenure {
    pub(crate) fn new(names: Vec<String>, lease_ms: NonZeroU32) -> Tenure {
        Tenure {
            names,
            lease_ms,
            state: Mutex::default(),
            changed: Notify::new(),
            changed_for_threads: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No change is left half done by a panic: none of them can panic after its first write.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_waiters();
        self.changed_for_threads.notify_all();
        result
    }

    /// Waits until the probe finds something.
    pub(crate) async fn until<T>(&self, probe: impl Fn(&State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(found) = probe(&self.state()) {
                return found;
            }
            changed.await;
        }
    }

    /// The next lock in the order of the names is granted.
    pub(crate) fn grant(&self, token: Token, claim: &Claim) {
        self.change(|state| {
            state.grants.push(Grant {
                token,
                give_up_at: claim.give_up_at(),
                lease_ends_at: claim.lease_ends_no_earlier_than(),
                is_lost: false,
            });
            state.open_connections += 1;
        });
    }

    /// The claim on this lock was confirmed, or not: its times are these.
    pub(crate) fn confirm(&self, index: usize, claim: &Claim) {
        // Nobody waits for a deadline to be moved.
        let grant = &mut self.state().grants[index];
        grant.give_up_at = claim.give_up_at();
        grant.lease_ends_at = claim.lease_ends_no_earlier_than();
    }

    pub(crate) fn lose(&self, index: usize, loss: Loss) {
        self.change(|state| state.lose(index, loss));
    }

    /// The connection of a lock was closed.
    pub(crate) fn connection_closed(&self) {
        self.change(|state| state.open_connections -= 1);
    }

    pub(crate) fn cancel(&self) {
        self.change(|state| state.is_cancelled = true);
    }

    pub(crate) fn hold_time_is_over(&self) {
        self.change(|state| state.has_held_long_enough = true);
    }

    /// When the grace ends that follows from the lease: with the lease after a silence, for then
    /// the server may give the lock to the next; else after the same fifth of a lease.
    pub(crate) fn grace_ends_at(&self, now: Instant) -> Instant {
        let state = self.state();
        match (&state.loss, state.lost_lease_ends_at) {
            (Some(Loss::Expired), Some(lease_ends_at)) => lease_ends_at,
            _ => now.after(Duration::from_millis(u64::from(self.lease_ms.get())) / 5),
        }
    }

    /// From now on the work is dropped if it hasn't ended.
    pub(crate) fn grace_is_over(&self) {
        self.change(|state| state.is_overdue = true);
    }

    /// The work has ended: judges it, and has the connections closed.
    pub(crate) fn release(&self) -> Ending {
        self.change(|state| {
            let ending = match state.look(clock::now()) {
                Err(loss) => Ending::Lost(loss),
                Ok(()) if state.has_held_long_enough => Ending::HeldTooLong,
                Ok(()) => Ending::Kept,
            };
            state.is_released = true;
            ending
        })
    }

    /// Waits until all connections are closed: then the server knows that the locks are free, or
    /// is about to.
    pub(crate) async fn closed(&self) {
        self.until(|state| (state.open_connections == 0).then_some(())).await;
    }

    /// The same for a thread.
    pub(crate) fn wait_until_closed(&self) {
        let mut state = self.state();
        while state.open_connections > 0 {
            state = self.changed_for_threads.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The token of this lock, if it is held now.
    pub(crate) fn token(&self, index: usize) -> Result<Token, Loss> {
        let mut state = self.state();
        let was_lost = state.loss.is_some();
        let looked = state.look(clock::now());
        let token = state.grants[index].token;
        let is_newly_lost = !was_lost && state.loss.is_some();
        drop(state);
        if is_newly_lost {
            // The driver and whoever waits for a loss have yet to be told.
            self.change(|_| ());
        }
        looked.map(|()| token)
    }

    /// The time that is left before the server may give this lock to the next.
    pub(crate) fn lease_left(&self, index: usize) -> Duration {
        self.state().grants[index].lease_ends_at.since(clock::now())
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        // The clock first: it may know of a loss that nobody has noticed.
        let _ = self.token(0);
        self.state().stop_reason()
    }

    pub(crate) async fn stopping(&self) -> StopReason {
        self.until(State::stop_reason).await
    }

    /// Waits on a thread, at most for this long.
    pub(crate) fn wait_for_stop(&self, at_most: Duration) -> Option<StopReason> {
        let state = self.state();
        let waited = self
            .changed_for_threads
            .wait_timeout_while(state, at_most, |state| state.stop_reason().is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.stop_reason()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(lease_ms: u32) -> Tenure {
        let lease_ms = NonZeroU32::new(lease_ms).unwrap();
        let tenure = Tenure::new(vec!["a".into(), "b".into()], lease_ms);
        for token in [7, 8] {
            let claim = Claim::new(lease_ms, clock::now());
            tenure.grant(Token::new(token).unwrap(), &claim);
        }
        tenure
    }

    #[test]
    fn the_clock_alone_ends_the_handing_out_of_tokens() {
        let tenure = held(1);
        while clock::now() < tenure.state().grants[0].give_up_at {}
        // No driver has said anything.
        assert_eq!(tenure.token(0), Err(Loss::Expired));
        assert_eq!(tenure.token(1), Err(Loss::Expired));
        assert_eq!(tenure.stop_reason(), Some(StopReason::Lost(Loss::Expired)));
        assert!(tenure.state().is_over(0), "so that the driver closes the connection");
        // What comes too late changes nothing.
        tenure.confirm(0, &Claim::new(NonZeroU32::new(60_000).unwrap(), clock::now()));
        assert_eq!(tenure.token(0), Err(Loss::Expired));
        assert!(matches!(tenure.release(), Ending::Lost(Loss::Expired)));
    }

    #[test]
    fn one_loss_is_the_loss_of_all_but_closes_only_its_own_connection() {
        let tenure = held(60_000);
        assert_eq!(tenure.token(0).map(Token::get), Ok(7));
        tenure.lose(1, Loss::Fenced);
        assert_eq!(tenure.token(0), Err(Loss::Fenced));
        assert!(tenure.state().is_over(1) && !tenure.state().is_over(0));
        tenure.lose(0, Loss::Expired);
        assert!(matches!(tenure.release(), Ending::Lost(Loss::Fenced)), "the first one counts");
    }

    #[test]
    fn after_the_release_there_is_no_token() {
        let tenure = held(60_000);
        assert!(matches!(tenure.release(), Ending::Kept));
        assert_eq!(tenure.token(1), Err(Loss::Released));
        tenure.lose(0, Loss::Expired);
        assert_eq!(tenure.token(1), Err(Loss::Released), "a loss after the end is none");
    }

    #[test]
    fn a_loss_is_a_stronger_reason_than_a_request() {
        let tenure = held(60_000);
        assert_eq!(tenure.stop_reason(), None);
        tenure.cancel();
        assert_eq!(tenure.stop_reason(), Some(StopReason::Cancelled));
        assert!(!tenure.state().must_stop(), "it may take its time");
        tenure.hold_time_is_over();
        assert_eq!(tenure.stop_reason(), Some(StopReason::HeldLongEnough));
        tenure.lose(0, Loss::Fenced);
        assert_eq!(tenure.stop_reason(), Some(StopReason::Lost(Loss::Fenced)));
    }
}
