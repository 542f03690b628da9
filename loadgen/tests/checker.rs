//! What looks wrong and isn't, and what is: the judge with histories made by hand.

use monolock_core::claim::Loss;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use monolock_core::wire::ErrorCode;
use monolock_loadgen::checker::{Checker, Invariant, ServerEnd, Who};

const A: Who = Who { index: 0, generation: 1 };
const B: Who = Who { index: 1, generation: 1 };
const C: Who = Who { index: 2, generation: 1 };

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn end(loss: Loss, confirmed_ms: u64) -> ServerEnd {
    let lease_ends_no_earlier_than = at(confirmed_ms + 1000);
    ServerEnd { loss, confirmed_at: at(confirmed_ms), lease_ends_no_earlier_than }
}

/// A holds since 1 ms; B waits since 10 ms.
fn holder_and_waiter() -> Checker {
    let mut checker = Checker::new(1);
    checker.granted(0, A, token(1), at(0), at(1));
    checker.queued(0, B, at(10));
    checker
}

#[track_caller]
fn expect(checker: Checker, expected: &[Invariant]) {
    let findings = checker.into_findings();
    let broken: Vec<_> = Invariant::ALL
        .into_iter()
        .zip(&findings)
        .filter(|(_, finding)| finding.count > 0)
        .map(|(invariant, _)| invariant)
        .collect();
    assert_eq!(broken, expected, "{findings:?}");
}

#[test]
fn two_holders_are_a_verdict_only_when_the_first_one_is_told_again() {
    let mut checker = holder_and_waiter();
    checker.granted(0, B, token(2), at(9), at(50));
    assert_eq!(checker.take_questions(), [A]);
    assert!(checker.is_witness(A) && checker.is_undecided());
    // An answer to what was sent before the grant was known may have crossed with A's end.
    checker.confirmed(A, at(49), at(51));
    assert_eq!(checker.take_questions(), [A], "asked again");
    checker.confirmed(A, at(52), at(53));
    assert!(!checker.is_undecided());
    expect(checker, &[Invariant::TwoHolders]);
}

#[test]
fn a_holder_whose_end_arrives_late_is_no_second_holder() {
    for loss in
        [Loss::Refused(ErrorCode::CLOSED_BY_ADMINISTRATOR), Loss::Refused(ErrorCode::SHUTTING_DOWN)]
    {
        let mut checker = holder_and_waiter();
        checker.granted(0, B, token(2), at(9), at(50));
        checker.ended(0, A, end(loss, 40), at(51));
        expect(checker, &[]);
    }
}

#[test]
fn a_silent_end_before_the_lease_is_over_is_early_in_either_order() {
    let mut grant_first = holder_and_waiter();
    grant_first.granted(0, B, token(2), at(9), at(50));
    grant_first.ended(0, A, end(Loss::EndOfStream, 40), at(51));
    expect(grant_first, &[Invariant::GrantBeforeExpiry]);
    let mut end_first = holder_and_waiter();
    end_first.ended(0, A, end(Loss::EndOfStream, 40), at(49));
    end_first.granted(0, B, token(2), at(9), at(50));
    expect(end_first, &[Invariant::GrantBeforeExpiry]);
}

#[test]
fn a_silent_end_after_the_lease_is_an_expiry() {
    let mut checker = holder_and_waiter();
    checker.ended(0, A, end(Loss::EndOfStream, 40), at(1041));
    checker.granted(0, B, token(2), at(9), at(1042));
    expect(checker, &[]);
}

#[test]
fn a_sleeper_that_was_never_told_was_succeeded_too_early_or_in_time() {
    let succeeded_at = |ms| {
        let mut checker = holder_and_waiter();
        checker.granted(0, B, token(2), at(9), at(ms));
        checker.overslept(0, A, end(Loss::Silence, 40), at(2000));
        assert!(!checker.is_undecided());
        checker
    };
    expect(succeeded_at(1039), &[Invariant::GrantBeforeExpiry]);
    expect(succeeded_at(1040), &[]);
    // What it gives up itself may be granted at once.
    let mut nobody_yet = holder_and_waiter();
    nobody_yet.overslept(0, A, end(Loss::Silence, 40), at(900));
    nobody_yet.granted(0, B, token(2), at(9), at(901));
    expect(nobody_yet, &[]);
}

#[test]
fn a_server_that_was_killed_and_started_again_is_not_accused() {
    // A hears of its end only after the new process has queued B behind C, and promoted it.
    let mut checker = Checker::new(1);
    checker.granted(0, A, token(1), at(0), at(1));
    checker.granted(0, C, token(2), at(60), at(61));
    checker.queued(0, B, at(62));
    checker.ended(0, A, end(Loss::Disconnected, 40), at(63));
    checker.released(0, C, at(64));
    checker.granted(0, B, token(3), at(61), at(65));
    expect(checker, &[]);
}

#[test]
fn the_order_of_claims_that_overlap_is_nobodys_business() {
    let mut checker = holder_and_waiter();
    // C asked at 9 ms, before B was told that it waits, so nobody knows who was first.
    checker.queued(0, C, at(11));
    checker.released(0, A, at(20));
    checker.granted(0, C, token(2), at(9), at(21));
    assert!(!checker.is_undecided());
    expect(checker, &[]);
}

#[test]
fn one_that_was_surely_first_is_overtaken_unless_it_was_ended() {
    let overtaken = || {
        let mut checker = holder_and_waiter();
        checker.queued(0, C, at(12));
        checker.released(0, A, at(20));
        checker.granted(0, C, token(2), at(11), at(21));
        assert_eq!(checker.take_questions(), [B]);
        checker
    };
    let mut waits_on = overtaken();
    waits_on.confirmed(B, at(22), at(23));
    expect(waits_on, &[Invariant::FifoBroken]);
    let mut granted_late = overtaken();
    granted_late.released(0, C, at(22));
    granted_late.granted(0, B, token(3), at(9), at(23));
    expect(granted_late, &[Invariant::FifoBroken]);
    let mut ended = overtaken();
    let kicked = Loss::Refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    ended.ended(0, B, end(kicked, 10), at(22));
    expect(ended, &[]);
    let mut left = overtaken();
    left.released(0, B, at(22));
    expect(left, &[]);
}

#[test]
fn a_free_lock_is_asked_about_after_a_second() {
    let mut missing = holder_and_waiter();
    missing.released(0, A, at(20));
    missing.turn(at(1019));
    assert!(!missing.is_undecided());
    missing.turn(at(1020));
    assert_eq!(missing.take_questions(), [B]);
    missing.confirmed(B, at(1021), at(1022));
    expect(missing, &[Invariant::PromotionMissing]);

    let mut late = holder_and_waiter();
    late.released(0, A, at(20));
    late.turn(at(1020));
    // The promotion was on its way, and is not called missing, though late.
    late.granted(0, B, token(2), at(9), at(1021));
    late.confirmed(B, at(1022), at(1023));
    expect(late, &[]);
}

#[test]
fn tokens_are_compared_only_with_those_that_were_given_back() {
    let mut checker = holder_and_waiter();
    // A's end was the server's doing, so B's grant may have been made before A's was read.
    let kicked = Loss::Refused(ErrorCode::CLOSED_BY_ADMINISTRATOR);
    checker.ended(0, A, end(kicked, 0), at(20));
    checker.granted(0, B, token(5), at(9), at(21));
    checker.released(0, B, at(22));
    checker.granted(0, C, token(5), at(23), at(24));
    expect(checker, &[Invariant::TokenNotGrowing, Invariant::StaleWriteAccepted]);
}
