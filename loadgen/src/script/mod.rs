//! What the scenarios do: each says which sessions are opened and released when.

mod connect_storm;
mod failover;
mod gc_pause;
mod handover;
mod heartbeat;
mod slow_reader;
mod steady;

use std::collections::VecDeque;
use std::time::Duration;

use monolock_core::time::Instant;

use crate::drive::{Drive, Happening};
use crate::outages::OutageTally;
use crate::phase::Phase;
use crate::plan::{self, Arrival};
use crate::resource::{ResourceError, WriteQueue};
use crate::scenario::Scenario;
use crate::settings::Load;

/// How long a session that was lost, or could not connect, stays away.
const BACKOFF: Duration = Duration::from_millis(100);

/// One thread's part in a scenario.
pub trait Script {
    /// Does what is due. Nothing new is begun after the measured time.
    fn turn(&mut self, drive: &mut Drive, now: Instant);

    /// When there is something to do next, if nothing happens before.
    fn next_at(&self) -> Instant;

    /// Answers to something that has happened.
    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant);

    /// Whether what is heard must be answered at once, as against only noted. It costs the load
    /// generator a wake-up each time.
    fn answers_at_once(&self) -> bool {
        true
    }

    /// What was intended for before `now` and could not even be begun.
    fn backlog(&self, now: Instant) -> Vec<(Phase, Instant)>;

    /// Whether a claim in the queue is waited for when the measured time is over.
    fn drains_queues(&self) -> bool {
        false
    }

    /// Why it can't go on, if it can't.
    ///
    /// # Errors
    /// That of the guarded resource.
    fn check(&mut self) -> Result<(), ResourceError> {
        Ok(())
    }

    /// The run is over. Returns what this thread's clients had of each failure of a server.
    fn finish(&mut self, _drive: &mut Drive) -> Vec<OutageTally> {
        Vec::new()
    }
}

/// Sessions that come back, in the order in which they left.
#[derive(Debug, Default)]
struct Returning {
    queue: VecDeque<(Instant, u32)>,
}

impl Returning {
    /// A session for this lock is to come back then.
    fn push(&mut self, at: Instant, lock: u32) {
        self.queue.push_back((at, lock));
    }

    /// The first one, if its time has come. One that stays away for longer keeps back those behind
    /// it, which does no harm.
    fn pop_if_due(&mut self, now: Instant) -> Option<(Instant, u32)> {
        let first = self.queue.front().copied().filter(|(at, _)| *at <= now)?;
        self.queue.pop_front();
        Some(first)
    }

    fn next_at(&self) -> Instant {
        self.queue.front().map_or(Instant::NEVER, |(at, _)| *at)
    }
}

/// Which part of a scenario one thread has.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The thread's number.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
    /// When the plan begins.
    pub start: Instant,
    /// The thread's sessions.
    pub sessions: u32,
}

impl Share {
    /// The number in the run of a lock that has this number in its thread.
    pub fn number(self, lock: u32) -> u64 {
        u64::from(lock) * u64::from(self.workers) + u64::from(self.worker)
    }

    /// What of a plan is this thread's, with moments for times, and the lock by its number here.
    pub(crate) fn of(
        self,
        plan: impl Iterator<Item = Arrival>,
    ) -> impl Iterator<Item = (Instant, u32)> {
        plan.filter(move |arrival| plan::worker_of(arrival.lock, self.workers) == self.worker)
            .map(move |arrival| (self.start.after(arrival.at), arrival.lock / self.workers))
    }
}

/// The script of a scenario for one thread. What holders write goes to `writes`.
///
/// # Panics
/// Without `writes`, if it is a scenario in which holders write.
pub fn script(load: &Load, share: Share, writes: Option<WriteQueue>) -> Box<dyn Script> {
    match load.scenario {
        Scenario::Heartbeat => Box::new(heartbeat::Heartbeat::new(load, share)),
        Scenario::Steady => Box::new(steady::Steady::new(load, share)),
        Scenario::Handover => Box::new(handover::Handover::new(load, share)),
        Scenario::ConnectStorm => Box::new(connect_storm::ConnectStorm::new(load, share)),
        Scenario::SlowReader => Box::new(slow_reader::SlowReader::new(load, share)),
        Scenario::GcPause => {
            let writes = writes.expect("holders write to something");
            Box::new(gc_pause::GcPause::new(load, share, writes))
        }
        Scenario::Failover | Scenario::Restart => Box::new(failover::Failover::new(load, share)),
    }
}
