//! Random numbers in separate streams: one draw more of one kind must not change all the others.

use std::ops::RangeInclusive;

/// The draws of one kind.
pub(crate) struct Draws {
    rng: fastrand::Rng,
}

impl Draws {
    /// The stream of this name for a seed.
    pub(crate) fn named(seed: u64, salt: &str) -> Draws {
        // FNV-1a over the name, begun with the seed; then mixed, for seeds are small numbers.
        let hash = salt.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Draws { rng: fastrand::Rng::with_seed(mixed ^ (mixed >> 29)) }
    }

    /// True in so many cases out of a hundred.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    pub(crate) fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.rng.u64(range)
    }

    pub(crate) fn place(&mut self, len: usize) -> usize {
        self.rng.usize(0..len)
    }

    pub(crate) fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }
}
