//! The whole engine, without sockets: the time of one operation among up to a million sessions.
//!
//! `cargo bench --bench engine`; memory a session is measured and printed first.

mod crowd;

use std::fs;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

use crowd::Crowd;

/// `cargo test` runs every bench once, in a debug build: that shall be quick.
fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

fn sizes<const N: usize>(sizes: [usize; N]) -> [usize; N] {
    if is_measured() { sizes } else { sizes.map(|size| size / 1000) }
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    if is_measured() {
        print_memory(1_000_000);
    }
    heartbeat(&mut criterion);
    claim(&mut criterion);
    handover(&mut criterion);
    drop_half_of_a_queue(&mut criterion);
    mass_expiry(&mut criterion);
    criterion.final_summary();
}

/// What the process has of resident memory, in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("the memory of this process");
    let pages = statm.split_whitespace().nth(1).expect("the second number is resident");
    pages.parse::<u64>().expect("a number of pages") * rustix::param::page_size() as u64
}

/// The first crowd of the process, so that all its memory is new. The bench's own list of sessions,
/// eight bytes for each, is taken off.
fn print_memory(count: usize) {
    let before = resident();
    let crowd = Crowd::of_holders(count);
    let engine = resident() - before - 8 * count as u64;
    let sessions = crowd.len() as u64;
    println!(
        "memory of the engine: {} bytes a session, at {sessions} sessions that each hold a lock \
         with a name of 16 bytes",
        engine / sessions
    );
}

fn heartbeat(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("heartbeat");
    for size in sizes([10_000, 100_000, 1_000_000]) {
        let mut crowd = Crowd::of_holders(size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|iterations| timed(iterations, |count| crowd.heartbeats(count)));
        });
    }
}

fn claim(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("connect, acquire, close");
    for size in sizes([10_000, 1_000_000]) {
        let mut crowd = Crowd::of_holders(size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|iterations| timed(iterations, |count| crowd.claims(count)));
        });
    }
}

fn handover(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handover, and back to the queue");
    for size in sizes([10_000, 100_000]) {
        let mut crowd = Crowd::in_one_queue(size);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|iterations| timed(iterations, |count| crowd.handovers(count)));
        });
    }
}

/// The time of one is the same at every length of the queue, or nearly, if leaving it takes
/// constant time.
fn drop_half_of_a_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("half of a queue leaves, each");
    group.sample_size(10);
    for size in sizes([10_000, 50_000, 100_000]) {
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|iterations| {
                timed_each(iterations, || Crowd::in_one_queue(size), Crowd::drop_half)
            });
        });
    }
}

fn mass_expiry(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("all leases pass, each");
    group.sample_size(10);
    for size in sizes([10_000, 100_000, 1_000_000]) {
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|iterations| {
                timed_each(iterations, || Crowd::of_holders(size), Crowd::expire_all)
            });
        });
    }
}

fn timed(iterations: u64, routine: impl FnOnce(usize)) -> Duration {
    let count = usize::try_from(iterations).expect("a number of iterations");
    let start = Instant::now();
    routine(count);
    start.elapsed()
}

/// Routines that work off a whole crowd can't be run `iterations` times; their time for each
/// session can be told all the same.
fn timed_each(
    iterations: u64,
    make: impl Fn() -> Crowd,
    routine: impl Fn(&mut Crowd) -> usize,
) -> Duration {
    let (mut elapsed, mut done) = (Duration::ZERO, 0);
    while done < iterations.min(200_000) {
        let mut crowd = make();
        let start = Instant::now();
        done += routine(&mut crowd) as u64;
        elapsed += start.elapsed();
    }
    elapsed.div_f64(done as f64).mul_f64(iterations as f64)
}
