//! What a user demands of the results: `handover.p99<5ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::phase::Phase;
use crate::results::PhaseResult;
use monolock_core::duration::parse_duration;

/// A demand on one phase's latency or count.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    phase: Phase,
    what: What,
    sign: Sign,
    bound: f64,
}

/// How what is found is to stand to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Sign {
    /// Takes it off the front of a text.
    fn split(text: &str) -> Option<(Sign, &str)> {
        // The longer ones first.
        let all =
            [("<=", Sign::AtMost), (">=", Sign::AtLeast), ("<", Sign::Below), (">", Sign::Above)];
        all.into_iter().find_map(|(written, sign)| Some((sign, text.strip_prefix(written)?)))
    }

    fn holds(self, found: f64, bound: f64) -> bool {
        match self {
            Sign::Below => found < bound,
            Sign::AtMost => found <= bound,
            Sign::Above => found > bound,
            Sign::AtLeast => found >= bound,
        }
    }
}

/// The number that is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Percentile(f64),
    Minimum,
    Mean,
    Maximum,
    Errors,
    Count,
    Rate,
}

impl What {
    fn is_latency(self) -> bool {
        !matches!(self, What::Errors | What::Count | What::Rate)
    }
}

/// Why a text is not an expectation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpectationError {
    /// No comparison, or nothing on one of its sides.
    #[error("write it like handover.p99<5ms or steady.errors<1: PHASE.WHAT<BOUND, or <=, >, >=")]
    Malformed,
    /// No phase has this name.
    #[error("no phase is called {0:?}: there are {list}", list = Phase::names())]
    UnknownPhase(String),
    /// Nothing of a phase has this name.
    #[error(
        "{0:?} is nothing to compare: use p50, p99.9 and the like, min, avg, max, errors, count, \
         rate"
    )]
    UnknownWhat(String),
    /// The right side doesn't fit to the left one.
    #[error("{0:?} is not a bound: latencies want a duration like 5ms, the others a number")]
    Bound(String),
}

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Expectation, ExpectationError> {
        let at = text.find(['<', '>']).ok_or(ExpectationError::Malformed)?;
        let (left, right) = text.split_at(at);
        let (sign, bound) = Sign::split(right).ok_or(ExpectationError::Malformed)?;
        let bound = bound.trim();
        let (phase, what) = left.trim().split_once('.').ok_or(ExpectationError::Malformed)?;
        if phase.is_empty() || what.is_empty() || bound.is_empty() {
            return Err(ExpectationError::Malformed);
        }
        let phase = Phase::from_name(phase)
            .ok_or_else(|| ExpectationError::UnknownPhase(phase.to_owned()))?;
        let what = parse_what(what)?;
        let bound = parse_bound(bound, what.is_latency())?;
        Ok(Expectation { text: text.to_owned(), phase, what, sign, bound })
    }
}

fn parse_what(text: &str) -> Result<What, ExpectationError> {
    let unknown = || ExpectationError::UnknownWhat(text.to_owned());
    Ok(match text {
        "min" => What::Minimum,
        "avg" => What::Mean,
        "max" => What::Maximum,
        "errors" => What::Errors,
        "count" => What::Count,
        "rate" => What::Rate,
        _ => {
            let percentile = text.strip_prefix('p').ok_or_else(unknown)?;
            let percentile: f64 = percentile.parse().map_err(|_| unknown())?;
            if !(0.0..=100.0).contains(&percentile) {
                return Err(unknown());
            }
            What::Percentile(percentile)
        }
    })
}

fn parse_bound(text: &str, is_latency: bool) -> Result<f64, ExpectationError> {
    let wrong = || ExpectationError::Bound(text.to_owned());
    if is_latency {
        return parse_duration(text).map(ms).map_err(|_| wrong());
    }
    let number: f64 = text.parse().map_err(|_| wrong())?;
    if number.is_finite() { Ok(number) } else { Err(wrong()) }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Expectation {
    /// What is found, and whether that is as expected. A phase that recorded nothing has no
    /// latencies: every expectation of them is missed.
    pub fn judge(&self, phases: &[PhaseResult]) -> (Option<f64>, bool) {
        let phase = phases.iter().find(|phase| phase.name == self.phase.name());
        let found = phase.and_then(|phase| self.find(phase));
        let is_met = found.is_some_and(|found| self.sign.holds(found, self.bound));
        (found, is_met)
    }

    fn find(&self, phase: &PhaseResult) -> Option<f64> {
        let has_latencies = phase.count > 0;
        match self.what {
            What::Errors =>
            {
                #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
                Some(phase.errors as f64)
            }
            What::Count =>
            {
                #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
                Some(phase.count as f64)
            }
            What::Rate => Some(phase.rate),
            _ if !has_latencies => None,
            What::Minimum => Some(phase.corrected.min_ms),
            What::Mean => Some(phase.corrected.mean_ms),
            What::Maximum => Some(phase.corrected.max_ms),
            What::Percentile(percentile) => phase.corrected.at_percentile_ms(percentile),
        }
    }

    /// Whether what it looks at is a time in milliseconds.
    pub fn is_latency(&self) -> bool {
        self.what.is_latency()
    }
}

/// As it was written.
impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Expectation, ExpectationError> {
        text.parse()
    }

    #[test]
    fn latencies_and_numbers_are_read() {
        let handover = parse("handover.p99<5ms").unwrap();
        assert_eq!(handover.what, What::Percentile(99.0));
        assert_eq!((handover.sign, handover.phase), (Sign::Below, Phase::Handover));
        assert!((handover.bound - 5.0).abs() < 1e-9);
        assert_eq!(handover.to_string(), "handover.p99<5ms");
        let rate = parse("acquire.rate > 1000").unwrap();
        assert_eq!((rate.sign, rate.what), (Sign::Above, What::Rate));
        assert_eq!(parse("heartbeat.p99.99<1s").unwrap().what, What::Percentile(99.99));
        assert_eq!(parse("wait.errors<1").unwrap().what, What::Errors);
    }

    #[test]
    fn a_bound_itself_is_met_by_the_signs_that_say_so() {
        for (text, at_the_bound, below) in
            [("<", false, true), ("<=", true, true), (">", false, false), (">=", true, false)]
        {
            let expectation = parse(&format!("wait.count{text}7")).unwrap();
            let holds = |found| expectation.sign.holds(found, expectation.bound);
            assert_eq!((holds(7.0), holds(6.0), holds(8.0)), (at_the_bound, below, !below));
        }
    }

    #[test]
    fn what_is_no_expectation_says_why() {
        for text in ["", "handover", "handover.p99", "p99<5ms", "<5ms", "handover.<5ms", ".p9<1s"] {
            assert_eq!(parse(text), Err(ExpectationError::Malformed), "{text:?}");
        }
        assert!(matches!(parse("handovr.p99<5ms"), Err(ExpectationError::UnknownPhase(_))));
        for text in ["handover.p101<5ms", "handover.q99<5ms", "handover.pNaN<5ms"] {
            assert!(matches!(parse(text), Err(ExpectationError::UnknownWhat(_))), "{text}");
        }
        for text in ["handover.p99<5", "handover.errors<5ms", "handover.rate>inf"] {
            assert!(matches!(parse(text), Err(ExpectationError::Bound(_))), "{text}");
        }
    }
}
