//! Which holder falls silent when, and for how long: drawn from the seed, carried out when the lock
//! has a holder.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use monolock_core::time::Instant;

use crate::checker::Who;
use crate::lengths::{LengthRange, Lengths};
use crate::plan::{self, Arriving};
use crate::script::Share;
use crate::settings::Load;

/// A pause that is to begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The lock, by its number in its thread.
    pub lock: u32,
    /// Its holder.
    pub who: Who,
    /// For how long.
    pub length: Duration,
    /// When it should have begun.
    pub intended: Instant,
}

/// The pauses of one thread's locks.
#[expect(missing_debug_implementations, reason = "an iterator is nothing to show")]
pub struct PausePlan {
    lengths: Lengths,
    /// Of each lock, the holder that works.
    holders: Vec<Option<Who>>,
    begin: Begin,
}

/// When a holder falls silent.
enum Begin {
    /// At moments that were drawn beforehand, as soon as there is a holder.
    ByRate {
        plan: Box<dyn Iterator<Item = (Instant, u32)>>,
        next: Option<(Instant, u32)>,
        /// By lock, pauses that wait for a holder.
        owed: Vec<VecDeque<Instant>>,
        /// Locks with a holder and a pause owed, in the order in which that came about.
        ready: VecDeque<u32>,
    },
    /// When it has worked for so long.
    AfterWork { holds: Lengths, due: BinaryHeap<Reverse<(Instant, u32, Who)>> },
}

impl PausePlan {
    /// For one thread's share of the locks. Pauses by rate begin with the last session of the ramp.
    pub fn new(load: &Load, range: LengthRange, share: Share) -> PausePlan {
        let locks = plan::locks_of_worker(load.locks, share.worker, share.workers);
        let lengths = Lengths::new(range, "pauses", load, share);
        let begin = match load.rate {
            Some(rate) => {
                let after_ramp = Share { start: share.start.after(load.ramp), ..share };
                let mut plan = after_ramp.of(Arriving::new(load, rate));
                let next = plan.next();
                let owed = vec![VecDeque::new(); locks as usize];
                Begin::ByRate { plan: Box::new(plan), next, owed, ready: VecDeque::new() }
            }
            None => {
                let holds = Lengths::new(load.hold, "holds", load, share);
                Begin::AfterWork { holds, due: BinaryHeap::new() }
            }
        };
        PausePlan { lengths, holders: vec![None; locks as usize], begin }
    }

    /// A session holds the lock and works.
    pub fn works(&mut self, lock: u32, who: Who, now: Instant) {
        self.holders[lock as usize] = Some(who);
        match &mut self.begin {
            Begin::ByRate { owed, ready, .. } => {
                if !owed[lock as usize].is_empty() {
                    ready.push_back(lock);
                }
            }
            Begin::AfterWork { holds, due } => {
                due.push(Reverse((now.after(holds.next(lock)), lock, who)));
            }
        }
    }

    /// A session has lost its lock.
    pub fn lost(&mut self, lock: u32, who: Who) {
        self.holders[lock as usize].take_if(|holder| *holder == who);
    }

    /// The next pause that is to begin by now.
    pub fn next(&mut self, now: Instant) -> Option<Pause> {
        let (lock, who, intended) = match &mut self.begin {
            Begin::ByRate { plan, next, owed, ready } => {
                while let Some((at, lock)) = *next
                    && at <= now
                {
                    *next = plan.next();
                    owed[lock as usize].push_back(at);
                    ready.push_back(lock);
                }
                loop {
                    let lock = ready.pop_front()?;
                    let place = lock as usize;
                    // Without a holder it waits for the next one, which makes it ready again.
                    if let Some(who) = self.holders[place]
                        && let Some(intended) = owed[place].pop_front()
                    {
                        break (lock, who, intended);
                    }
                }
            }
            Begin::AfterWork { due, .. } => loop {
                let Reverse((at, lock, who)) =
                    due.peek().copied().filter(|Reverse((at, _, _))| *at <= now)?;
                due.pop();
                if self.holders[lock as usize] == Some(who) {
                    break (lock, who, at);
                }
            },
        };
        self.holders[lock as usize] = None;
        let length = self.lengths.next(lock);
        Some(Pause { lock, who, length, intended })
    }

    /// When there is something to do, if nothing happens before.
    pub fn next_at(&self) -> Instant {
        let next = match &self.begin {
            Begin::ByRate { next, .. } => next.map(|(at, _)| at),
            Begin::AfterWork { due, .. } => due.peek().map(|Reverse((at, _, _))| *at),
        };
        next.unwrap_or(Instant::NEVER)
    }
}
