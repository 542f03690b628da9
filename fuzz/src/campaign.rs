//! Random and mutated inputs, for a number of them or for a time.

use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use crate::Target;

/// The longest input.
const LEN_MAX: usize = 600;

/// Bytes that mean something to some target: message types, limits, digits and units.
const TELLING: &[u8] = b"\x00\x01\x02\x03\x10\x11\x12\x13\x7f\x80\xff0159.hmsunofd";

/// How long a campaign goes on.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// So many inputs.
    Inputs(u32),
    /// As many as there is time for.
    Time(Duration),
}

/// An input that makes a target panic.
#[derive(Debug)]
pub struct Fault {
    /// The input.
    pub input: Vec<u8>,
    /// Which one it was.
    pub number: u32,
}

/// Gives a target inputs that are drawn from the seed, or made from others by small changes, until
/// one makes it panic. Returns how many there were.
///
/// # Errors
/// The input that made it panic.
pub fn run(target: Target, seed: u64, seeds: &[Vec<u8>], extent: Extent) -> Result<u32, Fault> {
    let mut draw = Draw { random: fastrand::Rng::with_seed(seed) };
    let start = Instant::now();
    let mut number = 0;
    loop {
        let is_over = match extent {
            Extent::Inputs(count) => number == count,
            Extent::Time(time) => start.elapsed() >= time,
        };
        if is_over {
            return Ok(number);
        }
        let input = draw.input(seeds);
        if is_fault(target, &input) {
            return Err(Fault { input, number });
        }
        number += 1;
    }
}

/// Whether the target panics.
pub fn is_fault(target: Target, input: &[u8]) -> bool {
    panic::catch_unwind(AssertUnwindSafe(|| target(input))).is_err()
}

/// Takes away from an input whatever it takes to panic without.
pub fn shrink(target: Target, mut input: Vec<u8>) -> Vec<u8> {
    let mut part = input.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        while start < input.len() {
            let end = (start + part).min(input.len());
            let shorter = [&input[..start], &input[end..]].concat();
            if is_fault(target, &shorter) {
                input = shorter;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    input
}

/// Draws that look random and depend on nothing but the seed.
struct Draw {
    random: fastrand::Rng,
}

impl Draw {
    /// Below `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        self.random.usize(..end)
    }

    fn byte(&mut self) -> u8 {
        if self.below(2) == 0 { TELLING[self.below(TELLING.len())] } else { self.random.u8(..) }
    }

    fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = if seeds.is_empty() || self.below(4) == 0 {
            let len = self.below(LEN_MAX + 1);
            (0..len).map(|_| self.random.u8(..)).collect()
        } else {
            seeds[self.below(seeds.len())].clone()
        };
        for _ in 0..self.below(8) {
            self.mutate(&mut input, seeds);
        }
        input.truncate(LEN_MAX);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() + 1 - at);
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => input.insert(at, self.byte()),
            3 => drop(input.drain(at..end)),
            4 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            5 => input.truncate(at),
            6 if !seeds.is_empty() => {
                let other = &seeds[self.below(seeds.len())];
                input.splice(at..end, other.iter().copied());
            }
            _ => input.push(self.byte()),
        }
    }
}
