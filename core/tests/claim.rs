//! The client's half of a claim: its schedule, its end, and what it makes of frames.

use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::claim::{Claim, Due, Loss, News, Standing};
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use monolock_core::wire::{ERROR, ErrorCode, UnknownServerFrame, WAITING, encode_standing};
use proptest::collection::vec;
use proptest::prelude::*;

const LEASE_MS: u32 = 2000;

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn claim_of(lease_ms: u32) -> Claim {
    Claim::new(NonZeroU32::new(lease_ms).expect("not zero"), at_ms(0))
}

fn token(number: u64) -> Token {
    Token::new(number).expect("not zero")
}

fn acquired(number: u64) -> Vec<u8> {
    let mut frame = vec![0; 9];
    encode_standing(Some(token(number)), 1, &mut frame);
    frame
}

fn error(code: u8, reason: &str) -> Vec<u8> {
    let len = u8::try_from(reason.len()).expect("short");
    [&[ERROR, code, len], reason.as_bytes()].concat()
}

fn hear_all(claim: &mut Claim, mut bytes: &[u8], now: Instant) -> Vec<News> {
    std::iter::from_fn(|| claim.receive(&mut bytes, now)).collect()
}

/// A holder since 0 ms, with the first answer after `rtt_ms`.
fn holder(lease_ms: u32, rtt_ms: u64) -> Claim {
    let mut claim = claim_of(lease_ms);
    assert_eq!(hear_all(&mut claim, &acquired(7), at_ms(rtt_ms)), [News::Granted(token(7))]);
    claim
}

#[test]
fn heartbeats_are_a_quarter_of_the_lease_apart_less_twice_the_round_trip() {
    // (lease, round trip, interval) in ms.
    for (lease_ms, rtt_ms, interval_ms) in [
        (2000, 10, 480),
        (2000, 200, 100),
        (2000, 249, 100),
        // As soon as the answer is in.
        (2000, 250, 0),
        // Never less than 100 ms, or a quarter of the lease if that is less.
        (400, 30, 100),
        (200, 10, 50),
        (200, 25, 0),
    ] {
        let claim = holder(lease_ms, rtt_ms);
        assert_eq!(claim.interval(), Duration::from_millis(interval_ms), "{lease_ms} {rtt_ms}");
        assert_eq!(claim.heartbeat_at(), at_ms(interval_ms), "from send to send");
    }
}

#[test]
fn the_round_trip_is_smoothed_by_a_fifth() {
    let mut claim = holder(LEASE_MS, 10);
    assert_eq!(claim.pass(at_ms(480)), Some(Due::Heartbeat));
    assert_eq!(hear_all(&mut claim, &acquired(7), at_ms(500)), [News::Standing]);
    assert_eq!(claim.rtt(), Duration::from_millis(12));
}

#[test]
fn one_heartbeat_at_most_is_in_flight() {
    let mut claim = holder(LEASE_MS, 10);
    assert_eq!(claim.pass(at_ms(479)), None);
    assert_eq!(claim.pass(at_ms(480)), Some(Due::Heartbeat));
    assert!(claim.is_in_flight() && !claim.send_early(at_ms(481)));
    assert_eq!(claim.pass(at_ms(1500)), None);
    assert_eq!(claim.deadline(), at_ms(1600), "nothing but giving up is left to do");
}

#[test]
fn it_is_given_up_after_four_fifths_of_the_lease_from_the_send_of_what_was_confirmed() {
    let mut claim = holder(LEASE_MS, 10);
    assert_eq!(claim.give_up_at(), at_ms(1600));
    assert_eq!(claim.pass(at_ms(480)), Some(Due::Heartbeat));
    assert_eq!(claim.give_up_at(), at_ms(1600), "what is sent isn't confirmed");
    hear_all(&mut claim, &acquired(7), at_ms(900));
    assert_eq!(claim.give_up_at(), at_ms(480 + 1600), "from the send, not from the answer");
    assert_eq!(claim.lease_ends_no_earlier_than(), at_ms(480 + 2000));
    assert_eq!(claim.pass(at_ms(2079)), Some(Due::Heartbeat));
    assert_eq!(claim.pass(at_ms(2080)), Some(Due::Lost(Loss::Silence)));
    assert_eq!(claim.standing(), Standing::Lost(Loss::Silence));
    assert_eq!((claim.pass(at_ms(9999)), claim.deadline()), (None, Instant::NEVER));
    assert_eq!(hear_all(&mut claim, &acquired(7), at_ms(2081)), [], "too late is too late");
}

