//! The same seed gives the same plan, and the plan is what was asked for.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::time::Instant;
use monolock_loadgen::checker::Who;
use monolock_loadgen::lengths::{LengthRange, Lengths};
use monolock_loadgen::pause_plan::PausePlan;
use monolock_loadgen::plan::{self, Arrival, Arriving};
use monolock_loadgen::resource::Choice;
use monolock_loadgen::scenario::Scenario;
use monolock_loadgen::script::Share;
use monolock_loadgen::settings::{Arrivals, Load, Pauses};

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
        hold: Duration::ZERO.into(),
        ramp: Duration::from_secs(2),
        seed,
        threads: 1,
        pauses: None,
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

/// All pauses of the first four seconds, by lock, length and time, in order. A lock that has lost
/// its holder has another one at once.
fn pauses(load: &Load, workers: u32) -> Vec<(u64, Duration, Instant)> {
    let range = load.pauses.as_ref().expect("they are given").lengths;
    let mut pauses = Vec::new();
    for worker in 0..workers {
        let start = Instant::from_nanos(0);
        let sessions = plan::sessions_of_worker(load, worker, workers);
        let share = Share { worker, workers, start, sessions };
        let mut plan = PausePlan::new(load, range, share);
        let locks = plan::locks_of_worker(load.locks, worker, workers);
        let who = |index| Who { index, generation: 1 };
        (0..locks).for_each(|lock| plan.works(lock, who(lock), start));
        let end = start.after(Duration::from_secs(4));
        while plan.next_at() < end {
            let now = plan.next_at();
            while let Some(pause) = plan.next(now) {
                assert_eq!(pause.who, who(pause.lock));
                pauses.push((share.number(pause.lock), pause.length, pause.intended));
                plan.works(pause.lock, pause.who, now);
            }
        }
    }
    pauses.sort();
    pauses
}

#[test]
fn the_same_seed_gives_the_same_pauses_on_any_number_of_threads() {
    let (shortest, longest) = (Duration::from_millis(100), Duration::from_millis(300));
    let with = |seed, rate| {
        let pauses = Pauses {
            lengths: LengthRange { shortest, longest },
            are_real: false,
            write_every: Duration::from_millis(10),
            resource: Choice::Memory,
            is_fenced: true,
        };
        let hold = Duration::from_millis(500);
        let (scenario, ramp) = (Scenario::GcPause, Duration::ZERO);
        Load { rate, hold: hold.into(), ramp, scenario, pauses: Some(pauses), ..load(seed) }
    };
    for rate in [Some(100.0), None] {
        let alone = pauses(&with(1, rate), 1);
        assert!(alone.len() > 300, "{}", alone.len());
        assert!(alone.iter().all(|(_, length, _)| (shortest..=longest).contains(length)));
        let lengths: BTreeSet<_> = alone.iter().map(|(_, length, _)| length).collect();
        assert!(lengths.len() > alone.len() - 5, "they are drawn");
        assert_eq!(pauses(&with(1, rate), 1), alone);
        assert_eq!(pauses(&with(1, rate), 3), alone);
        assert_ne!(pauses(&with(2, rate), 1), alone);
    }
}

#[test]
fn a_pause_waits_for_a_holder() {
    let range = LengthRange { shortest: Duration::from_secs(1), longest: Duration::from_secs(1) };
    let one = Load { locks: 1, rate: Some(1.0), ..load(9) };
    let start = Instant::from_nanos(0);
    let share = Share { worker: 0, workers: 1, start, sessions: 4 };
    let mut plan = PausePlan::new(&one, range, share);
    let (now, who) = (start.after(Duration::from_secs(30)), Who { index: 3, generation: 7 });
    assert_eq!(plan.next(now), None, "nobody is there");
    plan.works(0, who, now);
    plan.lost(0, who);
    assert_eq!(plan.next(now), None, "nobody is there any more");
    plan.works(0, who, now);
    let pause = plan.next(now).expect("one is owed");
    assert!(pause.who == who && pause.intended < now);
    assert_eq!(plan.next(now), None, "it doesn't pause twice at once");
    plan.works(0, who, now);
    assert!(plan.next(now).is_some(), "and another one is owed");
}

#[test]
fn holds_are_drawn_for_each_lock_whichever_thread_has_it() {
    let range =
        LengthRange { shortest: Duration::from_millis(10), longest: Duration::from_millis(30) };
    let of_lock = |seed: u64, lock: u32, workers: u32| {
        let (worker, load) = (lock % workers, load(seed));
        let share = Share { worker, workers, start: Instant::from_nanos(0), sessions: 1000 };
        let mut lengths = Lengths::new(range, "holds", &load, share);
        (0..50).map(|_| lengths.next(lock / workers)).collect::<Vec<_>>()
    };
    let drawn = of_lock(1, 7, 1);
    assert_eq!(drawn, of_lock(1, 7, 3));
    assert_ne!(drawn, of_lock(2, 7, 1));
    assert_ne!(drawn, of_lock(1, 8, 1));
    assert!(drawn.iter().all(|length| (range.shortest..=range.longest).contains(length)));
    let middle = drawn.iter().filter(|length| **length < Duration::from_millis(20)).count();
    assert!((10..=40).contains(&middle), "{drawn:?}");
}
