//! The results of a run, as the JSON file has them. Reports, plots and comparisons are made of
//! these alone, so that they can be made of a file as well.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::duration;
use crate::lengths::LengthRange;
use crate::plain_text;
use crate::scenario::Scenario;

/// The version of the file's format. It changes when a reader of the old one would be misled. What
/// is only added has a default, so that older files are read on.
pub const FORMAT_VERSION: u32 = 1;

const NANOS_PER_MS: f64 = 1e6;

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// See [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Where it ran.
    pub environment: Environment,
    /// What it was told.
    pub parameters: Parameters,
    /// The timed parts of the claims' lives.
    pub phases: Vec<PhaseResult>,
    /// What became of the writes of those that had lost their lock, if there were any.
    #[serde(default)]
    pub fencing: Option<Fencing>,
    /// Grants in the course of time.
    #[serde(default)]
    pub grants: Grants,
    /// Moments that explain the rest, in the order of time.
    #[serde(default)]
    pub marks: Vec<MarkResult>,
    /// Marks for which there was no room.
    #[serde(default)]
    pub marks_left_out: u64,
    /// Failures of servers, and what came after them.
    #[serde(default)]
    pub outages: Vec<OutageResult>,
    /// How the server ended, if it was shut down while all sessions were there.
    #[serde(default)]
    pub shutdown: Option<ShutdownResult>,
    /// What it cost the server, if it was started for the run.
    pub server: Option<ServerShare>,
    /// What it cost the load generator.
    pub own: OwnShare,
    /// What the judge found.
    pub invariants: Vec<InvariantResult>,
    /// What was demanded, and found.
    pub expectations: Vec<ExpectationResult>,
    /// Sessions that ended unasked, by reason.
    pub losses: BTreeMap<String, u64>,
    /// What this process could not do, so that the results are not what they seem.
    pub limits: Vec<String>,
    /// Whether the measured time was cut short.
    pub is_cut_short: bool,
}

/// Where a run took place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The load generator's version.
    pub version: String,
    /// As in `uname -r`.
    pub kernel: String,
    /// The machine's name.
    pub host: String,
    /// Processors.
    pub cpus: usize,
    /// The limit of open files, which limits each ring's file table.
    pub descriptors_max: u64,
    /// The server's address.
    pub server_address: String,
    /// The server is on the same machine.
    pub is_shared_with_server: bool,
    /// Seconds since 1970 at the start of measuring.
    pub started_unix_ms: u64,
}

/// What a run was told to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The scenario's name.
    pub scenario: String,
    /// What the plan was drawn from.
    pub seed: u64,
    /// Sessions at once.
    pub sessions: u32,
    /// Distinct locks.
    pub locks: u32,
    /// Threads, each with a ring.
    pub threads: u32,
    /// Every session's lease.
    pub lease_ms: u32,
    /// Operations a second, if the loop was open.
    pub rate: Option<f64>,
    /// `constant` or `poisson`.
    pub arrivals: String,
    /// Whether the load came by plan, whatever the server did.
    pub is_open_loop: bool,
    /// Measured time, as it was in the end.
    pub duration_ms: u64,
    /// Time before it.
    pub warmup_ms: u64,
    /// How long locks were held at least.
    pub hold_ms: f64,
    /// How long they were held at most; nothing in files from before it was drawn.
    #[serde(default)]
    pub hold_longest_ms: f64,
    /// Over how long sessions were to be connected.
    pub ramp_ms: u64,
    /// How long it took until all were, if there is something to wait for.
    #[serde(default)]
    pub setup_ms: u64,
    /// What was done to servers.
    #[serde(default)]
    pub kills: Option<Kills>,
    /// How holders fell silent, in the scenario that is about that.
    #[serde(default)]
    pub pauses: Option<PauseParameters>,
}

impl Parameters {
    /// How long locks were held; nothing if that was not by this rule, or in no time at all.
    pub fn hold(&self) -> Option<LengthRange> {
        let is_handed_over = self.scenario == Scenario::Handover.name() && self.rate.is_none();
        let is_by_rule = [Scenario::Steady, Scenario::Failover, Scenario::Restart]
            .iter()
            .any(|scenario| scenario.name() == self.scenario);
        let shortest = length_of(self.hold_ms);
        let hold = LengthRange { shortest, longest: length_of(self.hold_longest_ms).max(shortest) };
        let is_told = (is_by_rule || is_handed_over) && !hold.longest.is_zero();
        is_told.then_some(hold)
    }
}

