//! The running server as the endpoints of the control plane see it: its event loops, what they last
//! said of themselves, and whether it is on its way out.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::counts::Counts;
use monolock_core::fencing::TokenMint;
use monolock_core::shard_map::ShardMap;
use monolock_core::time::{Instant, UnixTime};
use thiserror::Error;
use tokio::time::timeout;

use super::loop_watch::LoopWatch;
use crate::audit::Ledger;
use crate::clock;
use crate::inspection::{Inspected, Tally};
use crate::shards::{AcceptCounts, ShardHandle};

/// How long the answer of an event loop is waited for. One that takes longer is behind, and who
/// looks after the server must not be kept waiting to be told so.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The server, shared by all that runs on the control plane's thread.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) shards: Arc<[ShardHandle]>,
    shard_map: ShardMap,
    pub(super) addresses: Addresses,
    pub(super) mint: Arc<TokenMint>,
    pub(super) accept_counts: Arc<AcceptCounts>,
    pub(super) audit_ledger: Ledger,
    pub(super) loop_watch: LoopWatch,
    pub(super) started: Instant,
    pub(super) started_at: UnixTime,
    pub(super) last_reload: Cell<Reload>,
    is_shutting_down: Cell<bool>,
    drain: Cell<Option<Drain>>,
    drains_begun: Cell<u64>,
    /// What each loop said last.
    reports: RefCell<Vec<LoopReport>>,
}

/// Where the server listens.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) listen: SocketAddr,
    /// Empty if it does not.
    pub(super) ops: String,
    /// Empty if it does not.
    pub(super) admin: String,
}

/// An event loop has not answered in time.
#[derive(Clone, Copy, Debug, Error)]
#[error("event loop {0} does not answer")]
pub(super) struct Unanswered(usize);

/// What came of reading the files again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reload {
    pub(super) at: UnixTime,
    pub(super) has_succeeded: bool,
}

/// The server is being emptied before a shutdown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Which one it is of all that there were.
    pub(super) number: u64,
    pub(super) began: Instant,
    /// When the server shuts down at the latest.
    pub(super) ends_at: Instant,
}

/// What an event loop says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoopReport {
    pub(super) counts: Counts,
    pub(super) tally: Tally,
    /// The processor time of its thread.
    pub(super) busy: Duration,
    /// It has answered in time.
    pub(super) is_current: bool,
}

impl Running {
    pub(super) fn new(
        shards: Arc<[ShardHandle]>,
        shard_map: ShardMap,
        addresses: Addresses,
        mint: Arc<TokenMint>,
        accept_counts: Arc<AcceptCounts>,
        audit_ledger: Ledger,
    ) -> Running {
        let now = clock::now();
        Running {
            loop_watch: LoopWatch::new(shards.len()),
            reports: RefCell::new(vec![LoopReport::default(); shards.len()]),
            shards,
            shard_map,
            addresses,
            mint,
            accept_counts,
            audit_ledger,
            started: now.instant,
            started_at: now.unix,
            last_reload: Cell::new(Reload { at: now.unix, has_succeeded: true }),
            is_shutting_down: Cell::new(false),
            drain: Cell::new(None),
            drains_begun: Cell::new(0),
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.get()
    }

    /// Files were read again.
    pub(super) fn note_reload(&self, has_succeeded: bool) {
        self.last_reload.set(Reload { at: clock::now().unix, has_succeeded });
    }

    /// From now on the server is on its way out.
    pub(super) fn begin_to_shut_down(&self) {
        self.is_shutting_down.set(true);
    }

    /// The drain that is under way.
    pub(super) fn drain(&self) -> Option<Drain> {
        self.drain.get()
    }

    /// Begins a drain, or gives the one that is under way another limit, from now on. Returns it
    /// and whether it is new.
    pub(super) fn begin_to_drain(&self, limit: Duration) -> (Drain, bool) {
        let now = clock::monotonic();
        let under_way = self.drain.get();
        let (number, began) = under_way.map_or_else(
            || (self.drains_begun.get() + 1, now),
            |drain| (drain.number, drain.began),
        );
        let drain = Drain { number, began, ends_at: now.after(limit) };
        self.drains_begun.set(number);
        self.drain.set(Some(drain));
        (drain, under_way.is_none())
    }

    /// Forgets the drain that is under way. Whether there was one.
    pub(super) fn cancel_drain(&self) -> bool {
        self.drain.take().is_some()
    }

    /// The number of the event loop that owns the lock of this name.
    pub(super) fn owner(&self, name: &str) -> usize {
        self.shard_map.owner(name) as usize
    }

    /// Asks an event loop something.
    pub(super) async fn ask<A: Send + 'static>(
        &self,
        shard: usize,
        ask: impl FnOnce(Inspected<'_>) -> A + Send + 'static,
    ) -> Result<A, Unanswered> {
        match timeout(ANSWER_WITHIN, self.shards[shard].ask(ask)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(Unanswered(shard)),
        }
    }

    /// What every event loop says of itself now, or said last if it does not answer in time.
    /// Nothing that was counted is ever taken back.
    pub(super) async fn loop_reports(&self) -> Vec<LoopReport> {
        let deadline = clock::monotonic().after(ANSWER_WITHIN);
        let answers: Vec<_> = (self.shards.iter())
            .map(|shard| {
                shard.ask(|inspected| LoopReport {
                    counts: *inspected.engine.counts(),
                    tally: inspected.tally,
                    busy: clock::thread_cpu(),
                    is_current: true,
                })
            })
            .collect();
        for (shard, answer) in answers.into_iter().enumerate() {
            let answer = timeout(deadline.since(clock::monotonic()), answer).await;
            let report = &mut self.reports.borrow_mut()[shard];
            match answer {
                Ok(Ok(answer)) => *report = answer,
                Ok(Err(_)) | Err(_) => report.is_current = false,
            }
        }
        self.reports.borrow().clone()
    }
}
