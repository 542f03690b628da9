//! One thread of a run: a ring, its sessions, and its share of the scenario.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolock_core::claim::Standing;
use monolock_core::time::Instant;
use monolock_ring::{Config, Ring, SetupError};
use thiserror::Error;

use crate::busy_time::BusyTime;
use crate::checker::{Finding, Invariant};
use crate::clock;
use crate::course::Course;
use crate::drive::{Drive, DriveConfig};
use crate::outages::OutageTally;
use crate::phase::Phase;
use crate::recorder::Recorder;
use crate::resource::{ResourceError, WriteQueue};
use crate::script::{Script, Share, script};
use crate::session::Stage;
use crate::settings::Load;
use crate::succession::ServerTokens;

/// The longest sleep, so that the end of the run is noticed.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How long what was begun in the measured time may take after its end.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether all of that is done: by all threads together, as each looks at
/// all its sessions.
pub(crate) const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Why a thread can't do its work.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// There is no ring to be had.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The kernel has refused the ring what it granted at the start.
    #[error("io_uring failed: {0}")]
    Ring(#[from] io::Error),
    /// What holders write to has failed.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A process that was started for a session has failed.
    #[error("a holder's process {0}")]
    Holder(String),
}

/// What a thread has to report.
#[derive(Debug)]
pub struct Outcome {
    /// What it recorded.
    pub recorder: Recorder,
    /// What it found, in the order of [`Invariant::ALL`].
    pub findings: [Finding; Invariant::ALL.len()],
    /// What its clients had of each failure of a server.
    pub outages: Vec<OutageTally>,
    /// What was seen of each server, if they come after each other.
    pub servers: Vec<ServerTokens>,
    /// Sessions that ended unasked, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Sessions that the server ended as it shut down, by what it said.
    pub shut_down: BTreeMap<String, u64>,
    /// What this process could not do, by reason.
    pub own_limits: BTreeMap<String, u64>,
    /// Connections that nobody was there to take.
    pub refusals: u64,
    /// Sessions that ended unasked, or were never answered.
    pub lost: u64,
    /// Heartbeats of the measured time that were answered.
    pub heartbeats: u64,
    /// Grants of the measured time.
    pub grants: u64,
    /// Of the measured time, how much this thread was running.
    pub busy_ratio: f64,
}

/// One thread of a run.
#[expect(missing_debug_implementations, reason = "a ring is memory shared with the kernel")]
pub struct Worker {
    drive: Drive,
    script: Box<dyn Script>,
    course: Arc<Course>,
    drain_look: Duration,
    busy_time: BusyTime,
}

impl Worker {
    /// To be called on the thread itself, which the ring is then bound to.
    ///
    /// # Errors
    /// If there is no ring to be had.
    pub fn new(
        load: &Load,
        share: Share,
        config: DriveConfig,
        writes: Option<WriteQueue>,
        course: Arc<Course>,
    ) -> Result<Worker, WorkerError> {
        let mut ring = Ring::new(&Config { slots: config.sessions_max, ..Config::default() })?;
        ring.stamp_arrivals();
        let drive = Drive::new(ring, config, Arc::clone(&course));
        let script = script(load, share, writes);
        course.started.fetch_add(1, Ordering::SeqCst);
        let (drain_look, busy_time) = (DRAIN_LOOK * share.workers, BusyTime::default());
        Ok(Worker { drive, script, course, drain_look, busy_time })
    }

    /// Runs to the end of the run.
    ///
    /// # Errors
    /// If the kernel refuses the ring what it granted at the start.
    pub fn run(mut self) -> Result<Outcome, WorkerError> {
        let mut drained_at = None;
        while !self.course.is_abandoned() {
            let now = clock::now();
            self.busy_time.note(now, &self.course);
            self.drive.pass_deadlines(now);
            self.script.turn(&mut self.drive, now);
            self.tell(now);
            self.script.check()?;
            if self.course.is_over(now) {
                let since = *drained_at.get_or_insert(now);
                if now.since(since) >= DRAIN_MAX || self.is_drained() {
                    break;
                }
            }
            let sleep = if drained_at.is_some() { self.drain_look } else { SLEEP_MAX };
            let until = self.script.next_at().min(now.after(sleep));
            self.drive.wait(until, self.script.answers_at_once())?;
            self.tell(clock::now());
        }
        self.finish()
    }

    fn tell(&mut self, now: Instant) {
        while let Some(happening) = self.drive.happenings.pop_front() {
            self.script.hear(happening, &mut self.drive, now);
        }
    }

    fn is_drained(&self) -> bool {
        !self.drive.judges.is_undecided() && self.outstanding().is_empty()
    }

    /// What was begun in the measured time and has not come to its end.
    fn outstanding(&self) -> Vec<(Phase, Instant)> {
        let drains_queues = self.script.drains_queues();
        let mut outstanding: Vec<_> = self
            .drive
            .sessions
            .iter()
            .filter(|(_, session)| session.stage == Stage::Open)
            .filter_map(|(_, session)| match session.claim.standing() {
                Standing::Asking => Some((Phase::Acquire, session.intended)),
                Standing::Queued if drains_queues => Some((Phase::Wait, session.intended)),
                Standing::Queued | Standing::Holding(_) if session.claim.is_in_flight() => {
                    Some((Phase::Heartbeat, session.heartbeat_due))
                }
                _ => None,
            })
            .collect();
        outstanding.extend(self.script.backlog(clock::now()));
        outstanding.retain(|(_, intended)| self.course.is_measured(*intended));
        outstanding
    }

    fn finish(mut self) -> Result<Outcome, WorkerError> {
        let lost = self.drive.losses.values().sum();
        for (phase, intended) in self.outstanding() {
            self.drive.recorder.fail(phase, intended, &self.course);
            let text = format!("{} not done by the end of the run", phase.name());
            *self.drive.losses.entry(text).or_default() += 1;
        }
        self.drive.record_unanswered();
        self.see_server_off()?;
        self.drive.judges.finish(clock::now());
        let outages = self.script.finish(&mut self.drive);
        self.drive.recorder.finish()?;
        let busy_ratio = self.busy_time.ratio();
        let Drive {
            recorder,
            judges,
            losses,
            shut_down,
            own_limits,
            refusals,
            heartbeats,
            grants,
            ..
        } = self.drive;
        Ok(Outcome {
            recorder,
            servers: judges.servers().to_vec(),
            findings: judges.into_findings(),
            outages,
            losses,
            shut_down,
            own_limits,
            refusals,
            lost,
            heartbeats,
            grants,
            busy_ratio,
        })
    }

    /// Keeps all sessions going until this thread may end and the server has ended them, if it is
    /// going to.
    fn see_server_off(&mut self) -> io::Result<()> {
        self.course.drained.fetch_add(1, Ordering::SeqCst);
        let is_needed = |course: &Course| course.awaits_shutdown() || !course.is_accounted();
        while is_needed(&self.course) && !self.course.is_abandoned() {
            let is_shutting_down = self.course.is_shutting_down();
            if is_shutting_down && !self.drive.sessions.has_some() {
                break;
            }
            let now = clock::now();
            self.drive.pass_deadlines(now);
            self.drive.wait(now.after(SLEEP_MAX), is_shutting_down)?;
            self.drive.happenings.clear();
        }
        let left = self.drive.sessions.iter().filter(|(_, session)| session.is_alive()).count();
        if self.course.is_shutting_down() && left > 0 {
            self.drive
                .shut_down
                .insert("there although the server is gone".to_owned(), left as u64);
        }
        Ok(())
    }
}