/// A file can have any number there.
fn length_of(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// What a run was told about silent holders, and what they write to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PauseParameters {
    /// The shortest silence.
    pub shortest_ms: f64,
    /// The longest.
    pub longest_ms: f64,
    /// Sessions were processes, and stopped by a signal.
    pub are_real: bool,
    /// From one write of a holder to the next.
    pub write_every_ms: f64,
    /// `memory`, `SQLite` or `PostgreSQL`.
    pub resource: String,
    /// It checked tokens.
    pub is_fenced: bool,
}

/// In the words of the report.
impl fmt::Display for PauseParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = LengthRange {
            shortest: length_of(self.shortest_ms),
            longest: length_of(self.longest_ms),
        };
        let how = if self.are_real { "by SIGSTOP, a process each" } else { "simulated" };
        let fenced = if self.is_fenced { "" } else { ", WITHOUT FENCING" };
        write!(
            f,
            "{lengths}, {how}; writes every {} to {}{fenced}",
            duration::show(length_of(self.write_every_ms)),
            self.resource
        )
    }
}

/// What was done to the servers of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kills {
    /// From one failure to the next.
    pub every_ms: u64,
    /// `kill`, `stop`, `term`: what the ways were drawn from.
    pub ways: Vec<String>,
    /// Who took over; nobody if servers were started again in their place.
    pub standby: Option<StandbyParameters>,
    /// By how much clocks were set, and when.
    pub clock_step_ms: Option<(i64, u64)>,
}

/// A standby, and how it took over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyParameters {
    /// From a failure to its taking over.
    pub takeover_after_ms: u64,
    /// From SIGSTOP to SIGCONT.
    pub wake_after_ms: u64,
    /// Whether old connections were broken first.
    pub is_fenced: bool,
    /// How much its clock was ahead.
    pub clock_ms: i64,
}

/// One timed part of the claims' lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// The phase's name.
    pub name: String,
    /// How many were timed.
    pub count: u64,
    /// How many a second.
    pub rate: f64,
    /// Attempts that came to nothing.
    pub errors: u64,
    /// Counted from the intended start.
    #[serde(flatten)]
    pub corrected: Latencies,
    /// Counted from the actual start.
    pub uncorrected: Latencies,
    /// Second by second, from the intended start.
    pub seconds: Vec<SecondResult>,
}

/// A distribution of times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The shortest.
    pub min_ms: f64,
    /// The mean.
    pub mean_ms: f64,
    /// The standard deviation.
    pub stdev_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// By percentile.
    pub percentiles_ms: BTreeMap<String, f64>,
    /// All of it: an HdrHistogram of nanoseconds, V2 with deflate, in Base64.
    pub histogram: String,
}

/// One second of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondResult {
    /// Counted from the start of measuring.
    pub second: u64,
    /// How many were timed.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// One in a hundred took longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// All of it, as in [`Latencies::histogram`].
    pub histogram: String,
}

/// Holders that fell silent, and the writes to what their locks guard, of the whole run: the judge
/// doesn't wait for the measured time either. A write is stale if it came to the resource after one
/// of a later holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fencing {
    /// Holders that fell silent.
    pub pauses: u64,
    /// Locks that were granted to another session before the silent one was back.
    pub takeovers: u64,
    /// All writes.
    pub writes: u64,
    /// Stale ones that the resource refused.
    pub stale_refused: u64,
    /// Stale ones that it took: each has destroyed a later holder's write.
    pub stale_accepted: u64,
    /// The first of them in words; empty if there is none.
    pub first_accepted: String,
}

/// Grants, counted in equal steps from the start of measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grants {
    /// The length of a step.
    pub step_ms: u64,
    /// Step by step, to the end of measuring; empty if nothing was granted.
    pub counts: Vec<u64>,
}

