//! Servers that take over from each other, with histories made by hand: what is wrong with their
//! tokens, and what is merely an overlap.

use monolock_core::claim::Loss;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use monolock_loadgen::checker::{Invariant, ServerEnd, Who};
use monolock_loadgen::judges::Judges;
use monolock_loadgen::succession::Overlap;

const A: Who = Who { index: 0, generation: 1 };
const B: Who = Who { index: 1, generation: 1 };
const C: Who = Who { index: 2, generation: 1 };

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn judges() -> Judges {
    Judges::new(1, true)
}

/// A session asks, and is granted the lock at once.
fn grant(judges: &mut Judges, who: Who, server: u32, token: u64, asked_ms: u64, read_ms: u64) {
    judges.answered(who, server);
    let token = Token::new(token).expect("not zero");
    judges.granted(0, who, token, at(asked_ms), at(read_ms));
}

/// A session's connection breaks.
fn break_off(judges: &mut Judges, who: Who, ms: u64) {
    let end = ServerEnd {
        loss: Loss::Disconnected,
        confirmed_at: at(ms - 1),
        lease_ends_no_earlier_than: at(ms + 1000),
    };
    judges.ended(0, who, end, at(ms), at(ms));
}

#[track_caller]
fn expect(judges: Judges, expected: &[(Invariant, u64)]) {
    let findings = judges.into_findings();
    let found: Vec<_> = Invariant::ALL
        .into_iter()
        .zip(&findings)
        .filter(|(_, finding)| finding.count > 0)
        .map(|(invariant, finding)| (invariant, finding.count))
        .collect();
    assert_eq!(found, expected, "{findings:?}");
}

#[test]
fn a_smaller_token_of_the_next_server_is_found_until_its_clock_has_caught_up() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 1);
    break_off(&mut judges, A, 10);
    for (who, token, ms) in [(B, 900, 20), (C, 1000, 30), (A, 1001, 40)] {
        let who = Who { generation: 2, ..who };
        grant(&mut judges, who, 1, token, ms, ms + 1);
        judges.released(0, who, at(ms + 2), at(ms + 2));
    }
    let next = judges.servers()[1];
    assert_eq!((next.grants, next.behind, next.grown_since), (3, 2, 1));
    assert_eq!(next.behind_until, Some(at(31)));
    expect(judges, &[(Invariant::TokenNotGrowing, 2)]);
}

#[test]
fn grants_whose_order_nobody_knows_are_not_compared() {
    let mut judges = judges();
    // B asked before A's grant was read, so its own may be the earlier one.
    grant(&mut judges, A, 0, 1000, 0, 50);
    grant(&mut judges, B, 1, 900, 49, 60);
    break_off(&mut judges, A, 70);
    judges.released(0, B, at(71), at(71));
    assert_eq!(judges.servers()[1].behind, 0);
    expect(judges, &[]);
}

#[test]
fn a_waiters_grant_came_after_it_was_told_to_wait() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 1);
    break_off(&mut judges, A, 10);
    grant(&mut judges, B, 1, 2000, 20, 21);
    // It asked before A's grant was read; its WAITING came later, and its grant later still.
    judges.answered(C, 1);
    judges.queued(0, C, at(22));
    judges.released(0, B, at(30), at(30));
    judges.granted(0, C, Token::new(999).expect("not zero"), at(0), at(31));
    judges.released(0, C, at(32), at(32));
    // Below the token of its own server too, which that one's judge finds.
    expect(judges, &[(Invariant::TokenNotGrowing, 2)]);
}

#[test]
fn a_server_that_wakes_up_is_compared_with_its_successor() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 1);
    grant(&mut judges, B, 1, 5000, 20, 21);
    judges.released(0, B, at(30), at(30));
    judges.released(0, A, at(31), at(31));
    grant(&mut judges, C, 0, 1001, 40, 41);
    judges.released(0, C, at(42), at(42));
    expect(judges, &[(Invariant::TokenNotGrowing, 1)]);
}

#[test]
fn holders_of_two_servers_overlap_and_break_nothing() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 10);
    grant(&mut judges, B, 1, 2000, 90, 100);
    // The old server still answers, and knows nothing of the new one.
    judges.confirmed(A, at(120), at(121));
    assert!(!judges.is_undecided() && judges.take_questions().is_empty());
    assert_eq!(judges.take_overlaps(), [], "it isn't over");
    judges.released(0, A, at(150), at(150));
    assert_eq!(judges.take_overlaps(), [Overlap { since: at(100), until: at(150) }]);
    judges.released(0, B, at(200), at(200));
    assert_eq!(judges.take_overlaps(), []);
    expect(judges, &[]);
}

#[test]
fn holders_of_one_server_are_that_servers_business() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 10);
    grant(&mut judges, B, 0, 1001, 90, 100);
    assert_eq!(judges.take_questions(), [A]);
    assert!(judges.is_witness(A));
    judges.confirmed(A, at(120), at(121));
    judges.released(0, A, at(150), at(150));
    assert_eq!(judges.take_overlaps(), []);
    expect(judges, &[(Invariant::TwoHolders, 1)]);
}

#[test]
fn a_holder_believes_for_no_longer_than_its_rules_permit() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 10);
    grant(&mut judges, B, 1, 2000, 90, 100);
    // It should have given up at 130 ms, and we come to that at 500 ms.
    judges.released(0, A, at(130), at(500));
    assert_eq!(judges.take_overlaps(), [Overlap { since: at(100), until: at(130) }]);
    // One that gave up before the next grant overlaps with nobody.
    grant(&mut judges, C, 2, 3000, 510, 520);
    judges.released(0, B, at(515), at(530));
    assert_eq!(judges.take_overlaps(), []);
    // Who holds at the end is looked at no further.
    grant(&mut judges, A, 3, 4000, 540, 550);
    judges.finish(at(600));
    assert_eq!(judges.take_overlaps(), [Overlap { since: at(550), until: at(600) }]);
    expect(judges, &[]);
}

#[test]
fn what_was_found_of_a_server_outlives_its_sessions() {
    let mut judges = judges();
    grant(&mut judges, A, 0, 1000, 0, 10);
    judges.released(0, A, at(20), at(20));
    grant(&mut judges, B, 0, 1000, 30, 31);
    grant(&mut judges, C, 1, 2000, 50, 51);
    judges.released(0, B, at(60), at(60));
    judges.released(0, C, at(61), at(61));
    let both = [(Invariant::TokenNotGrowing, 1), (Invariant::StaleWriteAccepted, 1)];
    expect(judges, &both);
}

#[test]
fn a_session_that_was_never_answered_is_nobodys() {
    let mut judges = judges();
    assert_eq!(judges.server_of(A), None);
    break_off(&mut judges, A, 10);
    judges.released(0, B, at(11), at(11));
    expect(judges, &[]);
}

#[test]
fn the_elders_of_many_servers_are_all_remembered() {
    let mut judges = judges();
    for server in 0..20 {
        let (who, ms) = (Who { index: server, generation: 1 }, u64::from(server) * 10);
        grant(&mut judges, who, server, 1000 + u64::from(server), ms, ms + 1);
        judges.released(0, who, at(ms + 2), at(ms + 2));
    }
    // Below the fifth server's, and so below all after it.
    grant(&mut judges, A, 20, 1004, 300, 301);
    judges.released(0, A, at(302), at(302));
    expect(judges, &[(Invariant::TokenNotGrowing, 1)]);
}
