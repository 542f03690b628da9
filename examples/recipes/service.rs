//! A service of your own, which refuses what comes too late.

use std::sync::{Mutex, PoisonError};

/// What a lock guards, and the largest token that has written to it.
pub(crate) struct Guarded<T> {
    state: Mutex<(u64, T)>,
}

/// A newer holder has been here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) newer: u64,
}

impl<T> Guarded<T> {
    /// After a restart with the token that was kept with the state.
    pub(crate) fn new(largest_token: u64, state: T) -> Guarded<T> {
        Guarded { state: Mutex::new((largest_token, state)) }
    }

    /// Compares and changes in one step.
    pub(crate) fn change<R>(
        &self,
        token: u64,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Stale> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (largest_token, state) = &mut *guard;
        if token < *largest_token {
            return Err(Stale { newer: *largest_token });
        }
        *largest_token = token;
        Ok(change(state))
    }

    /// Whoever only reads needs no token.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

/// What is answered to `PUT /report` with a header `Fencing-Token: 1872956384870401`: a status and
/// a text. A request without a token is refused: else one that forgot it would get through.
pub(crate) fn put(report: &Guarded<String>, token: Option<&str>, body: &str) -> (u16, String) {
    let Some(token) = token.and_then(|token| token.parse().ok()) else {
        return (428, "a Fencing-Token is needed".into());
    };
    match report.change(token, |report| body.clone_into(report)) {
        Ok(()) => (200, "done".into()),
        Err(Stale { newer }) => (412, format!("token {newer} was here")),
    }
}
