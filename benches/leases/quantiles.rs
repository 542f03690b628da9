//! What is said of many durations.

use std::fmt;
use std::time::Duration;

/// Durations in order of size.
pub(crate) struct Quantiles(Vec<Duration>);

impl Quantiles {
    pub(crate) fn of(mut durations: Vec<Duration>) -> Quantiles {
        assert!(!durations.is_empty(), "something was measured");
        durations.sort_unstable();
        Quantiles(durations)
    }

    fn at_per_mille(&self, per_mille: usize) -> f64 {
        self.0[(self.0.len() - 1) * per_mille / 1000].as_secs_f64() * 1e3
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "50% {:.3}  90% {:.3}  99% {:.3}  99.9% {:.3}  all {:.3}  of {}",
            self.at_per_mille(500),
            self.at_per_mille(900),
            self.at_per_mille(990),
            self.at_per_mille(999),
            self.at_per_mille(1000),
            self.0.len(),
        )
    }
}
