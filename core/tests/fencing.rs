//! Tokens only grow, whatever the clock does and however many threads ask.

use std::collections::BTreeSet;
use std::thread;

use monolock_core::fencing::{Token, TokenMint};
use monolock_core::time::UnixTime;
use proptest::collection::vec;
use proptest::prelude::*;

/// 2^33 seconds after 1970: 2242-03-16 12:56:32 UTC.
const TOKENS_REACH_53_BITS_AT_SECS: u64 = 1 << 33;

fn wall_clock() -> impl Strategy<Value = UnixTime> {
    let secs = prop_oneof![
        4 => 1_786_190_400..1_786_190_403u64,
        1 => Just(0u64),
        1 => 0..TOKENS_REACH_53_BITS_AT_SECS,
    ];
    let subsec_nanos = prop_oneof![1 => Just(0), 1 => Just(999_999_999), 4 => 0..1_000_000_000u32];
    (secs, subsec_nanos).prop_map(|(secs, subsec_nanos)| UnixTime::new(secs, subsec_nanos))
}

fn mint(mint: &TokenMint, clock: UnixTime) -> Token {
    mint.mint(clock).expect("the mint is not sealed")
}

/// The formula with room to spare: units of 2^-20 s since 1970, rounded down.
fn clock_number(clock: UnixTime) -> u128 {
    let nanos = u128::from(clock.secs()) * 1_000_000_000 + u128::from(clock.subsec_nanos());
    nanos * (1 << 20) / 1_000_000_000
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_token_is_the_clock_or_one_more_than_the_last(clocks in vec(wall_clock(), 1..50)) {
        let fresh = TokenMint::new();
        prop_assert_eq!(fresh.last(), None);
        let mut last = 0;
        for clock in clocks {
            let expected = (last + 1).max(clock_number(clock));
            let token = mint(&fresh, clock);
            prop_assert_eq!(u128::from(token.get()), expected);
            prop_assert_eq!(fresh.last(), Some(token));
            last = expected;
        }
    }

    #[test]
    fn a_grants_unix_second_stands_in_its_token(clock in wall_clock()) {
        let token = mint(&TokenMint::new(), clock);
        prop_assert!(token.unix_secs() == clock.secs() || token.get() == 1);
    }

    #[test]
    fn a_new_process_goes_on_above_the_old_one_once_the_clock_is_past_its_last_token(
        clocks in vec(wall_clock(), 1..50),
        restart in wall_clock(),
    ) {
        let old = TokenMint::new();
        for clock in clocks {
            mint(&old, clock);
        }
        let (last, new) = (old.last().expect("it granted"), mint(&TokenMint::new(), restart));
        prop_assert_eq!(new > last, clock_number(restart).max(1) > u128::from(last.get()));
        if old.ahead_seconds(restart) > 0.0 {
            prop_assert!(new <= last, "the gauge told that a restart would break the sequence");
        }
    }

    #[test]
    fn ahead_seconds_is_how_far_the_last_token_is_ahead_of_the_clock(
        granted in wall_clock(),
        seen in wall_clock(),
    ) {
        let fresh = TokenMint::new();
        prop_assert!(fresh.ahead_seconds(seen) == 0.0, "nothing was granted");
        let token = u128::from(mint(&fresh, granted).get());
        let ahead = token.saturating_sub(clock_number(seen));
        prop_assert!(ahead < 1 << 53, "a float has room for it");
        let units_per_second = 1_048_576.0;
        prop_assert_eq!(fresh.ahead_seconds(seen), ahead as f64 / units_per_second);
    }

    #[test]
    fn tokens_stay_below_53_bits_until_2242(nanos in 0..1_000_000_000u32) {
        let last_second = UnixTime::new(TOKENS_REACH_53_BITS_AT_SECS - 1, nanos);
        prop_assert!(mint(&TokenMint::new(), last_second).get() < 1 << 53);
    }
}

#[test]
fn the_formula_by_examples() {
    let token =
        |secs, subsec_nanos| mint(&TokenMint::new(), UnixTime::new(secs, subsec_nanos)).get();
    assert_eq!(token(1_786_190_400, 0), 1_872_956_384_870_400);
    assert_eq!(token(1_786_190_400, 953), 1_872_956_384_870_400);
    assert_eq!(token(1_786_190_400, 954), 1_872_956_384_870_401);
    assert_eq!(token(1_786_190_400, 500_000_000), 1_872_956_385_394_688);
    assert_eq!(token(1_786_190_400, 999_999_999), 1_872_956_385_918_975);
    assert_eq!(token(0, 0), 1, "no token is zero");
    assert_eq!(token(TOKENS_REACH_53_BITS_AT_SECS, 0), 1 << 53, "2242 is over");
}

#[test]
fn more_grants_than_a_second_has_room_for_run_ahead_of_the_clock() {
    let (fresh, clock) = (TokenMint::new(), UnixTime::new(1_786_190_400, 0));
    for _ in 0..1 << 20 {
        assert_eq!(mint(&fresh, clock).unix_secs(), 1_786_190_400);
    }
    assert!(fresh.ahead_seconds(clock) < 1.0);
    assert_eq!(mint(&fresh, clock).unix_secs(), 1_786_190_401);
    assert!((fresh.ahead_seconds(clock) - 1.0).abs() < f64::EPSILON);
}

#[test]
fn threads_never_get_the_same_token_and_each_sees_its_own_grow() {
    const THREADS: usize = 8;
    const GRANTS: usize = 20_000;
    let shared = TokenMint::new();
    let grants = |thread: usize| {
        // Clocks that disagree: some threads mostly count on, some mostly jump ahead.
        let secs = |grant: usize| 1_786_190_400 + (grant / 500 * (thread % 3)) as u64;
        let tokens = (0..GRANTS).map(|grant| mint(&shared, UnixTime::new(secs(grant), 0)));
        tokens.collect::<Vec<Token>>()
    };
    let by_thread: Vec<Vec<Token>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || grants(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for tokens in &by_thread {
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
    }
    let different: BTreeSet<Token> = by_thread.iter().flatten().copied().collect();
    assert_eq!(different.len(), THREADS * GRANTS);
    assert_eq!(shared.last(), different.last().copied());
}

#[test]
fn a_sealed_mint_gives_none_and_remembers_the_last_on_every_thread() {
    let (shared, clock) = (TokenMint::new(), UnixTime::new(1_786_190_400, 0));
    let grants = || std::iter::from_fn(|| shared.mint(clock)).collect::<Vec<Token>>();
    let by_thread: Vec<Vec<Token>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(grants)).collect();
        while shared.last().is_none() {
            thread::yield_now();
        }
        shared.seal();
        let last = shared.last();
        let by_thread = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        let by_thread = by_thread.collect();
        assert_eq!(shared.last(), last, "nothing was minted after the seal");
        by_thread
    });
    assert_eq!(by_thread.iter().flatten().max().copied(), shared.last());
    assert!(shared.ahead_seconds(clock) < 60.0, "the seal is no part of the last token");
    shared.seal();
    assert_eq!(shared.mint(clock), None);
}
