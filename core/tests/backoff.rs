//! When a client comes back, by what has happened to it.

use std::time::Duration;

use monolock_core::backoff::{Backoff, WAIT_MAX, WAIT_MIN};
use monolock_core::claim::Loss;
use monolock_core::wire::{ErrorCode, UnknownServerFrame};
use proptest::prelude::*;

const SHUT_DOWN: Loss = Loss::Refused(ErrorCode::SHUTTING_DOWN);

/// The shortest and the longest of each wait in a row.
fn waits_in_vain(random: u32) -> Vec<u128> {
    let mut backoff = Backoff::new();
    let loss = Loss::Disconnected;
    (0..8).map(|_| backoff.after_loss(loss, random).expect("it comes back").as_millis()).collect()
}

#[test]
fn waits_double_from_100_ms_and_end_at_5_s() {
    assert_eq!(waits_in_vain(0), [100, 200, 400, 800, 1600, 2500, 2500, 2500]);
    assert_eq!(waits_in_vain(u32::MAX), [199, 399, 799, 1599, 3199, 4999, 4999, 4999]);
}

#[test]
fn a_failed_dial_counts_like_a_lost_connection() {
    let mut backoff = Backoff::new();
    assert_eq!(backoff.after_failed_dial(0), WAIT_MIN);
    assert_eq!(backoff.after_loss(Loss::EndOfStream, 0), Some(WAIT_MIN * 2));
    assert_eq!(backoff.after_failed_dial(0), WAIT_MIN * 4);
}

#[test]
fn an_answer_begins_anew() {
    let mut backoff = Backoff::new();
    for _ in 0..5 {
        backoff.after_failed_dial(0);
    }
    backoff.answered();
    assert_eq!(backoff, Backoff::new());
    assert_eq!(backoff.after_loss(Loss::Silence, 0), Some(WAIT_MIN));
}

#[test]
fn a_shutdown_is_followed_at_once_and_only_once() {
    let mut backoff = Backoff::new();
    assert_eq!(backoff.after_loss(SHUT_DOWN, u32::MAX), Some(Duration::ZERO));
    // The next one refuses too: without a wait this would be a loop as fast as the network.
    assert_eq!(backoff.after_loss(SHUT_DOWN, 0), Some(WAIT_MIN));
    assert_eq!(backoff.after_loss(SHUT_DOWN, 0), Some(WAIT_MIN * 2));
    backoff.answered();
    assert_eq!(backoff.after_loss(SHUT_DOWN, 0), Some(Duration::ZERO));
}

#[test]
fn a_shutdown_after_failures_is_followed_at_once_too() {
    let mut backoff = Backoff::new();
    backoff.after_failed_dial(0);
    assert_eq!(backoff.after_loss(SHUT_DOWN, 0), Some(Duration::ZERO));
}

#[test]
fn a_client_error_and_a_stranger_are_final() {
    let finals = [
        Loss::Refused(ErrorCode::NOT_AUTHORIZED),
        // Codes that nobody knows yet go by their range.
        Loss::Refused(ErrorCode::new(0xf0)),
        Loss::Unintelligible(UnknownServerFrame(0x48)),
        Loss::Contradiction,
    ];
    for loss in finals {
        assert_eq!(Backoff::new().after_loss(loss, 0), None, "{loss:?}");
    }
}

#[test]
fn an_administrators_kick_and_an_unknown_server_condition_are_waited_for() {
    for code in [ErrorCode::CLOSED_BY_ADMINISTRATOR, ErrorCode::new(0x0f)] {
        assert_eq!(Backoff::new().after_loss(Loss::Refused(code), 0), Some(WAIT_MIN));
    }
}

proptest! {
    #[test]
    fn every_wait_is_within_the_bounds(randoms in proptest::collection::vec(any::<u32>(), 1..50)) {
        let mut backoff = Backoff::new();
        for random in randoms {
            let wait = backoff.after_failed_dial(random);
            prop_assert!((WAIT_MIN..=WAIT_MAX).contains(&wait), "{wait:?}");
        }
    }
}
