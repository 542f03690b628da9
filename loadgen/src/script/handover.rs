//! Deep queues: who holds a lock releases it, at once or at a rate, and queues again.

use std::collections::VecDeque;

use monolock_core::time::Instant;

use super::{BACKOFF, Returning, Script, Share};
use crate::drive::{Drive, Happening};
use crate::lengths::Lengths;
use crate::phase::Phase;
use crate::plan::{self, Arriving};
use crate::settings::Load;

/// See the module.
pub(super) struct Handover {
    holds: Lengths,
    /// Sessions that are to come, the next one last.
    settlers: Vec<(Instant, u32)>,
    /// Sessions that were lost and come back.
    returning: Returning,
    /// Releases by plan, if there is one.
    releases: Option<Releases>,
}

struct Releases {
    plan: Box<dyn Iterator<Item = (Instant, u32)>>,
    next: Option<(Instant, u32)>,
    /// The holder of each lock, if it is one of ours.
    holders: Vec<Option<u32>>,
    /// By lock, releases that are due and wait for a holder.
    owed: Vec<VecDeque<Instant>>,
}

impl Handover {
    pub(super) fn new(load: &Load, share: Share) -> Handover {
        let mut settlers: Vec<_> = share.of(plan::settlers(load)).collect();
        settlers.reverse();
        let locks = plan::locks_of_worker(load.locks, share.worker, share.workers) as usize;
        let releases = load.rate.map(|rate| {
            // Queues first: the releases begin with the last session of the ramp.
            let after_ramp = Share { start: share.start.after(load.ramp), ..share };
            let mut plan = after_ramp.of(Arriving::new(load, rate));
            let next = plan.next();
            let (holders, owed) = (vec![None; locks], vec![VecDeque::new(); locks]);
            Releases { plan: Box::new(plan), next, holders, owed }
        });
        let holds = Lengths::new(load.hold, "holds", load, share);
        Handover { holds, settlers, returning: Returning::default(), releases }
    }
}

impl Releases {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        while let Some((intended, lock)) = self.next
            && intended <= now
        {
            self.next = self.plan.next();
            self.owed[lock as usize].push_back(intended);
            self.pay(lock, drive, now);
        }
    }

    /// Releases a lock if it is held, and a release is due.
    fn pay(&mut self, lock: u32, drive: &mut Drive, now: Instant) {
        let place = lock as usize;
        if let Some(holder) = self.holders[place]
            && let Some(intended) = self.owed[place].pop_front()
        {
            self.holders[place] = None;
            drive.release(holder, intended, now);
        }
    }
}

impl Script for Handover {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        while drive.may_open()
            && let Some((intended, lock)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            drive.open(lock, intended);
        }
        if drive.course.is_over(now) {
            return;
        }
        while drive.may_open()
            && let Some((intended, lock)) = self.returning.pop_if_due(now)
        {
            drive.open(lock, intended);
        }
        if let Some(releases) = &mut self.releases {
            releases.turn(drive, now);
        }
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        let return_at = self.returning.next_at();
        let release_at = self.releases.as_ref().and_then(|releases| releases.next);
        settler_at.min(return_at).min(release_at.map_or(Instant::NEVER, |(at, _)| at))
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant) {
        drive.count_settled(happening);
        match (happening, &mut self.releases) {
            (Happening::Granted(index), None) => {
                let hold = self.holds.next(drive.sessions.at(index).lock);
                drive.release_at(index, now.after(hold));
            }
            (Happening::Granted(index), Some(releases)) => {
                let lock = drive.sessions.at(index).lock;
                releases.holders[lock as usize] = Some(index);
                if !drive.course.is_over(now) {
                    releases.pay(lock, drive, now);
                }
            }
            (Happening::Lost(index), Some(releases)) => {
                for holder in &mut releases.holders {
                    holder.take_if(|holder| *holder == index);
                }
            }
            (Happening::Closed(index), _) => {
                let session = drive.sessions.at(index);
                let (lock, pause) = (session.lock, session.pause(BACKOFF));
                self.returning.push(now.after(pause), lock);
            }
            (Happening::Failed(lock), _) => self.returning.push(now.after(BACKOFF), lock),
            _ => {}
        }
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        let owed = self.releases.iter().flat_map(|releases| &releases.owed).flatten();
        owed.map(|intended| (Phase::Handover, *intended)).collect()
    }
}
