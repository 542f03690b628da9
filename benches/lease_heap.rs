//! The heap of deadlines alone: what a heartbeat, an expiry and a leaving session cost in it.
//!
//! `cargo bench --bench lease_heap`

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use monolock_core::lease_heap::{HeapPositions, LeaseHeap};
use monolock_core::time::Instant;

const LEASE_MS: u32 = 10_000;

/// What the heap and a heartbeat need of the sessions.
struct Sessions {
    positions: Vec<u32>,
    last_seen: Vec<Instant>,
}

impl HeapPositions for Sessions {
    fn heap_position(&mut self, index: u32) -> &mut u32 {
        &mut self.positions[index as usize]
    }
}

/// A heap whose deadlines lie spread over one lease, as those of sessions that beat in their own
/// time do.
struct Filled {
    heap: LeaseHeap,
    sessions: Sessions,
    random: fastrand::Rng,
}

impl Filled {
    fn new(count: usize) -> Filled {
        let sessions = Sessions {
            positions: vec![u32::MAX; count],
            last_seen: vec![Instant::from_nanos(0); count],
        };
        let heap = LeaseHeap::with_capacity(count);
        let mut filled = Filled { heap, sessions, random: fastrand::Rng::with_seed(1) };
        for index in 0..u32::try_from(count).expect("a number of sessions") {
            let deadline =
                Instant::from_nanos(filled.random.u64(..u64::from(LEASE_MS) * 1_000_000));
            filled.heap.insert(&mut filled.sessions, index, deadline);
        }
        filled
    }

    fn random_session(&mut self) -> u32 {
        let count = self.sessions.positions.len();
        u32::try_from(self.random.usize(..count)).expect("a session's index")
    }

    /// All that a heartbeat does about its deadline.
    fn heartbeat(&mut self, now: Instant) {
        let index = self.random_session();
        self.sessions.last_seen[index as usize] = now;
    }

    /// The first deadline has passed, and the lease goes on: the session sinks to its new place.
    fn go_on(&mut self) {
        let (deadline, index) = self.heap.first().expect("it is not empty");
        self.heap.change(&mut self.sessions, index, deadline.after_ms(LEASE_MS));
    }

    /// Some session leaves, and another one comes at its place.
    fn replace(&mut self) {
        let index = self.random_session();
        let (first, _) = self.heap.first().expect("it is not empty");
        self.heap.remove(&mut self.sessions, index);
        self.heap.insert(&mut self.sessions, index, first.after_ms(LEASE_MS));
    }
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let sizes = if is_measured { [10_000, 100_000, 1_000_000] } else { [10, 100, 1000] };
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    let mut group = criterion.benchmark_group("lease heap");
    for size in sizes {
        let mut filled = Filled::new(size);
        let mut nanos = 0;
        group.bench_function(BenchmarkId::new("heartbeat", size), |bencher| {
            bencher.iter(|| {
                nanos += 1;
                filled.heartbeat(black_box(Instant::from_nanos(nanos)));
            });
        });
        group.bench_function(BenchmarkId::new("expire", size), |bencher| {
            bencher.iter(|| filled.go_on());
        });
        group.bench_function(BenchmarkId::new("remove and insert", size), |bencher| {
            bencher.iter(|| filled.replace());
        });
    }
    group.finish();
    criterion.final_summary();
}
