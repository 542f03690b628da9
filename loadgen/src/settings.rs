//! What one run is to do, checked for sense.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::expectation::Expectation;
use crate::kill_plan::KillPlan;
use crate::lengths::LengthRange;
use crate::resource::{Choice, Rules};
use crate::scenario::Scenario;

/// The server that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One that runs already.
    Running(SocketAddr),
    /// One that is started for the run, and stopped after it.
    Own {
        /// The program.
        path: PathBuf,
        /// Its arguments.
        args: Vec<OsString>,
    },
}

/// How operations are spread in time, given their rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// At random, as from many clients that know nothing of each other.
    Poisson,
}

impl Arrivals {
    /// The word on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Arrivals::Constant => "constant",
            Arrivals::Poisson => "poisson",
        }
    }
}

/// What the holders of `gc-pause` do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// For how long they fall silent.
    pub lengths: LengthRange,
    /// Each session is a process, which is stopped; else the load generator leaves it alone.
    pub are_real: bool,
    /// From one write of a holder to the next.
    pub write_every: Duration,
    /// What they write to.
    pub resource: Choice,
    /// It checks tokens.
    pub is_fenced: bool,
}

impl Pauses {
    /// What the resource goes by. A writer may have to wait for one that was stopped in the middle
    /// of its write.
    pub fn rules(&self) -> Rules {
        let patience = self.lengths.longest + Duration::from_secs(10);
        Rules { is_fenced: self.is_fenced, patience }
    }
}

/// The load itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The kind.
    pub scenario: Scenario,
    /// Sessions at once.
    pub sessions: u32,
    /// Distinct lock names.
    pub locks: u32,
    /// The lease of every session.
    pub lease_ms: NonZeroU32,
    /// Operations a second. Without it sessions wait for each other: a closed loop.
    pub rate: Option<f64>,
    /// How operations are spread, given a rate.
    pub arrivals: Arrivals,
    /// Measured time.
    pub duration: Duration,
    /// Time under load before it, which isn't recorded.
    pub warmup: Duration,
    /// How long a lock is held.
    pub hold: LengthRange,
    /// Over how long sessions are connected.
    pub ramp: Duration,
    /// What the plan is drawn from.
    pub seed: u64,
    /// Threads, each with a ring, unless more are needed for so many sessions.
    pub threads: u32,
    /// How holders fall silent, in the scenario that is about that.
    pub pauses: Option<Pauses>,
}

impl Load {
    /// Whether the load comes by plan, whatever the server does. Heartbeats always do: they are due
    /// by the lease.
    pub fn is_open_loop(&self) -> bool {
        match self.scenario {
            Scenario::Heartbeat | Scenario::SlowReader | Scenario::ConnectStorm => true,
            Scenario::Steady | Scenario::Handover | Scenario::GcPause => self.rate.is_some(),
            Scenario::Failover | Scenario::Restart => false,
        }
    }

    /// Whether each session is a process of its own.
    pub fn has_processes(&self) -> bool {
        self.pauses.as_ref().is_some_and(|pauses| pauses.are_real)
    }

    /// Whether many operations are intended for the same moment: all of a storm, or those of the
    /// clients of a server that has failed.
    pub fn is_all_at_once(&self) -> bool {
        self.scenario == Scenario::ConnectStorm && self.rate.is_none()
            || self.scenario.kills_servers()
    }
}

/// Where results go, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// The percentiles that are printed and stored, each from 0 to 100.
    pub percentiles: Vec<f64>,
    /// The start of the names of the .hgrm files and the .hlog file.
    pub hdr_file_prefix: Option<PathBuf>,
    /// The results as JSON.
    pub json_out_file: Option<PathBuf>,
    /// The plots.
    pub svg_out_file: Option<PathBuf>,
    /// The table as comma-separated values.
    pub csv: bool,
    /// One line a phase.
    pub quiet: bool,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What is loaded.
    pub target: Target,
    /// The load.
    pub load: Load,
    /// What is done to servers, in the scenarios in which they fail.
    pub kill_plan: Option<KillPlan>,
    /// What is written.
    pub outputs: Outputs,
    /// What must be true of the results.
    pub expectations: Vec<Expectation>,
}
