//! How a lock is to be held, and the calls that hold it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::time::Instant;
use tokio::select;
use tokio::sync::mpsc;

use crate::acquisition::{self, Holding, Outcome, Progress, Request};
use crate::client::Client;
use crate::clock;
use crate::failure::{AcquireError, RunError};
use crate::held::{self, Handle};
use crate::input;
use crate::tenure::{Ending, State, Tenure};

const LEASE_DEFAULT: Duration = Duration::from_secs(10);

/// A lock, or several to be held together, and how: made by [`Client::lock`] and [`Client::locks`].
///
/// It is only a description, and a clone is another one of the same. What is wrong with it is said by the call that would use it, before
/// anything is dialled.
pub struct Lock<H> {
    client: Client,
    names: Vec<String>,
    lease: Duration,
    is_waiting: bool,
    wait_max: Option<Duration>,
    retries: bool,
    hold_max: Option<Duration>,
    grace: Option<Duration>,
    progress: Option<mpsc::UnboundedSender<Progress>>,
    handle: PhantomData<fn() -> H>,
}

impl<H: Handle> Lock<H> {
    pub(crate) fn new(client: Client, names: Vec<String>) -> Lock<H> {
        Lock {
            client,
            names,
            lease: LEASE_DEFAULT,
            is_waiting: true,
            wait_max: None,
            retries: false,
            hold_max: None,
            grace: None,
            progress: None,
            handle: PhantomData,
        }
    }

