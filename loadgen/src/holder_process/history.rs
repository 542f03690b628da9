//! What happened to all processes, for the judge, who wants it in order.

use monolock_core::fencing::Token;
use monolock_core::time::Instant;

use crate::checker::{Checker, ServerEnd, Who};

/// Something that the judge wants to know.
#[derive(Clone, Copy, Debug)]
struct Fact {
    at: Instant,
    lock: u32,
    who: Who,
    what: What,
}

/// What has happened to a claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// It was told that it waits.
    Queued,
    /// It was told that it holds the lock, after it had asked then.
    Granted { token: Token, asked_at: Instant },
    /// A message of then was answered.
    Confirmed { sent_at: Instant },
    /// Its client has given it up.
    GivenUp,
    /// Its client has given it up after it had been asleep.
    Overslept(ServerEnd),
    /// The server has ended it.
    Ended(ServerEnd),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct History {
    facts: Vec<Fact>,
    /// Past holders' writes that a resource has taken though it checks tokens.
    stale_writes: Vec<(Instant, String)>,
}

impl History {
    /// Notes what was told. It need not be told in order.
    pub(super) fn note(&mut self, at: Instant, lock: u32, who: Who, what: What) {
        self.facts.push(Fact { at, lock, who, what });
    }

    /// Notes a past holder's write that was taken.
    pub(super) fn note_stale_write(&mut self, at: Instant, words: String) {
        self.stale_writes.push((at, words));
    }

    /// Lets the judge see everything in the order in which it happened. It can ask nobody any more,
    /// but heartbeats have been answered all the time.
    pub(super) fn judge(mut self, locks: u32) -> Checker {
        let mut checker = Checker::new(locks);
        self.facts.sort_by_key(|fact| fact.at);
        for Fact { at, lock, who, what } in self.facts {
            checker.turn(at);
            match what {
                What::Queued => checker.queued(lock, who, at),
                What::Granted { token, asked_at } => {
                    checker.granted(lock, who, token, asked_at, at);
                }
                What::Confirmed { sent_at } => checker.confirmed(who, sent_at, at),
                What::GivenUp => checker.released(lock, who, at),
                What::Overslept(end) => checker.overslept(lock, who, end, at),
                What::Ended(end) => checker.ended(lock, who, end, at),
            }
        }
        for (at, words) in self.stale_writes {
            checker.stale_write_accepted(at, words);
        }
        checker
    }
}
