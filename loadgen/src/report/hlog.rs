//! The interval log that the public HdrHistogram tools read: one line a second and phase.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::results::Results;

/// The tools' convention for histograms of nanoseconds: the maximum is written in milliseconds.
const NANOS_PER_MS: f64 = 1e6;

/// Writes what was recorded second by second.
///
/// # Errors
/// The writer's, or that a histogram can't be read.
pub fn write(results: &Results, out: &mut impl Write) -> io::Result<()> {
    let start = UNIX_EPOCH + Duration::from_millis(results.environment.started_unix_ms);
    let mut serializer = V2DeflateSerializer::new();
    let comment = format!(
        "[Logged with monolock-loadgen {}, scenario {}]",
        results.environment.version, results.parameters.scenario
    );
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&comment)
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NANOS_PER_MS)
        .begin_log_with(out, &mut serializer)?;
    // The tools want the intervals in the order of time.
    let mut lines: Vec<_> = results
        .phases
        .iter()
        .flat_map(|phase| phase.seconds.iter().map(move |second| (second.second, phase, second)))
        .collect();
    lines.sort_by_key(|(number, _, _)| *number);
    for (number, phase, second) in lines {
        let tag = Tag::new(&phase.name).ok_or_else(|| io::Error::other("a tag with a comma"))?;
        let histogram = decode(&second.histogram)?;
        let (from, length) = (Duration::from_secs(number), Duration::from_secs(1));
        log.write_histogram(&histogram, from, length, Some(tag))
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
    }
    Ok(())
}

fn decode(text: &str) -> io::Result<Histogram<u64>> {
    let bytes = STANDARD.decode(text).map_err(io::Error::other)?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| io::Error::other(format!("{error:?}")))
}
