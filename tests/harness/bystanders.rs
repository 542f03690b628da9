//! Well-behaved sessions beside whatever else happens to a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::crowd::{Crowd, Latencies};

const COUNT: usize = 100;
const LEASE_MS: u32 = 3_000;
const PERIOD: Duration = Duration::from_millis(50);

/// Holders, and a waiter behind each, who send their heartbeats until they are told to stop. None
/// of them may lose its place, go without an answer, or get one that it didn't ask for.
pub(crate) struct Bystanders {
    thread: Option<JoinHandle<Latencies>>,
    is_over: Arc<AtomicBool>,
}

impl Bystanders {
    /// On return they have their places.
    #[track_caller]
    pub(crate) fn beside(server: SocketAddr) -> Bystanders {
        let name = |number| format!("bystander {}", number / 2);
        let crowd = Crowd::claim(server, COUNT, name, LEASE_MS);
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || live(crowd, &is_over)
        });
        Bystanders { thread: Some(thread), is_over }
    }

    /// Ends them; gives how long the slowest answer of each round took.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Latencies {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().expect("they are finished once");
        thread.join().expect("every bystander lives")
    }
}

/// For a test that fails: nobody else would stop them.
impl Drop for Bystanders {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn live(mut crowd: Crowd, is_over: &AtomicBool) -> Latencies {
    let places: Vec<_> = (0..COUNT).map(|number| crowd.last_frame(number)).collect();
    let mut slowest = Latencies::default();
    let mut is_last_round = false;
    while !is_last_round {
        is_last_round = is_over.load(Ordering::SeqCst);
        crowd.heartbeat(0..COUNT);
        slowest.add(crowd.expect_answers(0..COUNT).percentile(100));
        for (number, place) in places.iter().enumerate() {
            assert_eq!(crowd.last_frame(number), *place, "bystander {number}");
        }
        thread::sleep(PERIOD);
    }
    slowest
}
