//! Lengths of time that are drawn from a range: how long locks are held, and how long their holders
//! fall silent.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use monolock_core::duration::parse_duration;

use crate::duration;
use crate::plan;
use crate::random::Random;
use crate::script::Share;
use crate::settings::Load;

/// From the shortest to the longest length, all equally likely; often both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRange {
    /// The shortest.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
}

impl LengthRange {
    /// Whether nothing is to be drawn.
    pub fn is_fixed(self) -> bool {
        self.shortest == self.longest
    }

    fn draw(self, random: &mut Random) -> Duration {
        self.shortest + (self.longest - self.shortest).mul_f64(random.fraction())
    }
}

/// Always the same.
impl From<Duration> for LengthRange {
    fn from(length: Duration) -> LengthRange {
        LengthRange { shortest: length, longest: length }
    }
}

/// `2s`, or `1s..5s`.
impl FromStr for LengthRange {
    type Err = String;

    fn from_str(text: &str) -> Result<LengthRange, String> {
        let parse = |text: &str| {
            parse_duration(text)
                .map_err(|_| "not a duration such as 2s, or a range such as 1s..5s".to_owned())
        };
        let (shortest, longest) = match text.split_once("..") {
            Some((shortest, longest)) => (parse(shortest)?, parse(longest)?),
            None => (parse(text)?, parse(text)?),
        };
        if shortest > longest {
            return Err("the range ends before it begins".to_owned());
        }
        Ok(LengthRange { shortest, longest })
    }
}

/// In words.
impl fmt::Display for LengthRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_fixed() {
            write!(f, "{} to ", duration::show(self.shortest))?;
        }
        f.write_str(&duration::show(self.longest))
    }
}

/// The lengths of each of one thread's locks, one after the other: the same for the same seed,
/// whichever thread has the lock, and whatever happens to other locks.
#[derive(Clone, Debug)]
pub struct Lengths {
    range: LengthRange,
    /// By lock; empty if nothing is to be drawn.
    randoms: Vec<Random>,
}

impl Lengths {
    /// For a thread's share of the locks. `salt` tells apart what is drawn for one lock.
    pub fn new(range: LengthRange, salt: &str, load: &Load, share: Share) -> Lengths {
        let locks = plan::locks_of_worker(load.locks, share.worker, share.workers);
        let locks = if range.is_fixed() { 0 } else { locks };
        let random = |lock| Random::new(load.seed ^ share.number(lock), salt);
        Lengths { range, randoms: (0..locks).map(random).collect() }
    }

    /// The next one of this lock, by the number that it has in its thread.
    pub fn next(&mut self, lock: u32) -> Duration {
        match self.randoms.get_mut(lock as usize) {
            Some(random) => self.range.draw(random),
            None => self.range.longest,
        }
    }
}
