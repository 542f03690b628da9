//! How much of the measured time a thread was running.

use std::time::Duration;

use monolock_core::time::Instant;

use crate::clock;
use crate::course::Course;

/// To be kept by the thread itself.
#[derive(Debug, Default)]
pub struct BusyTime {
    /// When measuring began and ended, with the time that the thread had been running by then.
    from: Option<(Instant, u64)>,
    until: Option<(Instant, u64)>,
}

impl BusyTime {
    /// To be called every turn.
    pub fn note(&mut self, now: Instant, course: &Course) {
        if self.from.is_none() && course.is_measured(now) {
            self.from = Some((now, clock::thread_cpu_nanos()));
        }
        if self.until.is_none() && course.is_over(now) {
            self.until = Some((now, clock::thread_cpu_nanos()));
        }
    }

    /// The share of the measured time, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        match (self.from, self.until) {
            (Some((from, busy_from)), Some((until, busy_until))) if until > from => {
                let busy = Duration::from_nanos(busy_until - busy_from);
                busy.as_secs_f64() / until.since(from).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}
