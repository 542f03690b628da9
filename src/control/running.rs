//! The running server as the endpoints of the control plane see it: its event loops, what they last
//! said of themselves, and whether it is on its way out.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use monolock_core::counts::Counts;
use monolock_core::fencing::TokenMint;
use monolock_core::time::UnixTime;
use tokio::time::timeout;

use super::loop_watch::LoopWatch;
use crate::clock;
use crate::inspection::Tally;
use crate::shards::{AcceptCounts, ShardHandle};

/// How long the answer of an event loop is waited for. One that takes longer is behind, and who
/// looks after the server must not be kept waiting to be told so.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The server, shared by all that runs on the control plane's thread.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) shards: Arc<[ShardHandle]>,
    pub(super) mint: Arc<TokenMint>,
    pub(super) accept_counts: Arc<AcceptCounts>,
    pub(super) loop_watch: LoopWatch,
    pub(super) started_at: UnixTime,
    pub(super) last_reload: Cell<Reload>,
    is_shutting_down: Cell<bool>,
    /// What each loop said last.
    reports: RefCell<Vec<LoopReport>>,
}

/// What came of reading the files again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reload {
    pub(super) at: UnixTime,
    pub(super) has_succeeded: bool,
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
        mint: Arc<TokenMint>,
        accept_counts: Arc<AcceptCounts>,
    ) -> Running {
        let now = clock::now().unix;
        Running {
            loop_watch: LoopWatch::new(shards.len()),
            reports: RefCell::new(vec![LoopReport::default(); shards.len()]),
            shards,
            mint,
            accept_counts,
            started_at: now,
            last_reload: Cell::new(Reload { at: now, has_succeeded: true }),
            is_shutting_down: Cell::new(false),
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
