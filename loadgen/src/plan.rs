//! What is to happen when, drawn from the seed alone: the same seed gives the same plan, however
//! fast the server is and on however many threads it is carried out.

use std::time::Duration;

use crate::random::Random;
use crate::settings::{Arrivals, Load};

/// One operation: at this time from the start, on this lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The intended time, counted from the start of what is planned.
    pub at: Duration,
    /// The lock, by its number.
    pub lock: u32,
}

/// Sessions that come once and stay: spread evenly over the ramp, in a drawn order of locks, each
/// lock as often as the others, give or take one.
pub fn settlers(load: &Load) -> impl Iterator<Item = Arrival> + use<> {
    let (sessions, locks, ramp) = (load.sessions, load.locks, load.ramp);
    let mut order: Vec<u32> = (0..sessions).map(|session| session % locks).collect();
    let mut random = Random::new(load.seed, "settlers");
    for end in (2..=sessions).rev() {
        order.swap(random.below(end) as usize, end as usize - 1);
    }
    let each = ramp / sessions;
    (0..sessions).zip(order).map(move |(number, lock)| Arrival { at: each * number, lock })
}

/// Operations at a rate, without an end, on locks drawn at random.
#[derive(Clone, Debug)]
pub struct Arriving {
    arrivals: Arrivals,
    rate: f64,
    locks: u32,
    random_gap: Random,
    random_lock: Random,
    /// How many have come.
    number: u64,
    /// When the next one comes, for those that come at random.
    next_secs: f64,
}

impl Arriving {
    /// Operations at `rate` a second.
    pub fn new(load: &Load, rate: f64) -> Arriving {
        let mut random_gap = Random::new(load.seed, "gaps");
        let next_secs = random_gap.exponential() / rate;
        Arriving {
            arrivals: load.arrivals,
            rate,
            locks: load.locks,
            random_gap,
            random_lock: Random::new(load.seed, "locks"),
            number: 0,
            next_secs,
        }
    }
}

impl Iterator for Arriving {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 operations")]
        let secs = match self.arrivals {
            // From the number and not by adding up, so that errors don't add up either.
            Arrivals::Constant => self.number as f64 / self.rate,
            Arrivals::Poisson => {
                let secs = self.next_secs;
                self.next_secs += self.random_gap.exponential() / self.rate;
                secs
            }
        };
        self.number += 1;
        let lock = self.random_lock.below(self.locks);
        Some(Arrival { at: Duration::from_secs_f64(secs), lock })
    }
}

/// The thread that has a lock, and with it all sessions of that lock: what happens to one lock is
/// seen by one thread, in one order.
pub fn worker_of(lock: u32, workers: u32) -> u32 {
    lock % workers
}

/// How many of the locks one of so many workers has.
pub fn locks_of_worker(locks: u32, worker: u32, workers: u32) -> u32 {
    (locks + workers - 1 - worker) / workers
}

/// The most sessions that one of so many workers has: its locks' share, give or take one a lock.
/// At a rate, which lock the next operation wants is drawn, so a worker may want more for a while.
pub fn sessions_of_worker(load: &Load, worker: u32, workers: u32) -> u32 {
    let locks = locks_of_worker(load.locks, worker, workers);
    let (each, rest) = (load.sessions / load.locks, load.sessions % load.locks);
    // The first `rest` locks have one more.
    each * locks + locks_of_worker(rest, worker, workers)
}
