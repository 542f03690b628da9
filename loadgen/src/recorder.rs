//! Latencies as one thread records them, by phase: over the whole measured time, and second by
//! second.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use monolock_core::time::Instant;

use crate::course::Course;
use crate::mark::{Mark, MarkKind};
use crate::phase::Phase;
use crate::resource::{Author, Written};
use crate::results::Fencing;

/// Values are nanoseconds; less than a microsecond isn't told apart.
const LOWEST_NANOS: u64 = 1_000;
/// Histograms begin with room for this and grow.
const HIGHEST_NANOS: u64 = 10_000_000_000;
/// Values are kept to one part in a thousand.
const DIGITS: u8 = 3;

/// Grants are counted in steps of this: fine enough to see how long nobody was granted anything.
pub const GRANTS_STEP_MS: u64 = 100;

/// One thread keeps so many marks, and counts the rest.
const MARKS_MAX: usize = 100_000;

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(LOWEST_NANOS, HIGHEST_NANOS, DIGITS)
        .expect("the bounds are a valid range");
    histogram.auto(true);
    histogram
}

/// One timed event: when it should have begun, when it did, and when it was over.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When it should have begun.
    pub intended: Instant,
    /// When it did begin.
    pub begun: Instant,
    /// When it was over.
    pub done: Instant,
}

/// What is recorded of one phase.
#[derive(Debug)]
pub struct PhaseRecord {
    /// From the intended start.
    pub corrected: Histogram<u64>,
    /// From the actual start, as a tool says that waits for its turn.
    pub uncorrected: Histogram<u64>,
    /// Attempts that came to nothing.
    pub errors: u64,
    /// What is recorded of the present second.
    second: Histogram<u64>,
}

impl PhaseRecord {
    /// Nothing is recorded.
    pub fn new() -> PhaseRecord {
        PhaseRecord {
            corrected: histogram(),
            uncorrected: histogram(),
            errors: 0,
            second: histogram(),
        }
    }

    /// Records what nobody could begin later than intended.
    pub fn add_time(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.corrected.saturating_record(nanos);
        self.uncorrected.saturating_record(nanos);
    }

    /// Takes in what another thread has recorded.
    pub fn add(&mut self, other: &PhaseRecord) {
        const GROWS: &str = "the histograms grow as needed";
        self.corrected.add(&other.corrected).expect(GROWS);
        self.uncorrected.add(&other.uncorrected).expect(GROWS);
        self.errors += other.errors;
    }
}

impl Default for PhaseRecord {
    fn default() -> PhaseRecord {
        PhaseRecord::new()
    }
}

/// A histogram of what was over in one second, serialised so that an hour of them is small.
#[derive(Clone, Debug)]
pub struct Second {
    /// The second, counted from the start of measuring.
    pub number: u64,
    /// The phase.
    pub phase: Phase,
    /// V2 with deflate.
    pub histogram: Vec<u8>,
}

/// One thread's record.
#[derive(Debug)]
pub struct Recorder {
    /// By phase, those that anything was recorded of.
    pub phases: BTreeMap<Phase, PhaseRecord>,
    /// The seconds that are over.
    pub seconds: Vec<Second>,
    /// How much later than intended things were begun.
    pub slip: Histogram<u64>,
    /// Grants of the measured time, in steps of [`GRANTS_STEP_MS`].
    pub grants: Vec<u64>,
    /// What explains the rest, in the order of time.
    pub marks: Vec<Mark>,
    /// Marks for which there was no room.
    pub marks_left_out: u64,
    /// Silent holders, and what became of writes to the guarded resource.
    pub fencing: Fencing,
    /// What happens before measuring counts too: the scenario has a setup, and this is it.
    counts_setup: bool,
    second: Option<u64>,
}

impl Recorder {
    /// An empty record. With `counts_setup`, connecting is recorded whenever it happens.
    pub fn new(counts_setup: bool) -> Recorder {
        Recorder {
            phases: BTreeMap::new(),
            seconds: Vec::new(),
            slip: histogram(),
            grants: Vec::new(),
            marks: Vec::new(),
            marks_left_out: 0,
            fencing: Fencing::default(),
            counts_setup,
            second: None,
        }
    }

    /// Records what was intended for the measured time.
    pub fn record(&mut self, phase: Phase, timing: Timing, course: &Course) {
        let is_setup = self.counts_setup && matches!(phase, Phase::Connect | Phase::Acquire);
        let is_measured = course.is_measured(timing.intended);
        self.record_if(is_measured || is_setup, phase, timing);
        if is_measured {
            self.slip.saturating_record(nanos_since(timing.begun, timing.intended));
        }
    }

