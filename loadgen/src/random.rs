//! Random numbers that are the same for the same seed, on every machine and in every version.

/// The generator `SplitMix64` of Steele, Lea and Flood: small, and good enough to draw a plan with.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of draws called `salt`. Streams of one seed don't disturb each other: that one
    /// kind of draw is made more often doesn't change the others.
    pub fn new(seed: u64, salt: &str) -> Random {
        let mut random = Random { state: seed };
        for byte in salt.bytes() {
            random.state = random.next_u64() ^ u64::from(byte);
        }
        random
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be zero. Biased by less than one in four billion.
    pub fn below(&mut self, end: u32) -> u32 {
        let scaled = u64::from(end) * (self.next_u64() >> 32);
        u32::try_from(scaled >> 32).expect("below a u32")
    }

    /// A number from 0 to 1, that one left out.
    pub fn fraction(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let fraction = (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        fraction
    }

    /// The time to the next event of a Poisson process, in units of its mean.
    pub fn exponential(&mut self) -> f64 {
        // One step up, so that it is never zero, whose logarithm there isn't.
        let step = f64::EPSILON / 2.0;
        -(self.fraction() + step).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_a_seed_repeat_and_differ() {
        let draw = |seed, salt| {
            let mut random = Random::new(seed, salt);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(7, "locks"), draw(7, "locks"));
        assert_ne!(draw(7, "locks"), draw(7, "arrivals"));
        assert_ne!(draw(7, "locks"), draw(8, "locks"));
    }

    #[test]
    fn draws_have_the_mean_that_they_should() {
        let mut random = Random::new(1, "means");
        let draws = 100_000;
        let exponential = (0..draws).map(|_| random.exponential()).sum::<f64>() / f64::from(draws);
        assert!((0.98..1.02).contains(&exponential), "{exponential}");
        let below = (0..draws).map(|_| f64::from(random.below(10))).sum::<f64>() / f64::from(draws);
        assert!((4.4..4.6).contains(&below), "{below}");
    }
}
