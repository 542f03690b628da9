//! Fencing tokens: a number with every grant, larger than all before, by which the guarded resource
//! can turn away a holder that slept through its lease.
//!
//! A token is the wall clock at the grant in units of 2^-20 seconds, or the last token and one if
//! that is more. So nothing has to be kept on disk for tokens to grow over a restart, as long as
//! the clock has not stepped back (`docs/guide/fencing-tokens.md` has the bounds).

use core::fmt;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::time::UnixTime;

/// The unix second of a grant stands above this many bits of its token.
pub const TOKEN_FRACTION_BITS: u32 = 20;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The fencing token of one grant. Only tokens of the same lock are worth comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The token with this number; none is zero.
    pub const fn new(number: u64) -> Option<Token> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Token(number)),
            None => None,
        }
    }

    /// The number that goes over the wire.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// About when the token was granted: the unix second inside it.
    pub const fn unix_secs(self) -> u64 {
        self.get() >> TOKEN_FRACTION_BITS
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Set in the last token of a mint that gives no more; no token has so many bits before the year
/// 278,000.
const SEALED: u64 = 1 << 63;

/// Where all tokens of a server come from, shared by all its event loops.
#[derive(Debug, Default)]
pub struct TokenMint {
    last: AtomicU64,
}

impl TokenMint {
    /// A mint that has given no token yet.
    pub const fn new() -> TokenMint {
        TokenMint { last: AtomicU64::new(0) }
    }

    /// A token larger than every one before, from any thread; none once the mint is sealed.
    ///
    /// # Panics
    /// When 63 bits are used up, which at one grant per nanosecond is 292 years away.
    pub fn mint(&self, wall_clock: UnixTime) -> Option<Token> {
        let clock = clock_number(wall_clock);
        // A fetch_max would hand the same number to two threads that lose to the same third one.
        let mut last = self.last.load(Ordering::SeqCst);
        loop {
            if last & SEALED != 0 {
                return None;
            }
            let next = clock.max(last + 1);
            assert!(next < SEALED, "tokens left");
            match self.last.compare_exchange_weak(last, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Token::new(next),
                Err(newer) => last = newer,
            }
        }
    }

    /// No token is given from now on, on any thread: so that nothing is granted any more once the
    /// first session was told that the server shuts down.
    pub fn seal(&self) {
        self.last.fetch_or(SEALED, Ordering::SeqCst);
    }

    /// The newest token, if there is one.
    pub fn last(&self) -> Option<Token> {
        Token::new(self.last_number())
    }

    fn last_number(&self) -> u64 {
        self.last.load(Ordering::SeqCst) & !SEALED
    }

    /// How many seconds the newest token's time is ahead of the wall clock; zero if it is not.
    ///
    /// While this is positive a restart would break the sequence: the new process would start
    /// from a clock that is behind the old one's tokens.
    pub fn ahead_seconds(&self, wall_clock: UnixTime) -> f64 {
        let ahead = self.last_number().saturating_sub(clock_number(wall_clock));
        #[expect(clippy::cast_precision_loss, reason = "a gauge: 53 bits are plenty")]
        {
            ahead as f64 / f64::from(1u32 << TOKEN_FRACTION_BITS)
        }
    }
}

/// The wall clock in units of 2^-20 seconds, in whole numbers only: a float has too few bits for
/// it.
const fn clock_number(wall_clock: UnixTime) -> u64 {
    let fraction = ((wall_clock.subsec_nanos() as u64) << TOKEN_FRACTION_BITS) / NANOS_PER_SEC;
    (wall_clock.secs() << TOKEN_FRACTION_BITS) | fraction
}