#[test]
fn the_handshake_has_the_same_patience() {
    let mut claim = claim_of(LEASE_MS);
    assert_eq!(claim.deadline(), at_ms(1600));
    assert_eq!(claim.pass(at_ms(1599)), None, "no heartbeat before the first answer");
    assert_eq!(claim.pass(at_ms(1600)), Some(Due::Lost(Loss::Silence)));
}

#[test]
fn a_promotion_frees_the_way_but_does_not_confirm_what_it_crossed_with() {
    let mut claim = claim_of(LEASE_MS);
    assert_eq!(hear_all(&mut claim, &[WAITING], at_ms(10)), [News::Queued]);
    assert_eq!(claim.pass(at_ms(480)), Some(Due::Heartbeat));
    assert_eq!(hear_all(&mut claim, &acquired(7), at_ms(485)), [News::Granted(token(7))]);
    assert_eq!(claim.confirmed_at(), at_ms(0), "the server may not have read the heartbeat");
    assert!(!claim.is_in_flight());
    assert_eq!(hear_all(&mut claim, &acquired(7), at_ms(490)), [News::Standing]);
    assert_eq!(claim.confirmed_at(), at_ms(480));
}

#[test]
fn a_server_that_merges_promotion_and_answer_is_borne() {
    let mut claim = claim_of(LEASE_MS);
    hear_all(&mut claim, &[WAITING], at_ms(10));
    assert_eq!(claim.pass(at_ms(480)), Some(Due::Heartbeat));
    // The only answer to that heartbeat.
    hear_all(&mut claim, &acquired(7), at_ms(490));
    for beat in 2..50 {
        let now = claim.heartbeat_at();
        assert!(now <= at_ms(beat * 500), "{now:?}");
        assert_eq!(claim.pass(now), Some(Due::Heartbeat));
        assert_eq!(hear_all(&mut claim, &acquired(7), now), [News::Standing]);
    }
}

#[test]
fn a_second_answer_to_the_acquire_changes_nothing() {
    let twice = [acquired(7), acquired(7)].concat();
    let mut claim = claim_of(LEASE_MS);
    let news = hear_all(&mut claim, &twice, at_ms(10));
    assert_eq!(news, [News::Granted(token(7)), News::Standing]);
    assert_eq!(claim.confirmed_at(), at_ms(0));
}

#[test]
fn an_error_ends_the_claim_and_keeps_its_words() {
    for pieces in [1, 3, 100] {
        let mut claim = holder(LEASE_MS, 10);
        let frame = error(0x02, "kicked");
        let news: Vec<_> =
            frame.chunks(pieces).flat_map(|piece| hear_all(&mut claim, piece, at_ms(20))).collect();
        assert_eq!(news, [News::Lost(Loss::Refused(ErrorCode::CLOSED_BY_ADMINISTRATOR))]);
        assert_eq!(claim.reason(), b"kicked");
    }
}

#[test]
fn the_first_end_is_the_one_that_counts() {
    let mut claim = holder(LEASE_MS, 10);
    assert_eq!(claim.end(Loss::EndOfStream), Loss::EndOfStream);
    assert_eq!(claim.end(Loss::Disconnected), Loss::EndOfStream);
    assert_eq!(claim.reason(), b"");
}

#[test]
fn what_no_server_says_ends_the_claim() {
    let mut claim = claim_of(LEASE_MS);
    let news = hear_all(&mut claim, b"HTTP/1.1 400", at_ms(1));
    assert_eq!(news, [News::Lost(Loss::Unintelligible(UnknownServerFrame(b'H')))]);
    for contradiction in [vec![WAITING], acquired(8)] {
        let mut claim = holder(LEASE_MS, 10);
        let news = hear_all(&mut claim, &contradiction, at_ms(20));
        assert_eq!(news, [News::Lost(Loss::Contradiction)]);
    }
}

