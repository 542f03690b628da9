//! Acquire, hold, release, again and again: at a rate that the server has no say in, or one after
//! the other.

use std::collections::VecDeque;
use std::iter::Peekable;

use monolock_core::time::Instant;

use super::{BACKOFF, Script, Share};
use crate::drive::{Drive, Happening};
use crate::lengths::Lengths;
use crate::phase::Phase;
use crate::plan::{self, Arriving};
use crate::random::Random;
use crate::settings::Load;

type Plan = Peekable<Box<dyn Iterator<Item = (Instant, u32)>>>;

/// See the module.
pub(super) struct Steady {
    holds: Lengths,
    operations: Operations,
    /// Intended, and waiting for a free place.
    late: VecDeque<(Instant, u32)>,
    next_at: Instant,
}

/// Where operations come from.
enum Operations {
    /// From a plan.
    Open(Plan),
    /// From the end of those before: so many may begin, each at its time.
    Closed { idle: VecDeque<Instant>, locks: u32, random: Random },
}

impl Steady {
    pub(super) fn new(load: &Load, share: Share) -> Steady {
        let operations = match load.rate {
            Some(rate) => {
                let plan = share.of(Arriving::new(load, rate));
                let plan: Box<dyn Iterator<Item = (Instant, u32)>> = Box::new(plan);
                Operations::Open(plan.peekable())
            }
            None => Operations::Closed {
                idle: (0..share.sessions).map(|_| share.start).collect(),
                locks: plan::locks_of_worker(load.locks, share.worker, share.workers),
                random: Random::new(load.seed ^ u64::from(share.worker), "locks"),
            },
        };
        let holds = Lengths::new(load.hold, "holds", load, share);
        Steady { holds, operations, late: VecDeque::new(), next_at: share.start }
    }

    /// Takes what is intended for until now.
    fn fall_due(&mut self, now: Instant, is_over: bool) {
        match &mut self.operations {
            Operations::Open(plan) => {
                while let Some(operation) = plan.next_if(|(at, _)| *at <= now && !is_over) {
                    self.late.push_back(operation);
                }
                self.next_at = plan.peek().map_or(Instant::NEVER, |(at, _)| *at);
            }
            Operations::Closed { idle, locks, random } => {
                while idle.front().is_some_and(|at| *at <= now && !is_over) {
                    idle.pop_front();
                    self.late.push_back((now, random.below(*locks)));
                }
                self.next_at = idle.front().copied().unwrap_or(Instant::NEVER);
            }
        }
        if is_over {
            self.next_at = Instant::NEVER;
        }
    }

    fn becomes_idle(&mut self, at: Instant) {
        if let Operations::Closed { idle, .. } = &mut self.operations {
            idle.push_back(at);
        }
    }
}

impl Script for Steady {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        let is_over = drive.course.is_over(now);
        self.fall_due(now, is_over);
        if is_over {
            // What was intended in time is carried out, and nothing else.
            self.late.retain(|(intended, _)| drive.course.is_measured(*intended));
        }
        while drive.may_open()
            && let Some((intended, lock)) = self.late.pop_front()
        {
            drive.open(lock, intended);
        }
    }

    fn next_at(&self) -> Instant {
        self.next_at
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant) {
        match happening {
            Happening::Granted(index) => {
                let hold = self.holds.next(drive.sessions.at(index).lock);
                drive.release_at(index, now.after(hold));
            }
            Happening::Closed(index) => {
                let pause = drive.sessions.at(index).pause(BACKOFF);
                self.becomes_idle(now.after(pause));
            }
            Happening::Failed(_) => self.becomes_idle(now.after(BACKOFF)),
            _ => {}
        }
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        self.late.iter().map(|(intended, _)| (Phase::Acquire, *intended)).collect()
    }

    fn drains_queues(&self) -> bool {
        true
    }
}