    /// Records what is measured by another rule.
    pub fn record_if(&mut self, is_measured: bool, phase: Phase, timing: Timing) {
        if !is_measured {
            return;
        }
        let Timing { intended, begun, done } = timing;
        let record = self.phases.entry(phase).or_default();
        let nanos = nanos_since(done, intended);
        record.corrected.saturating_record(nanos);
        record.uncorrected.saturating_record(nanos_since(done, begun));
        record.second.saturating_record(nanos);
    }

    /// Counts an attempt of the measured time that came to nothing.
    pub fn fail(&mut self, phase: Phase, intended: Instant, course: &Course) {
        let is_setup = self.counts_setup && matches!(phase, Phase::Connect | Phase::Acquire);
        if is_setup || course.is_measured(intended) {
            self.phases.entry(phase).or_default().errors += 1;
        }
    }

    /// Counts what should have come to its end and hasn't. None is worth telling too.
    pub fn miss(&mut self, phase: Phase, count: u64) {
        self.phases.entry(phase).or_default().errors += count;
    }

    /// Counts a grant of the measured time.
    pub fn grant(&mut self, now: Instant, course: &Course) {
        let Some(nanos) = course.measured_nanos(now) else {
            return;
        };
        let step = usize::try_from(nanos / (GRANTS_STEP_MS * 1_000_000)).unwrap_or(usize::MAX);
        if self.grants.len() <= step {
            self.grants.resize(step + 1, 0);
        }
        self.grants[step] += 1;
    }

    /// Notes a moment of the measured time.
    pub fn mark(&mut self, at: Instant, kind: MarkKind, label: impl Display, course: &Course) {
        if !course.is_measured(at) {
            return;
        }
        if self.marks.len() < MARKS_MAX {
            self.marks.push(Mark { at, kind, label: label.to_string() });
        } else {
            self.marks_left_out += 1;
        }
    }

    /// Notes what became of a write of `whose`, such as `lock 3, session 1`. Returns the words for
    /// a stale one that was taken.
    pub fn write(
        &mut self,
        whose: &str,
        author: Author,
        written: Written,
        at: Instant,
        course: &Course,
    ) -> Option<String> {
        let own = author.token;
        self.fencing.writes += 1;
        match written {
            Written::Taken => None,
            Written::Refused => {
                self.fencing.stale_refused += 1;
                let label = format!("{whose}, its write with token {own}");
                self.mark(at, MarkKind::Refusal, label, course);
                None
            }
            Written::TakenOver(newer) => {
                self.fencing.stale_accepted += 1;
                let newer = newer.token;
                let words = format!("{whose}, its write with token {own} over one with {newer}");
                self.mark(at, MarkKind::Corruption, &words, course);
                if self.fencing.first_accepted.is_empty() {
                    self.fencing.first_accepted.clone_from(&words);
                }
                Some(words)
            }
        }
    }

    /// To be called now and then: closes seconds that are over.
    ///
    /// # Errors
    /// Never, in memory; the serialiser has the type.
    pub fn turn(&mut self, now: Instant, course: &Course) -> io::Result<()> {
        let number = course.measured_second(now);
        if number == self.second {
            return Ok(());
        }
        match self.second {
            Some(over) => self.close_second(over)?,
            // What was recorded before is in no second of the measured time.
            None => self.phases.values_mut().for_each(|record| record.second.reset()),
        }
        self.second = number;
        Ok(())
    }

    /// Closes the last second.
    ///
    /// # Errors
    /// As [`Recorder::turn`].
    pub fn finish(&mut self) -> io::Result<()> {
        match self.second.take() {
            Some(over) => self.close_second(over),
            None => Ok(()),
        }
    }

    fn close_second(&mut self, number: u64) -> io::Result<()> {
        for (&phase, record) in &mut self.phases {
            if record.second.is_empty() {
                continue;
            }
            let mut histogram = Vec::new();
            V2DeflateSerializer::new()
                .serialize(&record.second, &mut histogram)
                .map_err(io::Error::other)?;
            record.second.reset();
            self.seconds.push(Second { number, phase, histogram });
        }
        Ok(())
    }
}

fn nanos_since(later: Instant, earlier: Instant) -> u64 {
    u64::try_from(later.since(earlier).as_nanos()).unwrap_or(u64::MAX)
}
