//! What a run loads: a server that runs already, one of its own, or several of its own that fail
//! and take over from each other.

use std::net::SocketAddr;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use monolock_core::time::Instant;
use rustix::process::Signal;

use crate::conductor::{Conductor, Piece};
use crate::course::Course;
use crate::failure::Failure;
use crate::forwarder::Routes;
use crate::mark::Mark;
use crate::procfs::Usage;
use crate::server_process::{Launch, ServerProcess};
use crate::settings::{Settings, Target};

/// See the module. What was started here ends when this is dropped.
#[derive(Debug)]
pub enum Subject {
    /// Somebody else's.
    Running(SocketAddr),
    /// One that lives as long as the run.
    Own(ServerProcess),
    /// Several that fail.
    Failing(Conductor),
}

impl Subject {
    /// Starts what is to be started.
    ///
    /// # Errors
    /// If that can't be had.
    pub fn start(
        settings: &Settings,
        course: &Arc<Course>,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Subject, Failure> {
        match (&settings.target, &settings.kill_plan) {
            (Target::Running(address), _) => Ok(Subject::Running(*address)),
            (Target::Own { path, args }, None) => {
                let launch = Launch { path, args, listen: Launch::ANY_PORT, clock: None };
                let server = ServerProcess::start(&launch, interrupted);
                server.map(Subject::Own).map_err(Failure::cut_short)
            }
            (Target::Own { path, args }, Some(plan)) => {
                let piece = Piece {
                    path: path.clone(),
                    args: args.clone(),
                    plan: plan.clone(),
                    seed: settings.load.seed,
                    sessions: settings.load.sessions,
                };
                let conductor =
                    Conductor::start(piece, Arc::clone(course), Arc::clone(interrupted));
                conductor.map(Subject::Failing).map_err(Failure::cut_short)
            }
        }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        match self {
            Subject::Running(address) => *address,
            Subject::Own(server) => server.address(),
            Subject::Failing(conductor) => conductor.address(),
        }
    }

    /// Which server each client is connected to, if there are several.
    pub fn routes(&self) -> Option<Routes> {
        match self {
            Subject::Running(_) | Subject::Own(_) => None,
            Subject::Failing(conductor) => Some(conductor.routes()),
        }
    }

    /// Says when measuring begins, and how long it takes.
    pub fn measure(&self, from: Instant, duration: Duration) {
        if let Subject::Failing(conductor) = self {
            conductor.measure(from, duration);
        }
    }

    /// Why the run can't go on, if it can't.
    pub fn trouble(&mut self, doing: &str) -> Option<String> {
        match self {
            Subject::Running(_) => None,
            Subject::Own(server) => {
                let status = server.has_ended()?;
                Some(format!("the server ended while {doing} ({status})"))
            }
            Subject::Failing(conductor) => {
                let error = conductor.error()?;
                Some(format!("{error}, while {doing}"))
            }
        }
    }

    /// What a server of its own uses of the machine.
    ///
    /// # Errors
    /// If it can't be looked at.
    pub fn usage(&self) -> Result<Option<Usage>, Failure> {
        let Subject::Own(server) = self else {
            return Ok(None);
        };
        Usage::of(server.pid())
            .map(Some)
            .map_err(|error| Failure::cut_short(format_args!("cannot look at the server: {error}")))
    }

    /// Sends a signal to a server of its own, if there is one.
    pub fn signal(&mut self, signal: Signal) {
        if let Subject::Own(server) = self {
            server.signal(signal);
        }
    }

    /// How a server of its own has ended, if it has.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        match self {
            Subject::Own(server) => server.has_ended(),
            Subject::Running(_) | Subject::Failing(_) => None,
        }
    }

    /// Stops what was started. Returns what happened to it in the measured time.
    pub fn stop(self) -> Vec<Mark> {
        match self {
            Subject::Running(_) | Subject::Own(_) => Vec::new(),
            Subject::Failing(conductor) => conductor.stop(),
        }
    }
}