    /// How long the lock may sit behind a holder that has died without its connection being closed:
    /// 1 ms to 2^32-1 ms, a fraction of a millisecond is dropped. 10 s unless set.
    ///
    /// A healthy holder may hold for ever. It loses the lock after 0.8 of the lease without an
    /// answer of the server, so a short lease needs a network and a machine that are never slow.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Gives up with [`AcquireError::TimedOut`] after this time, whatever it was spent on: dialling,
    /// the queue, waiting between attempts. Without a limit unless set.
    #[must_use]
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.wait_max = Some(limit);
        self
    }

    /// Fails with [`AcquireError::Taken`] at once if somebody else holds the lock, and leaves no
    /// claim behind.
    #[must_use]
    pub fn no_wait(mut self) -> Self {
        self.is_waiting = false;
        self
    }

    /// Tries again when a claim is lost before its grant, or no connection is made: after 100 ms
    /// to 5 s, drawn at random and longer each time; at once after a server's shutdown, as another
    /// may be there. Each attempt begins at the back of the queue. The work still runs once at
    /// most.
    ///
    /// What would only come again, such as a refusal by the server, is not tried again.
    #[must_use]
    pub fn retrying(mut self) -> Self {
        self.retries = true;
        self
    }

    /// Tells the work to stop ([`StopReason::HeldLongEnough`](crate::StopReason::HeldLongEnough))
    /// when it has held for so long, counted from the grant; the lock is released when it has.
    #[must_use]
    pub fn hold_at_most(mut self, limit: Duration) -> Self {
        self.hold_max = Some(limit);
        self
    }

    /// How long async work may take to end by itself after a loss, or when it has held for long
    /// enough; then its future is dropped. Unless set, until the server may give the lock away
    /// (a fifth of the lease after the loss is noticed).
    #[must_use]
    pub fn stop_within(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Reports how getting the lock goes on.
    #[must_use]
    pub fn report_to(mut self, progress: mpsc::UnboundedSender<Progress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Acquires, runs the work, and releases when the work has ended.
    ///
    /// The work runs as a task of the current runtime, so it can't borrow from the caller.
    /// - It gets the hold, whose [token](crate::Held::token) it passes to what the lock guards.
    /// - When the lock is lost, [`Held::stopping`](crate::Held::stopping) says so, and after a
    ///   grace ([`Lock::stop_within`]) its future is dropped. Work that blocks its thread can't be
    ///   dropped; the next token that it asks for is refused.
    /// - When it panics, the lock is released and the panic goes on in the caller.
    /// - When the future of this call is dropped, a claim in the queue is given up; work that is
    ///   under way is asked to stop ([`StopReason::Cancelled`](crate::StopReason::Cancelled)), and
    ///   the lock is held until it has ended.
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if the work was not begun; else [`RunError::Lost`] if the lock was
    /// lost before the work had ended, though the work may have succeeded, and
    /// [`RunError::HeldTooLong`] if the work was told to stop.
    ///
    /// # Panics
    /// If there is no tokio runtime, or the work panics.
    pub async fn run<F, Fut>(self, work: F) -> Result<Fut::Output, RunError<Fut::Output>>
    where
        F: FnOnce(H) -> Fut,
        Fut: Future<Output: Send + 'static> + Send + 'static,
    {
        let holding = self.acquire(Instant::from_nanos(0)).await?;
        let work = work(held::handle(&holding.tenure));
        run_to_end(holding, work).await
    }

    /// Holds the lock again and again: stands for election, leads while it can, and stands again
    /// after each loss, until `lead` breaks.
    ///
    /// Each term is one call of `lead`, which should lead until its hold says to
    /// [stop](crate::Held::stopping), and then returns `Continue(())` to stand again or
    /// `Break(value)` to end. A candidate waits in the queue like everybody; failed attempts are
    /// repeated as with [`Lock::retrying`].
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if an election failed in a way that would only come again, or took
    /// longer than [`Lock::wait_at_most`]; the others if `lead` broke in a term that was lost or
    /// too long, or if a loss would only come again.
    ///
    /// # Panics
    /// As [`Lock::run`].
    pub async fn elect<T, F, Fut>(self, mut lead: F) -> Result<T, RunError<T>>
    where
        F: FnMut(H) -> Fut,
        Fut: Future<Output = ControlFlow<T>> + Send + 'static,
        T: Send + 'static,
    {
        let candidate = Lock { retries: true, ..self };
        let mut begin_at = Instant::from_nanos(0);
        loop {
            let holding = candidate.acquire(begin_at).await?;
            let term = lead(held::handle(&holding.tenure));
            match next_term(run_to_end(holding, term).await) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(wait) => begin_at = clock::now().after(wait),
            }
        }
    }

    /// [`Lock::run`] for code without a runtime: acquires, runs the work on this thread, releases.
    ///
    /// Nothing can stop a thread: work that takes its time should look at
    /// [`Held::stop_reason`](crate::Held::stop_reason) between its steps.
    ///
    /// # Errors
    /// As [`Lock::run`].
    ///
    /// # Panics
    /// If called from async code, which it would block, or the work panics.
    pub fn run_blocking<T>(self, work: impl FnOnce(H) -> T) -> Result<T, RunError<T>> {
        let holding = acquired(self.begin(Instant::from_nanos(0))?.blocking_recv())?;
        let output = work(held::handle(&holding.tenure));
        judge(holding.finish_on_thread(), Some(output))
    }

    /// [`Lock::elect`] for code without a runtime.
    ///
    /// # Errors
    /// As [`Lock::elect`].
    ///
    /// # Panics
    /// As [`Lock::run_blocking`].
    pub fn elect_blocking<T>(
        self,
        mut lead: impl FnMut(H) -> ControlFlow<T>,
    ) -> Result<T, RunError<T>> {
        let candidate = Lock { retries: true, ..self };
        let mut begin_at = Instant::from_nanos(0);
        loop {
            let holding = acquired(candidate.begin(begin_at)?.blocking_recv())?;
            let output = lead(held::handle(&holding.tenure));
            match next_term(judge(holding.finish_on_thread(), Some(output))) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(wait) => begin_at = clock::now().after(wait),
            }
        }
    }

    async fn acquire(&self, begin_at: Instant) -> Result<Holding, AcquireError> {
        acquired(self.begin(begin_at)?.await)
    }

    fn begin(&self, begin_at: Instant) -> Result<Outcome, AcquireError> {
        let lease_ms = input::lease_ms(self.lease)?;
        let names = input::sorted_names(self.names.clone())?;
        let reservation = self.client.reserve(names)?;
        acquisition::begin(Request {
            address: self.client.address().to_owned(),
            reservation,
            lease_ms,
            is_waiting: self.is_waiting,
            retries: self.retries,
            begin_at,
            give_up_at: self.wait_max.map_or(Instant::NEVER, |max| clock::now().after(max)),
            hold_max: self.hold_max,
            grace: self.grace,
            progress: self.progress.clone(),
        })
    }
}

