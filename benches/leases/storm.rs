//! Connections that come and go, so many a second.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::source;

/// How often what is due is done.
const TICK: Duration = Duration::from_millis(1);

/// Connects to a server and closes, `rate` times a second whatever becomes of it, until `over` says
/// so. Returns how often.
pub(crate) fn blow(
    server: SocketAddr,
    rate: u32,
    mut over: impl FnMut() -> bool,
) -> io::Result<u32> {
    let start = Instant::now();
    let (mut done, mut passed) = (0, 0);
    while !over() {
        let due = start.elapsed().as_micros() * u128::from(rate) / 1_000_000;
        let due = u32::try_from(due).expect("a run of minutes");
        // If the machine stood still, what was missed is not made up for in one burst.
        for _ in 0..(due - passed).min(rate / 100) {
            drop(source::connect(server)?);
            done += 1;
        }
        passed = due;
        thread::sleep(TICK);
    }
    Ok(done)
}