#[test]
fn the_longest_lease_does_not_overflow() {
    let claim = holder(u32::MAX, 1);
    assert!(claim.heartbeat_at() < claim.give_up_at());
    assert!(claim.give_up_at() < claim.lease_ends_no_earlier_than());
}

/// What a model server does between two looks of its client.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes.
    Pass { ms: u64 },
    /// The server reads everything sent so far, and answers.
    Serve,
    /// The answers arrive.
    Deliver,
    /// The holder before leaves.
    Promote,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..300u64).prop_map(|ms| Step::Pass { ms }),
        4 => Just(Step::Serve),
        4 => Just(Step::Deliver),
        1 => Just(Step::Promote),
    ]
}

/// A server that keeps time as the specification says, at the other end of two slow wires.
struct Model {
    unread: u32,
    answers: Vec<u8>,
    is_promoted: bool,
    /// The lease counts from here.
    last_seen: Instant,
}

proptest! {
    /// Whatever is slow, and whenever the promotion comes: while the client thinks that it holds
    /// the lock, the server has not ended its lease.
    #[test]
    fn the_client_always_stops_before_the_server(steps in vec(step(), 1..200)) {
        let mut now = at_ms(0);
        let mut claim = claim_of(LEASE_MS);
        let mut server =
            Model { unread: 1, answers: Vec::new(), is_promoted: false, last_seen: now };
        for step in steps {
            match step {
                Step::Pass { ms } => now = now.after(Duration::from_millis(ms)),
                Step::Serve => {
                    if server.unread > 0 {
                        server.last_seen = now;
                    }
                    for _ in 0..std::mem::take(&mut server.unread) {
                        let answer = if server.is_promoted { acquired(7) } else { vec![WAITING] };
                        server.answers.extend(answer);
                    }
                }
                Step::Deliver => {
                    let answers = std::mem::take(&mut server.answers);
                    hear_all(&mut claim, &answers, now);
                }
                Step::Promote => {
                    if !server.is_promoted && server.unread == 0 {
                        server.is_promoted = true;
                        server.answers.extend(acquired(7));
                    }
                }
            }
            if claim.pass(now) == Some(Due::Heartbeat) {
                server.unread += 1;
            }
            if matches!(claim.standing(), Standing::Holding(_)) {
                prop_assert!(now < server.last_seen.after_ms(LEASE_MS));
                prop_assert!(claim.confirmed_at() <= server.last_seen);
            }
            prop_assert!(server.unread <= 2, "one in flight, and one that a promotion overtook");
        }
    }

    /// However the bytes are cut, they mean the same.
    #[test]
    fn frames_may_come_in_any_pieces(
        waits in 0..4usize,
        beats in 0..4usize,
        reason in "[a-z]{0,255}",
        cuts in vec(1..40usize, 1..60),
    ) {
        let bytes = [
            vec![WAITING; waits],
            acquired(9).repeat(1 + beats),
            error(0x01, &reason),
            vec![0xff; 3],
        ].concat();
        let mut whole = claim_of(LEASE_MS);
        let expected = hear_all(&mut whole, &bytes, at_ms(1));
        let mut claim = claim_of(LEASE_MS);
        let (mut rest, mut news) = (bytes.as_slice(), Vec::new());
        for len in cuts.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at(len.min(rest.len()));
            news.extend(hear_all(&mut claim, piece, at_ms(1)));
            rest = behind;
        }
        prop_assert_eq!(news, expected);
        prop_assert_eq!(claim.reason(), reason.as_bytes());
    }

    /// Arbitrary bytes end a claim or not, but never more than that.
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..600)) {
        let mut claim = claim_of(LEASE_MS);
        let news = hear_all(&mut claim, &bytes, at_ms(1));
        let ends = news.iter().filter(|news| matches!(news, News::Lost(_))).count();
        prop_assert!(ends <= 1);
    }
}