fn acquired<E>(outcome: Result<Result<Holding, AcquireError>, E>) -> Result<Holding, AcquireError> {
    outcome.unwrap_or_else(|_| Err(AcquireError::System("its thread has ended".into())))
}

async fn run_to_end<Fut>(holding: Holding, work: Fut) -> Result<Fut::Output, RunError<Fut::Output>>
where
    Fut: Future<Output: Send + 'static> + Send + 'static,
{
    let _cancelled_with_caller = CancelOnDrop(Arc::clone(&holding.tenure));
    let task = tokio::spawn(async move {
        let output = run_until_overdue(&holding.tenure, work).await;
        judge(holding.finish().await, output)
    });
    match task.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is being shut down, and with it whoever could take this result.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Runs the work, and drops it when it is overdue. On return it has ended either way.
async fn run_until_overdue<Fut: Future>(tenure: &Tenure, work: Fut) -> Option<Fut::Output> {
    select! {
        biased;
        output = work => Some(output),
        () = tenure.until(|state: &State| state.is_overdue().then_some(())) => None,
    }
}

fn judge<T>(ending: Ending, output: Option<T>) -> Result<T, RunError<T>> {
    match (ending, output) {
        (Ending::Lost(loss), output) => Err(RunError::Lost { loss, output }),
        (Ending::Kept, Some(output)) => Ok(output),
        // Work is dropped only after a loss or when it has held for too long.
        (Ending::HeldTooLong | Ending::Kept, output) => Err(RunError::HeldTooLong { output }),
    }
}

/// What follows from a term: another one after a wait, or the end.
fn next_term<T>(
    term: Result<ControlFlow<T>, RunError<ControlFlow<T>>>,
) -> ControlFlow<Result<T, RunError<T>>, Duration> {
    use ControlFlow::{Break, Continue};
    match term {
        Ok(Break(value)) => Break(Ok(value)),
        Ok(Continue(())) => Continue(Duration::ZERO),
        Err(RunError::NotAcquired(error)) => Break(Err(error.into())),
        Err(RunError::HeldTooLong { output: Some(Break(value)) }) => {
            Break(Err(RunError::HeldTooLong { output: Some(value) }))
        }
        Err(RunError::HeldTooLong { .. }) => Continue(Duration::ZERO),
        Err(RunError::Lost { loss, output: Some(Break(value)) }) => {
            Break(Err(RunError::Lost { loss, output: Some(value) }))
        }
        Err(RunError::Lost { loss, .. }) => match acquisition::wait_after_tenure(&loss) {
            Some(wait) => Continue(wait),
            None => Break(Err(RunError::Lost { loss, output: None })),
        },
    }
}

/// Asks the work to stop if nobody waits for its result any more.
struct CancelOnDrop(Arc<Tenure>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

// By hand, as no handle needs to be cloned.
impl<H> Clone for Lock<H> {
    fn clone(&self) -> Lock<H> {
        Lock {
            client: self.client.clone(),
            names: self.names.clone(),
            lease: self.lease,
            is_waiting: self.is_waiting,
            wait_max: self.wait_max,
            retries: self.retries,
            hold_max: self.hold_max,
            grace: self.grace,
            progress: self.progress.clone(),
            handle: PhantomData,
        }
    }
}

impl<H> fmt::Debug for Lock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("client", &self.client)
            .field("names", &self.names)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
