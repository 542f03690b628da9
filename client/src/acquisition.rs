//! Getting the locks of one call, on the driver's thread: one after the other in the order of their
//! names, all or none, again and again if that is wished.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::backoff::Backoff;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use tokio::select;
use tokio::sync::{mpsc, oneshot};

use crate::client::Reservation;
use crate::clock::{self, Timer};
use crate::driver::Driver;
use crate::failure::{AcquireError, Loss};
use crate::session::{Answer, Session};
use crate::tenure::{Ending, Tenure};

/// How getting a lock goes on, for whoever wants to watch it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Somebody else holds this lock: the claim is in its queue.
    Queued {
        /// The lock.
        name: String,
    },
    /// An attempt has failed, and there will be another one.
    Retrying {
        /// Why.
        failure: AcquireError,
        /// How long from now.
        after: Duration,
    },
}

/// What one call wants.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) address: String,
    pub(crate) reservation: Reservation,
    pub(crate) lease_ms: NonZeroU32,
    pub(crate) is_waiting: bool,
    pub(crate) retries: bool,
    /// Nothing is dialled before.
    pub(crate) begin_at: Instant,
    /// Nothing is waited for after.
    pub(crate) give_up_at: Instant,
    pub(crate) hold_max: Option<Duration>,
    pub(crate) grace: Option<Duration>,
    pub(crate) progress: Option<mpsc::UnboundedSender<Progress>>,
}

/// Locks that are held. Dropped, they are released.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) tenure: Arc<Tenure>,
    /// Last, so that the names are free for this client only when the locks are.
    _reservation: Reservation,
    /// Keeps the heartbeats going.
    _driver: Arc<Driver>,
}

impl Holding {
    /// The work has ended, and it is dropped.
    pub(crate) async fn finish(self) -> Ending {
        let ending = self.tenure.release();
        self.tenure.closed().await;
        ending
    }

    /// The same on a thread.
    pub(crate) fn finish_on_thread(self) -> Ending {
        let ending = self.tenure.release();
        self.tenure.wait_until_closed();
        ending
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // After `finish` this says the same again. Else the work has panicked or was never begun,
        // and nobody asks how it ended.
        self.tenure.release();
    }
}

/// Where the outcome of a request will come.
pub(crate) type Outcome = oneshot::Receiver<Result<Holding, AcquireError>>;

/// Has the driver get the locks. Dropping the outcome gives the claims up, held or not.
pub(crate) fn begin(request: Request) -> Result<Outcome, AcquireError> {
    let driver = Driver::shared().map_err(|error| AcquireError::system(&error))?;
    let (mut reply, outcome) = oneshot::channel();
    let keeping = Arc::clone(&driver);
    driver.spawn(async move {
        let acquired = select! {
            biased;
            // Nobody waits: what this has claimed is dropped.
            () = reply.closed() => return,
            acquired = acquire_in_time(&request) => acquired,
        };
        let holding = acquired.map(|tenure| Holding {
            tenure,
            _reservation: request.reservation,
            _driver: keeping,
        });
        // If nobody waits any more, it is dropped, and so released.
        let _ = reply.send(holding);
    });
    Ok(outcome)
}

async fn acquire_in_time(request: &Request) -> Result<Arc<Tenure>, AcquireError> {
    let mut timer = Timer::new().map_err(|error| AcquireError::system(&error))?;
    let mut last_failure = None;
    let acquired = select! {
        biased;
        acquired = acquire(request, &mut last_failure) => Some(acquired),
        _ = timer.at(request.give_up_at) => None,
    };
    acquired
        .unwrap_or_else(|| Err(AcquireError::TimedOut { last_failure: last_failure.map(Box::new) }))
}

async fn acquire(
    request: &Request,
    last_failure: &mut Option<AcquireError>,
) -> Result<Arc<Tenure>, AcquireError> {
    let mut timer = Timer::new().map_err(|error| AcquireError::system(&error))?;
    timer.at(request.begin_at).await.map_err(|error| AcquireError::system(&error))?;
    let mut backoff = Backoff::new();
    loop {
        let failure = match attempt(request, &mut backoff).await {
            Ok(tenure) => return Ok(tenure),
            Err(failure) => failure,
        };
        let wait = if request.retries { wait_after(&failure, &mut backoff) } else { None };
        let Some(wait) = wait else {
            return Err(failure);
        };
        request.report(|| Progress::Retrying { failure: failure.clone(), after: wait });
        *last_failure = Some(failure);
        let again_at = clock::now().after(wait);
        timer.at(again_at).await.map_err(|error| AcquireError::system(&error))?;
    }
}

