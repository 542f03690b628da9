//! How a run ends, for whoever started it: the exit codes, and the one line of what went wrong.

use std::fmt::{self, Display};
use std::process::ExitCode;

use crate::plain_text;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Fine.
    Fine = 0,
    /// The server has broken an invariant.
    InvariantBroken = 1,
    /// The command line is wrong, or a file on it.
    Usage = 2,
    /// An expectation was missed.
    ExpectationMissed = 3,
    /// The server was not there, the run was cut short, or the load generator itself was the limit.
    NotClean = 4,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> ExitCode {
        ExitCode::from(verdict as u8)
    }
}

/// Why there are no results.
#[derive(Debug)]
pub struct Failure {
    verdict: Verdict,
    line: String,
}

impl Failure {
    /// The command line is wrong, or a file on it.
    pub fn usage(line: impl Display) -> Failure {
        Failure { verdict: Verdict::Usage, line: line.to_string() }
    }

    /// The server is not there, or the run can't be carried out.
    pub fn cut_short(line: impl Display) -> Failure {
        Failure { verdict: Verdict::NotClean, line: line.to_string() }
    }

    /// What the exit code says.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

/// One line, whatever went into it.
impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain_text::one_line(&self.line))
    }
}

impl std::error::Error for Failure {}
