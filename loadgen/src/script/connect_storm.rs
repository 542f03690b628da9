//! Everybody connects at once, or at a rate. When all hold their locks, all leave, and it begins
//! again.

use std::time::Duration;

use monolock_core::time::Instant;

use super::{Script, Share};
use crate::drive::{Drive, Happening};
use crate::phase::Phase;
use crate::plan;
use crate::session::Stage;
use crate::settings::Load;

/// Between two storms, so that the end of one isn't timed as the beginning of the next.
const LULL: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct ConnectStorm {
    /// The locks of this thread's sessions, in the order in which they come, and when after the
    /// beginning of a storm.
    plan: Vec<(Duration, u32)>,
    begun_at: Instant,
    /// How many of the storm have come.
    come: usize,
    /// How many have got what they wanted, or failed.
    settled: usize,
    /// How many connections are still there.
    open: usize,
    is_leaving: bool,
}

impl ConnectStorm {
    pub(super) fn new(load: &Load, share: Share) -> ConnectStorm {
        let gap = load.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate));
        let number = (0..load.sessions).map(|number| gap * number);
        let settlers = plan::settlers(load).zip(number);
        let plan = settlers
            .filter(|(settler, _)| plan::worker_of(settler.lock, share.workers) == share.worker)
            .map(|(settler, at)| (at, settler.lock / share.workers))
            .collect();
        ConnectStorm {
            plan,
            begun_at: share.start,
            come: 0,
            settled: 0,
            open: 0,
            is_leaving: false,
        }
    }

    /// Begins the end of a storm when all have settled, and the next one when all have left.
    fn go_on(&mut self, drive: &mut Drive, now: Instant) {
        if !self.is_leaving && self.settled == self.plan.len() {
            self.is_leaving = true;
            let open: Vec<u32> = drive
                .sessions
                .iter()
                .filter(|(_, session)| session.stage == Stage::Open)
                .map(|(index, _)| index)
                .collect();
            for index in open {
                drive.release(index, now, now);
            }
        }
        if self.is_leaving && self.open == 0 {
            (self.is_leaving, self.come, self.settled) = (false, 0, 0);
            self.begun_at = now.after(LULL);
        }
    }

    fn due_at(&self) -> Instant {
        let next = self.plan.get(self.come);
        next.map_or(Instant::NEVER, |(at, _)| self.begun_at.after(*at))
    }
}

impl Script for ConnectStorm {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        let is_over = drive.course.is_over(now);
        while drive.may_open()
            && let Some((_, lock)) = self.plan.get(self.come)
            && self.due_at() <= now
            // A storm that has begun in time goes on.
            && (!is_over || drive.course.is_measured(self.due_at()))
        {
            let intended = self.due_at();
            self.open += 1;
            self.come += 1;
            drive.open(*lock, intended);
        }
        if !is_over {
            self.go_on(drive, now);
        }
    }

    fn next_at(&self) -> Instant {
        self.due_at()
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, _now: Instant) {
        match happening {
            Happening::Queued(index) | Happening::Granted(index) | Happening::Lost(index) => {
                self.settled += usize::from(drive.sessions.at(index).settle());
            }
            Happening::Failed(_) => {
                self.settled += 1;
                self.open -= 1;
            }
            Happening::Closed(_) => self.open -= 1,
            Happening::Flooded(_) | Happening::Stuck(_) | Happening::Survived(_) => {}
        }
    }

    fn backlog(&self, now: Instant) -> Vec<(Phase, Instant)> {
        let come = self.plan.iter().skip(self.come);
        let intended = come.map(|(at, _)| self.begun_at.after(*at));
        intended.filter(|at| *at < now).map(|at| (Phase::Acquire, at)).collect()
    }
}