/// One moment of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkResult {
    /// Counted from the start of measuring.
    pub at_ms: f64,
    /// What happened: `pause`, `kill`, `takeover`.
    pub kind: String,
    /// To whom.
    pub label: String,
}

/// One failure of a server. All times count from it, but `at_ms`, which counts from the start of
/// measuring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutageResult {
    /// When it was.
    pub at_ms: f64,
    /// `kill`, `stop`, `term`.
    pub way: String,
    /// When the next server was ready for all clients.
    pub succeeded_ms: Option<f64>,
    /// When that one's first grant was read.
    pub first_grant_ms: Option<f64>,
    /// How many clients had a session with it before it failed in its turn.
    pub back: u64,
    /// When 99% of all clients had one, counting each one's first.
    pub back_99_ms: Option<f64>,
    /// When all had.
    pub back_all_ms: Option<f64>,
    /// Dials before the next server was ready.
    pub dials: u64,
    /// The most of them within a second.
    pub dials_a_second_max: u64,
    /// Holders of different servers that overlapped.
    pub overlaps: u64,
    /// For how long at most.
    pub overlap_longest_ms: f64,
    /// Tokens of the next server below one that an earlier server had granted before for the same
    /// lock.
    pub tokens_behind: u64,
    /// When the last of them was read.
    pub tokens_behind_until_ms: Option<f64>,
    /// Tokens after that which were above those.
    pub tokens_grown_since: u64,
    /// The next server's first token is of the same second as the last one of the server that
    /// failed.
    pub is_within_a_second: bool,
}

/// A shutdown of the server while all sessions were there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownResult {
    /// From the signal to the end of the process.
    pub took_ms: u64,
    /// It ended in time and with status 0.
    pub is_clean: bool,
    /// What became of the sessions, by what they were told.
    pub endings: BTreeMap<String, u64>,
}

/// What a run cost the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerShare {
    /// Processor time of the measured time.
    pub cpu_seconds: f64,
    /// What `cpu_us_per_operation` is divided by: `heartbeat`, `grant`.
    pub operation: String,
    /// Operations of the measured time.
    pub operations: u64,
    /// Microseconds of processor time an operation.
    pub cpu_us_per_operation: Option<f64>,
    /// How often the server's threads slept and were woken, an operation.
    pub wakeups_per_operation: Option<f64>,
    /// Resident bytes before the first session.
    pub resident_bytes_before: u64,
    /// Resident bytes with all sessions.
    pub resident_bytes: u64,
    /// What that makes a session; memory that was there before and is used again isn't seen.
    pub resident_bytes_per_session: Option<f64>,
    /// What the objects of the machine's kernel have grown by, a session: both ends of it, and
    /// whatever else went on.
    #[serde(default)]
    pub kernel_bytes_per_session: Option<f64>,
    /// Open numbers at the most; sockets in a ring's file table have none.
    pub descriptors: u64,
}

/// What a run cost the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnShare {
    /// Processor time of the measured time.
    pub cpu_seconds: f64,
    /// Microseconds of it an operation.
    pub cpu_us_per_operation: Option<f64>,
    /// `cpu_seconds` over the server's, if that was started for the run.
    pub cpu_ratio_to_server: Option<f64>,
    /// How often the load generator's threads slept and were woken, an operation.
    pub wakeups_per_operation: Option<f64>,
    /// How much of the measured time the busiest thread was running.
    pub busiest_thread_ratio: f64,
    /// How much later than intended things were begun, at the 99th percentile.
    pub slip_p99_ms: f64,
}

/// What the judge found of one invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvariantResult {
    /// The invariant's name.
    pub name: String,
    /// How often it was broken.
    pub count: u64,
    /// The first case in words; empty if there is none.
    pub first: String,
}

/// What became of one expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// As it was written.
    pub text: String,
    /// What was found, in milliseconds if it is a time; nothing if nothing was recorded.
    pub found: Option<f64>,
    /// Whether `found` is a time.
    pub is_latency: bool,
    /// Whether it was met.
    pub is_met: bool,
}

