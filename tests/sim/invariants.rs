//! What must always hold, by name, and a case in which it did not.

use std::fmt;

/// What a client, or who relies on the locks, may count on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Invariant {
    /// A lock is granted only when its last holder has been released.
    OneHolder,
    /// Every token is larger than all before it; over a restart as far as the clocks permit.
    TokensRise,
    /// A token is the wall clock of its grant, or the one after the last token.
    TokensTellTheTime,
    /// Who has waited longest gets the lock.
    FirstInFirstOut,
    /// Only a claim that is alive gets a lock, and only the one that it asked for.
    OnlyClaimsAreGranted,
    /// No lock is free while somebody waits for it.
    PushedAtOnce,
    /// Who has left, or was put out, holds nothing any more.
    ReleasedAtOnce,
    /// A release is reported with what really ended it.
    ReasonsAreTrue,
    /// Nobody is ended before a limit of its own has passed.
    NeverEarly,
    /// What was there to be read before a lease is declared expired is read before it.
    WhatWasThereCounts,
    /// Who is silent for its lease, or stuck for the io-timeout, is ended.
    NoneIsImmortal,
    /// Every message has its answer, in order.
    EverythingIsAnswered,
    /// Nothing else is answered.
    NothingElseIsAnswered,
    /// An answer says where the claim stands.
    AnswersAreTrue,
    /// An ERROR that is owed is sent, as the last thing.
    ErrorsAreSent,
    /// After an ERROR the connection is read until the peer is done, or the limits are reached.
    DrainedBeforeClose,
    /// An ERROR reaches a client that reads.
    ErrorsArrive,
    /// From the shutdown on nothing is granted.
    NobodyIsPromotedOnShutdown,
    /// Who is there when its shard shuts down is told so.
    EverybodyIsToldOfShutdown,
    /// An administrator hits whom it meant, and is told the truth.
    AdministratorsAreObeyed,
    /// The gauges are what is there.
    GaugesAreTrue,
    /// A connection is where its lock is, and goes there once.
    MovesOnce,
    /// Nobody waits for a place in an event loop that has one.
    PlacesAreUsed,
    /// Who is on the way from one event loop to another gets there.
    NobodyIsLost,
    /// When all are gone nothing stays.
    NothingStays,
}

/// A case in which an invariant did not hold.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) case: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.case)
    }
}

/// What is thought of a sighting.
pub(crate) type Verdict = Result<(), Violation>;

impl Invariant {
    /// That it holds here; the case is told only if it does not.
    pub(crate) fn holds(self, holds: bool, case: impl FnOnce() -> String) -> Verdict {
        if holds { Ok(()) } else { Err(Violation { invariant: self, case: case() }) }
    }
}
