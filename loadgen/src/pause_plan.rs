//! Which holder falls silent when, and for how long: drawn from the seed, carried out when the lock
//! has a holder.

use std::collections::VecDeque;
use std::time::Duration;

use monolock_core::time::Instant;

use crate::checker::Who;
use crate::plan::{self, Arriving};
use crate::random::Random;
use crate::script::Share;
use crate::settings::{Load, PauseLengths};

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
    lengths: Vec<Lengths>,
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
    AfterWork { hold: Duration, due: VecDeque<(Instant, u32, Who)> },
}

/// The lengths of one lock's pauses, one after the other: the same for the same seed, whichever
/// thread has the lock, and whatever happens to other locks.
#[derive(Clone, Debug)]
pub struct Lengths {
    range: PauseLengths,
    random: Random,
}

impl Lengths {
    /// Of the lock with this number in the run.
    pub fn new(seed: u64, lock: u32, range: PauseLengths) -> Lengths {
        Lengths { range, random: Random::new(seed ^ u64::from(lock), "pauses") }
    }
}

impl Iterator for Lengths {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let PauseLengths { shortest, longest } = self.range;
        Some(shortest + (longest - shortest).mul_f64(self.random.fraction()))
    }
}

impl PausePlan {
    /// For one thread's share of the locks. Pauses by rate begin with the last session of the ramp.
    pub fn new(load: &Load, range: PauseLengths, share: Share) -> PausePlan {
        let locks = plan::locks_of_worker(load.locks, share.worker, share.workers);
        let number = |lock| lock * share.workers + share.worker;
        let lengths = (0..locks).map(|lock| Lengths::new(load.seed, number(lock), range)).collect();
        let begin = match load.rate {
            Some(rate) => {
                let after_ramp = Share { start: share.start.after(load.ramp), ..share };
                let mut plan = after_ramp.of(Arriving::new(load, rate));
                let next = plan.next();
                let owed = vec![VecDeque::new(); locks as usize];
                Begin::ByRate { plan: Box::new(plan), next, owed, ready: VecDeque::new() }
            }
            None => Begin::AfterWork { hold: load.hold, due: VecDeque::new() },
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
            Begin::AfterWork { hold, due } => due.push_back((now.after(*hold), lock, who)),
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
                let (at, lock, who) = due.pop_front_if(|(at, _, _)| *at <= now)?;
                if self.holders[lock as usize] == Some(who) {
                    break (lock, who, at);
                }
            },
        };
        self.holders[lock as usize] = None;
        let length = self.lengths[lock as usize].next()?;
        Some(Pause { lock, who, length, intended })
    }

    /// When there is something to do, if nothing happens before.
    pub fn next_at(&self) -> Instant {
        let next = match &self.begin {
            Begin::ByRate { next, .. } => next.map(|(at, _)| at),
            Begin::AfterWork { due, .. } => due.front().map(|(at, _, _)| *at),
        };
        next.unwrap_or(Instant::NEVER)
    }
}