impl Latencies {
    /// What a histogram of nanoseconds says.
    ///
    /// # Errors
    /// Never, for a histogram that was recorded here.
    pub fn of(histogram: &Histogram<u64>, percentiles: &[f64]) -> io::Result<Latencies> {
        let percentiles_ms = percentiles
            .iter()
            .map(|&percentile| (percentile.to_string(), at(histogram, percentile)))
            .collect();
        Ok(Latencies {
            min_ms: ms(histogram.min()),
            mean_ms: histogram.mean() / NANOS_PER_MS,
            stdev_ms: histogram.stdev() / NANOS_PER_MS,
            max_ms: ms(histogram.max()),
            percentiles_ms,
            histogram: encode(histogram)?,
        })
    }

    /// The histogram itself.
    ///
    /// # Errors
    /// If the text is none.
    pub fn histogram(&self) -> Result<Histogram<u64>, ResultsError> {
        decode(&self.histogram)
    }

    /// The time at any percentile; nothing if the histogram can't be read.
    pub fn at_percentile_ms(&self, percentile: f64) -> Option<f64> {
        self.histogram().ok().map(|histogram| at(&histogram, percentile))
    }
}

/// The time at a percentile, in milliseconds.
pub fn at(histogram: &Histogram<u64>, percentile: f64) -> f64 {
    ms(histogram.value_at_percentile(percentile).min(histogram.max()))
}

/// Nanoseconds as milliseconds.
pub fn ms(nanos: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    let nanos = nanos as f64;
    nanos / NANOS_PER_MS
}

/// A histogram as the file has it.
///
/// # Errors
/// Never, for a histogram that was recorded here.
pub fn encode(histogram: &Histogram<u64>) -> io::Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).map_err(io::Error::other)?;
    Ok(STANDARD.encode(bytes))
}

fn decode(text: &str) -> Result<Histogram<u64>, ResultsError> {
    let bytes = STANDARD.decode(text).map_err(|_| ResultsError::Histogram)?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|_| ResultsError::Histogram)
}

/// Why a file is not the results of a run.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// It can't be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It ends in the middle.
    #[error("is cut off: it ends at line {line}, in the middle of the results")]
    Cut {
        /// The last line.
        line: usize,
    },
    /// It is something else.
    #[error("is not a results file of monolock-loadgen: {0}")]
    Foreign(serde_json::Error),
    /// It is of another format.
    #[error("has format version {found}, and this program reads version {FORMAT_VERSION}")]
    Version {
        /// The file's version.
        found: u64,
    },
    /// One of its histograms is damaged.
    #[error("has a damaged histogram in it")]
    Histogram,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    /// If it isn't one of this version, whole.
    pub fn read(path: &Path) -> Result<Results, ResultsError> {
        #[derive(Deserialize)]
        struct Version {
            format_version: u64,
        }
        let text = fs::read_to_string(path)?;
        // Half a number is wrong rather than unfinished, so it counts where the error is.
        let last_line = text.lines().last().unwrap_or_default();
        let last_place = (text.lines().count(), last_line.len());
        let explain = |error: serde_json::Error| {
            let is_at_end = (error.line(), error.column()) >= last_place;
            if error.is_eof() || error.is_syntax() && is_at_end {
                ResultsError::Cut { line: error.line() }
            } else {
                ResultsError::Foreign(error)
            }
        };
        // The version first: the rest of another one may look different.
        let Version { format_version: found } = serde_json::from_str(&text).map_err(explain)?;
        if found != u64::from(FORMAT_VERSION) {
            return Err(ResultsError::Version { found });
        }
        // Twice: what it says of an error has a place only when it reads the text.
        serde_json::from_str::<Results>(&text).map_err(explain)?;
        let mut value = serde_json::from_str(&text).map_err(explain)?;
        plain_text::one_line_each(&mut value);
        let results: Results = serde_json::from_value(value).map_err(explain)?;
        for phase in &results.phases {
            phase.corrected.histogram()?;
            phase.uncorrected.histogram()?;
        }
        Ok(results)
    }

    /// The file's text.
    ///
    /// # Errors
    /// Never; the serialiser has the type.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The phase of this name, if it was recorded.
    pub fn phase(&self, name: &str) -> Option<&PhaseResult> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// How often invariants were broken.
    pub fn violations(&self) -> u64 {
        self.invariants.iter().map(|invariant| invariant.count).sum()
    }
}
