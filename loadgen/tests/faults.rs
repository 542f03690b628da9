//! The judge against servers that each break one promise: it must name that one, and no other. And
//! against one that keeps them all, where it must name none.

mod harness;

use harness::{FakeServer, Fault, load};
use monolock_loadgen::checker::Invariant;

/// Six sessions in one queue, each of which holds the lock for 20 ms.
const QUEUE: &str = "handover -c 6 -L 1 -l 2s --hold 20ms --ramp 50ms --warmup 0 -d 500ms";

/// Those that the run found broken, after checks of what is said about it.
#[track_caller]
fn broken_by(fault: Fault, words: &str) -> Vec<Invariant> {
    let server = FakeServer::start(fault);
    let (run, results) = load(&server, words);
    let broken: Vec<Invariant> = Invariant::ALL
        .into_iter()
        .zip(&results.invariants)
        .filter(|(_, result)| result.count > 0)
        .map(|(invariant, result)| {
            assert_eq!(result.name, invariant.name());
            assert!(run.stdout.contains(&result.first), "{run:?}");
            assert!(run.stdout.contains(&format!("BROKEN: {}", invariant.words())), "{run:?}");
            invariant
        })
        .collect();
    run.expect_exit(if broken.is_empty() { 0 } else { 1 });
    assert!(broken.is_empty() || run.exit_code == Some(1), "{run:?}");
    broken
}

#[test]
fn a_correct_server_is_not_accused() {
    assert_eq!(broken_by(Fault::None, QUEUE), []);
}

#[test]
fn a_correct_server_is_not_accused_of_what_a_crowd_does() {
    let crowd = "steady -c 24 -L 3 -l 1s --hold 1ms --warmup 0 -d 1500ms";
    assert_eq!(broken_by(Fault::None, crowd), []);
}

#[test]
fn two_holders_at_once_are_seen() {
    assert_eq!(broken_by(Fault::EverybodyHolds, QUEUE), [Invariant::TwoHolders]);
}

#[test]
fn a_smaller_token_is_seen() {
    assert_eq!(broken_by(Fault::TokenShrinks, QUEUE), [Invariant::TokenNotGrowing]);
}

#[test]
fn a_repeated_token_lets_a_past_holder_write() {
    let both = [Invariant::TokenNotGrowing, Invariant::StaleWriteAccepted];
    assert_eq!(broken_by(Fault::TokenRepeats, QUEUE), both);
}

#[test]
fn a_queue_in_another_order_is_seen() {
    assert_eq!(broken_by(Fault::LastInFirstOut, QUEUE), [Invariant::FifoBroken]);
}

#[test]
fn a_missing_promotion_is_seen() {
    let queue = "handover -c 6 -L 1 -l 2s --ramp 50ms --warmup 0 -d 2s";
    assert_eq!(broken_by(Fault::NobodyPromoted, queue), [Invariant::PromotionMissing]);
}

#[test]
fn a_grant_before_the_old_lease_ran_out_is_seen() {
    let queue = "handover -c 4 -L 1 -l 2s --hold 10s --ramp 20ms --warmup 0 -d 2500ms";
    assert_eq!(broken_by(Fault::HolderClosedEarly, queue), [Invariant::GrantBeforeExpiry]);
}
