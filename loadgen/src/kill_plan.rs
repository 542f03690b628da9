//! How the servers of a run are made to fail, and who takes over.

use std::time::Duration;

use rustix::process::Signal;

use crate::random::Random;
use crate::staged_clock::ClockOffset;

/// Of the time from one failure to the next, what is over when the failed server is replaced.
const REPLACED_AT: f64 = 0.8;

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// SIGKILL: it is gone without a word.
    Kill,
    /// SIGSTOP: it says nothing and ends nothing, and wakes up later.
    Stop,
    /// SIGTERM: it tells everybody that it ends.
    Term,
}

impl Way {
    /// Its word on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Way::Kill => "kill",
            Way::Stop => "stop",
            Way::Term => "term",
        }
    }

    /// What the server gets.
    pub fn signal(self) -> Signal {
        match self {
            Way::Kill => Signal::KILL,
            Way::Stop => Signal::STOP,
            Way::Term => Signal::TERM,
        }
    }
}

/// Who comes after a server that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// Another process that is there already.
    Standby {
        /// From the failure to the standby's getting the clients: how long it takes to notice.
        takeover_after: Duration,
        /// From SIGSTOP to SIGCONT.
        wake_after: Duration,
        /// The old server's connections are broken before the standby gets any.
        fences: bool,
        /// How wrong the clock of the standby's machine is.
        clock: ClockOffset,
    },
    /// The same program, at the same address, as soon as the old one is gone.
    Restart,
}

/// A clock that is set while servers run: the one of all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// By how much.
    pub by: ClockOffset,
    /// When, counted from the start of measuring.
    pub at: Duration,
}

/// What is done to the servers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillPlan {
    /// From one failure to the next, and from the start of measuring to the first.
    pub every: Duration,
    /// The ways, drawn from anew for each failure.
    pub ways: Vec<Way>,
    /// Who comes after them.
    pub successor: Successor,
    /// A clock that is set.
    pub clock_step: Option<ClockStep>,
}

impl KillPlan {
    /// How often a server fails in the measured time: the last one has its time to be recovered
    /// from too.
    pub fn failures(&self, duration: Duration) -> u32 {
        let failures = duration.as_nanos() / self.every.as_nanos().max(1);
        u32::try_from(failures).unwrap_or(u32::MAX).saturating_sub(1)
    }

    /// The ways of all failures, one after the other.
    pub fn draw(&self, seed: u64) -> impl Iterator<Item = Way> + use<> {
        let (ways, mut random) = (self.ways.clone(), Random::new(seed, "ways"));
        let count = u32::try_from(ways.len()).expect("a few");
        std::iter::repeat_with(move || ways[random.below(count) as usize])
    }

    /// When, after its failure, a server that has a standby is ended, if it isn't yet, and replaced
    /// by a fresh standby.
    pub fn replaced_after(&self) -> Duration {
        self.every.mul_f64(REPLACED_AT)
    }

    /// Whether servers need clocks that are wrong.
    pub fn stages_clocks(&self) -> bool {
        let is_wrong = match self.successor {
            Successor::Standby { clock, .. } => clock != ClockOffset::default(),
            Successor::Restart => false,
        };
        is_wrong || self.clock_step.is_some()
    }
}
