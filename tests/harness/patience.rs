//! How long the tests wait for what must happen.

use std::thread;
use std::time::{Duration, Instant};

/// After this time something that should have happened at once is taken as not happening. It is
/// generous because the machine may be shared; a test that passes never waits for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// A lease far beyond [`PATIENCE`]: whatever is seen to happen, this lease didn't do it.
pub(crate) const LONG_LEASE_MS: u32 = 120_000;

/// How long a stream is watched to see that nothing comes. Too short a time can only let a fault
/// pass; it can't fail a server that is right.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
