//! Watches the wall clock for steps. Tokens go on from the last one whatever it does, but after a
//! step backwards a restart would begin below them.

use monolock_core::time::{Instant, UnixTime};
use tracing::warn;

/// A difference that no ordinary correction of a clock makes within a period.
const STEP_MIN_NANOS: i128 = 2_000_000_000;

/// What the two clocks differed by when they were last said to differ by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockWatch {
    difference_nanos: i128,
}

impl ClockWatch {
    /// Begins from how the clocks stand now. `since_boot` is to go on while the machine is
    /// suspended, for the wall clock does so too and has not stepped then.
    pub(super) fn new(wall_clock: UnixTime, since_boot: Instant) -> ClockWatch {
        ClockWatch { difference_nanos: difference_nanos(wall_clock, since_boot) }
    }

    /// Warns if the clocks have parted since they were last looked at.
    pub(super) fn look(&mut self, wall_clock: UnixTime, since_boot: Instant) {
        if let Some(step_ms) = self.step_ms(wall_clock, since_boot) {
            warn!(
                step_ms,
                "the wall clock was set; tokens go on growing in this process, but if it was set \
                 back, a restart before it has caught up would begin below them"
            );
        }
    }

    fn step_ms(&mut self, wall_clock: UnixTime, since_boot: Instant) -> Option<i64> {
        let difference_nanos = difference_nanos(wall_clock, since_boot);
        let step_nanos = difference_nanos - self.difference_nanos;
        if step_nanos.abs() <= STEP_MIN_NANOS {
            return None;
        }
        self.difference_nanos = difference_nanos;
        Some(i64::try_from(step_nanos / 1_000_000).unwrap_or(i64::MAX))
    }
}

fn difference_nanos(wall_clock: UnixTime, since_boot: Instant) -> i128 {
    let wall_nanos =
        i128::from(wall_clock.secs()) * 1_000_000_000 + i128::from(wall_clock.subsec_nanos());
    wall_nanos - i128::from(since_boot.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_once_and_a_drift_when_it_has_become_one() {
        let at = |secs| UnixTime::new(secs, 0);
        let boot = |secs: u64| Instant::from_nanos(secs * 1_000_000_000);
        let mut watch = ClockWatch::new(at(1000), boot(10));
        assert_eq!(watch.step_ms(at(1001), boot(11)), None);
        assert_eq!(watch.step_ms(at(1003), boot(12)), None, "1 s is no step");
        assert_eq!(watch.step_ms(at(1005), boot(12)), Some(3000), "it has drifted by 3 s");
        assert_eq!(watch.step_ms(at(1006), boot(13)), None, "told once");
        assert_eq!(watch.step_ms(at(906), boot(14)), Some(-101_000), "set back");
    }
}
