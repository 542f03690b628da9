//! When the servers of a run failed and were succeeded, as all its threads see it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_core::time::Instant;

use crate::kill_plan::Way;

/// One failure of a server. Servers are counted from 0; the one with this failure's number failed,
/// and the next one came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// How it failed.
    pub way: Way,
    /// Noted before the server was sent its signal.
    pub at: Instant,
    /// When the next server was ready for all clients; not yet.
    pub succeeded_at: Option<Instant>,
}

/// All failures of a run so far.
#[derive(Debug, Default)]
pub struct Outages {
    all: Mutex<Vec<Outage>>,
    /// How many there are, so that threads need no lock to see that nothing is new.
    count: AtomicUsize,
    /// The newest is not over.
    is_out: AtomicBool,
}

impl Outages {
    /// A server is about to fail.
    pub fn begin(&self, way: Way, at: Instant) {
        let mut all = self.lock();
        all.push(Outage { way, at, succeeded_at: None });
        self.is_out.store(true, Ordering::SeqCst);
        self.count.store(all.len(), Ordering::SeqCst);
    }

    /// The next server is ready.
    pub fn succeed(&self, at: Instant) {
        if let Some(last) = self.lock().last_mut() {
            last.succeeded_at = Some(at);
        }
        self.is_out.store(false, Ordering::SeqCst);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether clients lead to a server that has failed.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::SeqCst)
    }

    /// One of them, counted from 0.
    ///
    /// # Panics
    /// If there aren't so many.
    pub fn at(&self, number: usize) -> Outage {
        self.lock()[number]
    }

    /// All of them.
    pub fn to_vec(&self) -> Vec<Outage> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Outage>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dials are counted in steps of this.
const DIALS_STEP: Duration = Duration::from_millis(100);

/// The steps in a second.
const STEPS_A_SECOND: usize = 10;

/// What one thread's clients had of one failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutageTally {
    /// From the failure to each client's first answer by a later server.
    pub back: Vec<Duration>,
    /// From the failure to the first grant by a later server.
    pub first_grant: Option<Duration>,
    /// Dials while nobody had come after the server that failed, in steps of a tenth of a second.
    dials: Vec<u64>,
    /// Holders of two servers that overlapped since then.
    pub overlaps: u64,
    /// For how long at most.
    pub overlap_longest: Duration,
}

impl OutageTally {
    /// A client has dialled.
    pub fn dial(&mut self, since_failure: Duration) {
        let step = since_failure.as_nanos() / DIALS_STEP.as_nanos();
        let step = usize::try_from(step).expect("an outage takes seconds");
        if self.dials.len() <= step {
            self.dials.resize(step + 1, 0);
        }
        self.dials[step] += 1;
    }

    /// All dials.
    pub fn dials(&self) -> u64 {
        self.dials.iter().sum()
    }

    /// The most dials within a second.
    pub fn dials_a_second_max(&self) -> u64 {
        let windows = self.dials.windows(STEPS_A_SECOND.min(self.dials.len()).max(1));
        windows.map(|window| window.iter().sum()).max().unwrap_or(0)
    }

    /// Takes in what another thread's clients had of the same failure.
    pub fn add(&mut self, other: &OutageTally) {
        self.back.extend_from_slice(&other.back);
        self.first_grant = match (self.first_grant, other.first_grant) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        };
        self.dials.resize(self.dials.len().max(other.dials.len()), 0);
        for (sum, dials) in self.dials.iter_mut().zip(&other.dials) {
            *sum += dials;
        }
        self.overlaps += other.overlaps;
        self.overlap_longest = self.overlap_longest.max(other.overlap_longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_of_all_threads_are_counted_in_a_window_of_a_second() {
        let ms = Duration::from_millis;
        let (mut one, mut other) = (OutageTally::default(), OutageTally::default());
        assert_eq!(one.dials_a_second_max(), 0);
        for at in [0, 50, 950, 1049, 1950] {
            one.dial(ms(at));
        }
        assert_eq!(one.dials_a_second_max(), 3);
        for at in [1000, 1999, 2500] {
            other.dial(ms(at));
        }
        one.add(&other);
        assert_eq!((one.dials(), one.dials_a_second_max()), (8, 4));
    }
}
