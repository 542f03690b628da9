//! Histograms that cost next to nothing to fill: an increment in the engine's own memory.

use core::time::Duration;

/// Upper bounds of the buckets of a [`DurationHistogram`], in milliseconds, each included.
pub const DURATION_BOUNDS_MS: [u32; 16] = [
    1, 5, 25, 100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
    14_400_000, 86_400_000,
];

const DURATION_BOUNDS_NANOS: [u64; DURATION_BOUNDS_MS.len()] = {
    let mut nanos = [0; DURATION_BOUNDS_MS.len()];
    let mut index = 0;
    while index < nanos.len() {
        nanos[index] = DURATION_BOUNDS_MS[index] as u64 * 1_000_000;
        index += 1;
    }
    nanos
};

/// How long something took, from a millisecond to more than a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// One for each bound, and one for what is above the last.
    buckets: [u64; DURATION_BOUNDS_MS.len() + 1],
    /// A million holders for some hours are more than 64 bits have room for.
    sum_nanos: u128,
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn observe(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_NANOS.partition_point(|&bound_nanos| nanos > bound_nanos);
        self.buckets[bucket] += 1;
        self.sum_nanos += u128::from(nanos);
    }

    /// How many were no longer than each of [`DURATION_BOUNDS_MS`], and how many there were.
    pub fn cumulative(&self) -> (impl Iterator<Item = u64>, u64) {
        (running_totals(&self.buckets[..DURATION_BOUNDS_MS.len()]), self.buckets.iter().sum())
    }

    /// All durations together, in seconds.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are plenty for a sum to be looked at")]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
    }

    /// Takes over what another one has counted.
    pub fn add(&mut self, other: &DurationHistogram) {
        add_each(&mut self.buckets, &other.buckets);
        self.sum_nanos += other.sum_nanos;
    }
}

/// How finely a [`RatioHistogram`] tells ratios apart.
pub const RATIO_BUCKETS: usize = 1 << RATIO_BITS;
const RATIO_BITS: u32 = 4;

/// Parts of a whole: how much of its lease was left when a heartbeat came.
///
/// It keeps no sum, which would need a division for each: [`RatioHistogram::sum`] takes every part
/// for the middle of its bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatioHistogram {
    buckets: [u64; RATIO_BUCKETS],
    wholes: u64,
}

impl RatioHistogram {
    /// Counts the part that a silence leaves of a lease, which is not zero.
    pub fn observe_left(&mut self, silence_nanos: u64, lease_ms: u32) {
        let lease_nanos = u64::from(lease_ms) * 1_000_000;
        let mut rest = lease_nanos.saturating_sub(silence_nanos);
        if rest == lease_nanos {
            self.wholes += 1;
            return;
        }
        // Long division of the first bits only: a lease is below 2^52 ns, so nothing overflows.
        let mut bucket = 0;
        for _ in 0..RATIO_BITS {
            rest <<= 1;
            let bit = rest >= lease_nanos;
            rest -= if bit { lease_nanos } else { 0 };
            bucket = bucket << 1 | usize::from(bit);
        }
        self.buckets[bucket] += 1;
    }

    /// Counts wholes: of these nothing was used up.
    pub fn observe_wholes(&mut self, count: u64) {
        self.wholes += count;
    }

    /// How many were below 1/16, below 2/16, and so on up to 15/16, and how many there were.
    pub fn cumulative(&self) -> (impl Iterator<Item = u64>, u64) {
        let totals = running_totals(&self.buckets[..RATIO_BUCKETS - 1]);
        (totals, self.buckets.iter().sum::<u64>() + self.wholes)
    }

    /// All parts together, nearly.
    #[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
    pub fn sum(&self) -> f64 {
        let of_parts: f64 = (self.buckets.iter().enumerate())
            .map(|(bucket, &count)| (bucket as f64 + 0.5) / RATIO_BUCKETS as f64 * count as f64)
            .sum();
        of_parts + self.wholes as f64
    }

    /// Takes over what another one has counted.
    pub fn add(&mut self, other: &RatioHistogram) {
        add_each(&mut self.buckets, &other.buckets);
        self.wholes += other.wholes;
    }
}

fn running_totals(buckets: &[u64]) -> impl Iterator<Item = u64> {
    buckets.iter().scan(0, |total, count| {
        *total += count;
        Some(*total)
    })
}

pub(crate) fn add_each(into: &mut [u64], other: &[u64]) {
    into.iter_mut().zip(other).for_each(|(count, more)| *count += more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_on_a_bound_is_below_it_and_the_longest_have_no_bound() {
        let mut histogram = DurationHistogram::default();
        for duration in [
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_nanos(1_000_001),
            Duration::from_millis(86_400_000),
            Duration::from_millis(86_400_001),
            Duration::MAX,
        ] {
            histogram.observe(duration);
        }
        let (totals, count) = histogram.cumulative();
        let totals: alloc::vec::Vec<u64> = totals.collect();
        assert_eq!(&totals[..2], [2, 3]);
        assert_eq!(&totals[14..], [3, 4]);
        assert_eq!(count, 6);
        assert!(histogram.sum_seconds() > 86_400.0 * 365.0 * 500.0);
    }

    #[test]
    fn what_is_left_of_a_lease_falls_into_its_sixteenth() {
        for lease_ms in [1, 3, 1000, u32::MAX] {
            let lease_nanos = u64::from(lease_ms) * 1_000_000;
            for sixteenth in 0..16u64 {
                let mut histogram = RatioHistogram::default();
                let left = (lease_nanos * (2 * sixteenth + 1)) / 32;
                histogram.observe_left(lease_nanos - left, lease_ms);
                let (totals, count) = histogram.cumulative();
                assert_eq!(count, 1);
                for (index, total) in totals.enumerate() {
                    assert_eq!(total, u64::from(index as u64 >= sixteenth), "{index} {sixteenth}");
                }
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let middle = (2 * sixteenth + 1) as f64 / 32.0;
                assert!((histogram.sum() - middle).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn nothing_and_everything_left_are_the_ends() {
        let lease_ms = 7;
        let mut histogram = RatioHistogram::default();
        histogram.observe_left(7_000_000, lease_ms);
        histogram.observe_left(u64::MAX, lease_ms);
        assert_eq!(histogram.cumulative().0.next(), Some(2));
        histogram.observe_left(0, lease_ms);
        histogram.observe_wholes(2);
        let (totals, count) = histogram.cumulative();
        assert_eq!((totals.last(), count), (Some(2), 5), "a whole is above 15/16");
        let mut sum = histogram;
        sum.add(&histogram);
        assert_eq!(sum.cumulative().1, 10);
    }
}