/// How long to stay away after this failure; `None` if it would only come again.
fn wait_after(failure: &AcquireError, backoff: &mut Backoff) -> Option<Duration> {
    match failure {
        AcquireError::Unreachable { .. } => Some(backoff.after_failed_dial(fastrand::u32(..))),
        AcquireError::Lost { loss, .. } => backoff.after_loss(loss.in_core()?, fastrand::u32(..)),
        _ => None,
    }
}

/// How long to stay away after a lock was held and lost; `None` if that would only come again.
pub(crate) fn wait_after_tenure(loss: &Loss) -> Option<Duration> {
    match loss {
        // By whoever holds it now, a while longer.
        Loss::Fenced => Some(Backoff::new().after_failed_dial(fastrand::u32(..))),
        loss => Backoff::new().after_loss(loss.in_core()?, fastrand::u32(..)),
    }
}

/// One attempt at all locks. Those that are granted are kept alive while the next is waited for.
async fn attempt(request: &Request, backoff: &mut Backoff) -> Result<Arc<Tenure>, AcquireError> {
    let watch = Timer::new().map_err(|error| AcquireError::system(&error))?;
    let tenure = Arc::new(Tenure::new(request.reservation.names.clone(), request.lease_ms));
    let begun = ReleasedUnlessWhole(Some(tenure));
    let tenure = begun.0.as_ref().expect("until it is whole");
    for (index, name) in tenure.names.iter().enumerate() {
        let (session, token) = select! {
            biased;
            loss = tenure.until(|state| state.loss().cloned()) => {
                return Err(AcquireError::Lost { name: tenure.names.join(", "), loss });
            }
            claimed = claim(request, name, backoff) => claimed?,
        };
        tenure.grant(token, session.claim());
        tokio::spawn(session.keep(Arc::clone(tenure), index));
    }
    let tenure = begun.whole();
    let hold_until = request.hold_max.map_or(Instant::NEVER, |max| clock::now().after(max));
    tokio::spawn(watch_time(Arc::clone(&tenure), watch, hold_until, request.grace));
    Ok(tenure)
}

async fn claim(
    request: &Request,
    name: &str,
    backoff: &mut Backoff,
) -> Result<(Session, Token), AcquireError> {
    let mut session = Session::dial(&request.address, name, request.lease_ms).await?;
    loop {
        let answer = session.answer(name).await?;
        backoff.answered();
        match answer {
            Answer::Granted(token) => return Ok((session, token)),
            // The connection is closed, and with it the place in the queue is given up.
            Answer::Queued if !request.is_waiting => {
                return Err(AcquireError::Taken { name: name.to_owned() });
            }
            Answer::Queued => request.report(|| Progress::Queued { name: name.to_owned() }),
        }
    }
}

impl Request {
    fn report(&self, progress: impl FnOnce() -> Progress) {
        if let Some(sender) = &self.progress {
            // Whoever has stopped to listen doesn't want to know.
            let _ = sender.send(progress());
        }
    }
}

/// An attempt that fails lets go of what it has got so far.
struct ReleasedUnlessWhole(Option<Arc<Tenure>>);

impl ReleasedUnlessWhole {
    fn whole(mut self) -> Arc<Tenure> {
        self.0.take().expect("only taken here")
    }
}

impl Drop for ReleasedUnlessWhole {
    fn drop(&mut self) {
        if let Some(tenure) = &self.0 {
            tenure.release();
        }
    }
}

/// Asks the work to stop when it has held for long enough, and gives up waiting for it when the
/// grace after that, or after a loss, is over.
async fn watch_time(
    tenure: Arc<Tenure>,
    mut timer: Timer,
    hold_until: Instant,
    grace: Option<Duration>,
) {
    select! {
        biased;
        () = tenure.until(|state| (state.must_stop() || state.is_released()).then_some(())) => {}
        // If time can't be told, it is over.
        _ = timer.at(hold_until) => tenure.hold_time_is_over(),
    }
    let now = clock::now();
    let overdue_at = grace.map_or_else(|| tenure.grace_ends_at(now), |grace| now.after(grace));
    select! {
        biased;
        () = tenure.until(|state| state.is_released().then_some(())) => {}
        _ = timer.at(overdue_at) => tenure.grace_is_over(),
    }
}
