//! The clocks of servers that come after each other.

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use monolock_core::time::Instant;
use thiserror::Error;

use crate::kill_plan::{ClockStep, KillPlan, Successor};
use crate::preflight::{PreflightError, preflight};
use crate::server_process::{Launch, ServerProcess, StartError};
use crate::staged_clock::{ClockOffset, StagedClock, offset_of};

/// How far behind a clock is set to see whether a server goes by it, and how near to that its token
/// must be, however slow this machine is.
const TRIAL_BEHIND: Duration = Duration::from_secs(3600);
const TRIAL_TOLERANCE_MS: i64 = 600_000;

/// Why clocks can't be staged.
#[derive(Debug, Error)]
pub enum StagingError {
    /// There is no memory for them.
    #[error("cannot stage a clock: {0}")]
    Memory(#[from] io::Error),
    /// A server doesn't start with one.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A server with one doesn't answer.
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    /// It goes by another clock.
    #[error(
        "cannot stage this server's clock: with one that is an hour behind its token was that of \
         {0}; it must be linked with the C library dynamically, and read the wall clock through it"
    )]
    Ignored(ClockOffset),
    /// It has given no token.
    #[error("cannot stage this server's clock: it doesn't grant a lock that nobody else wants")]
    NoToken,
}

/// The clocks of two machines, on which servers are started in turn.
#[derive(Debug)]
pub(super) struct Clocks {
    machines: [(StagedClock, ClockOffset); 2],
    step: Option<ClockStep>,
    step_at: Instant,
}

impl Clocks {
    /// By the plan, after trying out that this server goes by such a clock.
    pub(super) fn of(
        plan: &KillPlan,
        path: &Path,
        args: &[OsString],
        interrupted: &AtomicBool,
    ) -> Result<Clocks, StagingError> {
        let first = StagedClock::new()?;
        try_out(&first, path, args, interrupted)?;
        let second = first.another()?;
        let offset = match plan.successor {
            Successor::Standby { clock, .. } => clock,
            Successor::Restart => ClockOffset::default(),
        };
        second.set(offset)?;
        let machines = [(first, ClockOffset::default()), (second, offset)];
        Ok(Clocks { machines, step: plan.clock_step, step_at: Instant::NEVER })
    }

    /// The clock of a server, by its number.
    pub(super) fn of_server(&self, number: u32) -> &StagedClock {
        &self.machines[number as usize % 2].0
    }

    /// Measuring begins then.
    pub(super) fn begin(&mut self, from: Instant) {
        self.step_at = self.step.map_or(Instant::NEVER, |step| from.after(step.at));
    }

    /// When clocks are to be set next.
    pub(super) fn next_at(&self) -> Instant {
        self.step_at
    }

    /// Sets all clocks. Returns by how much, in words.
    pub(super) fn step(&mut self) -> Result<String, StagingError> {
        self.step_at = Instant::NEVER;
        let by = self.step.map_or(ClockOffset::default(), |step| step.by);
        for (clock, offset) in &mut self.machines {
            *offset = offset.and(by);
            clock.set(*offset)?;
        }
        Ok(by.to_string())
    }
}

/// Asks a server with a clock that is far behind for a token. The clock is right again afterwards.
fn try_out(
    clock: &StagedClock,
    path: &Path,
    args: &[OsString],
    interrupted: &AtomicBool,
) -> Result<(), StagingError> {
    const LEASE_MS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");
    clock.set(ClockOffset::behind(TRIAL_BEHIND))?;
    let launch = Launch { path, args, listen: Launch::ANY_PORT, clock: Some(clock) };
    let server = ServerProcess::start(&launch, interrupted)?;
    let token = preflight(server.address(), "loadgen/clock", LEASE_MS)?;
    let seen = offset_of(token.ok_or(StagingError::NoToken)?);
    let expected = ClockOffset::behind(TRIAL_BEHIND);
    if (seen.as_ms() - expected.as_ms()).abs() > TRIAL_TOLERANCE_MS {
        return Err(StagingError::Ignored(seen));
    }
    clock.set(ClockOffset::default())?;
    Ok(())
}
