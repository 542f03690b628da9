//! The percentile distribution that the public HdrHistogram plotters read.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use crate::results::ms;

/// Steps in each half of the distance that is left to 100%.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Writes a histogram of nanoseconds in milliseconds.
///
/// # Errors
/// The writer's.
pub fn write(histogram: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    writeln!(out)?;
    // An empty histogram has one line, as the original writes it.
    if histogram.is_empty() {
        writeln!(out, "{:>12.3} {:>14.12} {:>10} {:>14}", 0.0, 1.0, 0, "inf")?;
    }
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        let value = ms(step.value_iterated_to().min(histogram.max()));
        let quantile = step.quantile_iterated_to();
        total += step.count_since_last_iteration();
        write!(out, "{value:>12.3} {quantile:>14.12} {total:>10} ")?;
        if quantile < 1.0 {
            writeln!(out, "{:>14.2}", 1.0 / (1.0 - quantile))?;
        } else {
            writeln!(out, "{:>14}", "inf")?;
            break;
        }
    }
    let (mean, deviation) = (histogram.mean() / 1e6, histogram.stdev() / 1e6);
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    let (max, count) = (ms(histogram.max()), histogram.len());
    writeln!(out, "#[Max     = {max:>12.3}, Total count    = {count:>12}]")?;
    let (buckets, sub_buckets) = (histogram.buckets(), sub_buckets(histogram));
    writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]")
}

/// The power of two that tells values apart to the histogram's precision.
fn sub_buckets(histogram: &Histogram<u64>) -> u64 {
    (2 * 10_u64.pow(u32::from(histogram.sigfig()))).next_power_of_two()
}
