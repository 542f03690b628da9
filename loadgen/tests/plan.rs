//! The same seed gives the same plan, and the plan is what was asked for.

use std::num::NonZeroU32;
use std::time::Duration;

use monolock_loadgen::plan::{self, Arrival, Arriving};
use monolock_loadgen::scenario::Scenario;
use monolock_loadgen::settings::{Arrivals, Load};

fn load(seed: u64) -> Load {
    Load {
        scenario: Scenario::Steady,
        sessions: 1000,
        locks: 70,
        lease_ms: NonZeroU32::new(1000).expect("not zero"),
        rate: Some(5000.0),
        arrivals: Arrivals::Poisson,
        duration: Duration::from_secs(1),
        warmup: Duration::ZERO,
        hold: Duration::ZERO,
        ramp: Duration::from_secs(2),
        seed,
        threads: 1,
    }
}

fn arriving(load: &Load) -> Vec<Arrival> {
    Arriving::new(load, 5000.0).take(20_000).collect()
}

#[test]
fn a_seed_repeats_its_plan() {
    assert_eq!(arriving(&load(1)), arriving(&load(1)));
    assert_ne!(arriving(&load(1)), arriving(&load(2)));
    let settlers = |seed| plan::settlers(&load(seed)).collect::<Vec<_>>();
    assert_eq!(settlers(1), settlers(1));
    assert_ne!(settlers(1), settlers(2));
}

#[test]
fn arrivals_come_in_order_and_at_their_rate() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let plan = arriving(&Load { arrivals, ..load(3) });
        assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let secs = plan.last().expect("20,000").at.as_secs_f64();
        assert!((3.9..4.1).contains(&secs), "{arrivals:?}: {secs}");
        let mut of_lock = [0; 70];
        plan.iter().for_each(|arrival| of_lock[arrival.lock as usize] += 1);
        assert!(of_lock.iter().all(|count| (200..400).contains(count)), "{of_lock:?}");
    }
}

#[test]
fn settlers_fill_the_ramp_and_the_locks_evenly() {
    let load = load(4);
    let settlers: Vec<_> = plan::settlers(&load).collect();
    assert_eq!(settlers.len(), 1000);
    assert!(settlers.iter().all(|settler| settler.at < load.ramp));
    let mut of_lock = [0; 70];
    settlers.iter().for_each(|settler| of_lock[settler.lock as usize] += 1);
    assert!(of_lock.iter().all(|count| (14..=15).contains(count)), "{of_lock:?}");
}

#[test]
fn workers_share_locks_and_sessions_without_a_rest() {
    let load = load(5);
    for workers in 1..=70 {
        let mut sessions = vec![0; workers as usize];
        let mut locks = vec![0; workers as usize];
        for settler in plan::settlers(&load) {
            sessions[plan::worker_of(settler.lock, workers) as usize] += 1;
        }
        (0..load.locks).for_each(|lock| locks[plan::worker_of(lock, workers) as usize] += 1);
        for worker in 0..workers {
            let place = worker as usize;
            assert_eq!(plan::locks_of_worker(load.locks, worker, workers), locks[place]);
            assert_eq!(plan::sessions_of_worker(&load, worker, workers), sessions[place]);
        }
    }
}
