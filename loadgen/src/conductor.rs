//! The servers of a run whose servers fail: starts them behind one address, lets them fail by the
//! plan, and lets others take over. On a thread of its own, as it is about moments.

mod staging;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_core::time::Instant;
use rustix::process::Signal;
use thiserror::Error;

use self::staging::{Clocks, StagingError};
use crate::clock;
use crate::course::Course;
use crate::forwarder::{Forwarder, ForwarderError, Routes, Target};
use crate::kill_plan::{KillPlan, Successor, Way};
use crate::mark::{Mark, MarkKind};
use crate::server_process::{Launch, ServerProcess, StartError};

/// How often it is looked whether everything is still there.
const LOOK: Duration = Duration::from_millis(50);

/// Why a run's servers can't be had, or not any more.
#[derive(Debug, Error)]
pub enum ConductorError {
    /// A server doesn't start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The forwarder doesn't start, or has ended.
    #[error(transparent)]
    Forwarder(#[from] ForwarderError),
    /// Clocks can't be staged.
    #[error(transparent)]
    Staging(#[from] StagingError),
    /// There is no thread to be had.
    #[error("no thread to be had: {0}")]
    Thread(#[from] io::Error),
    /// A server has ended by itself.
    #[error("server {server} ended though nobody had killed it ({status})")]
    Ended {
        /// Which one, counted from 0.
        server: u32,
        /// How.
        status: ExitStatus,
    },
    /// A server that was asked to end did so in a way of its own.
    #[error("server {server} was shut down by SIGTERM and ended with {status}, and not with 0")]
    Shutdown {
        /// Which one, counted from 0.
        server: u32,
        /// How.
        status: ExitStatus,
    },
    /// A server doesn't end.
    #[error("server {server} has not ended long after {signal}", signal = signal_name(*way))]
    Hanging {
        /// Which one, counted from 0.
        server: u32,
        /// How it was made to.
        way: Way,
    },
}

fn signal_name(way: Way) -> &'static str {
    match way {
        Way::Kill => "SIGKILL",
        Way::Stop => "SIGSTOP",
        Way::Term => "SIGTERM",
    }
}

/// What the conductor is told.
enum Order {
    /// Measuring begins then, and takes that long.
    Measure(Instant, Duration),
    /// The run is over.
    Stop,
}

/// The servers of a run, seen from outside. They end when this is dropped.
#[derive(Debug)]
pub struct Conductor {
    address: SocketAddr,
    routes: Routes,
    orders: Sender<Order>,
    error: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<Vec<Mark>>>,
}

/// What servers are started, and what is done to them.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The server's program.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What is done to it.
    pub plan: KillPlan,
    /// What the ways of failing are drawn from.
    pub seed: u64,
    /// Clients at once.
    pub sessions: u32,
}

impl Conductor {
    /// Starts the servers and what leads to them. Failures are noted in the course.
    ///
    /// # Errors
    /// If they can't be had, in one line.
    pub fn start(
        piece: Piece,
        course: Arc<Course>,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Conductor, ConductorError> {
        let (orders, inbox) = mpsc::channel();
        let (started, has_started) = mpsc::sync_channel(1);
        let error = Arc::new(Mutex::new(None));
        let its_error = Arc::clone(&error);
        // Its children end with this thread, so it lives until they have.
        let body = move || {
            let mut stage = match Stage::set(piece, inbox, course, interrupted) {
                Ok(stage) => stage,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return Vec::new();
                }
            };
            let _ = started.send(Ok((stage.forwarder.address(), stage.forwarder.routes())));
            if let Err(End::Failed(error)) = stage.perform() {
                *its_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                stage.wait_for_stop();
            }
            stage.strike()
        };
        let thread = thread::Builder::new().name("conductor".into()).spawn(body)?;
        let (address, routes) = has_started.recv().expect("it says how it started")?;
        Ok(Conductor { address, routes, orders, error, thread: Some(thread) })
    }

    /// The one address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which client is connected to which server.
    pub fn routes(&self) -> Routes {
        self.routes.clone()
    }

    /// Says when measuring begins. The first failure comes after that.
    pub fn measure(&self, from: Instant, duration: Duration) {
        // A conductor that has ended has said why.
        let _ = self.orders.send(Order::Measure(from, duration));
    }

    /// Why it can't go on.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the servers. Returns what happened to them in the measured time.
    pub fn stop(mut self) -> Vec<Mark> {
        self.join()
    }

    fn join(&mut self) -> Vec<Mark> {
        let _ = self.orders.send(Order::Stop);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(marks)) => marks,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Vec::new(),
        }
    }
}

impl Drop for Conductor {
    fn drop(&mut self) {
        self.join();
    }
}

/// Why a performance ends early.
enum End {
    Stopped,
    Failed(ConductorError),
}

impl<E: Into<ConductorError>> From<E> for End {
    fn from(error: E) -> End {
        End::Failed(error.into())
    }
}

/// A server, with its number in their succession.
struct Server {
    number: u32,
    process: ServerProcess,
}

impl Server {
    fn target(&self) -> Target {
        Target { server: self.number, address: self.process.address() }
    }

    fn check(&mut self) -> Result<(), ConductorError> {
        match self.process.has_ended() {
            Some(status) => Err(ConductorError::Ended { server: self.number, status }),
            None => Ok(()),
        }
    }
}

/// The servers themselves.
struct Stage {
    piece: Piece,
    inbox: Receiver<Order>,
    course: Arc<Course>,
    interrupted: Arc<AtomicBool>,
    forwarder: Forwarder,
    clocks: Option<Clocks>,
    /// Who has the clients.
    leading: Server,
    standby: Option<Server>,
    /// Who had them before, until it is ended.
    failed: Option<(Server, Way)>,
    marks: Vec<Mark>,
}

impl Stage {
    fn set(
        piece: Piece,
        inbox: Receiver<Order>,
        course: Arc<Course>,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Stage, ConductorError> {
        let clocks = if piece.plan.stages_clocks() {
            Some(Clocks::of(&piece.plan, &piece.path, &piece.args, &interrupted)?)
        } else {
            None
        };
        let forwarder = Forwarder::start(piece.sessions)?;
        let leading = start_server(&piece, clocks.as_ref(), 0, Launch::ANY_PORT, &interrupted)?;
        let standby = match piece.plan.successor {
            Successor::Standby { .. } => {
                Some(start_server(&piece, clocks.as_ref(), 1, Launch::ANY_PORT, &interrupted)?)
            }
            Successor::Restart => None,
        };
        forwarder.point_at(leading.target());
        let (failed, marks) = (None, Vec::new());
        Ok(Stage {
            piece,
            inbox,
            course,
            interrupted,
            forwarder,
            clocks,
            leading,
            standby,
            failed,
            marks,
        })
    }

    /// Lets servers fail by the plan, and then looks after the last one until it is stopped.
    fn perform(&mut self) -> Result<(), End> {
        let (from, duration) = self.wait_for_beginning()?;
        if let Some(clocks) = &mut self.clocks {
            clocks.begin(from);
        }
        let every = self.piece.plan.every;
        let failures = self.piece.plan.failures(duration);
        let ways = self.piece.plan.draw(self.piece.seed);
        for (number, way) in (1..=failures).zip(ways) {
            self.wait_until(from.after(every * number))?;
            match self.piece.plan.successor {
                Successor::Standby { takeover_after, wake_after, fences, .. } => {
                    self.fail_over(way, takeover_after, wake_after, fences)?;
                }
                Successor::Restart => self.restart(way)?,
            }
        }
        self.wait_until(Instant::NEVER)
    }

    /// The leading server fails, the standby takes over, and a fresh standby is started in the
    /// failed one's place.
    fn fail_over(
        &mut self,
        way: Way,
        takeover_after: Duration,
        wake_after: Duration,
        fences: bool,
    ) -> Result<(), End> {
        let at = self.let_fail(way);
        self.wait_until(at.after(takeover_after))?;
        // One that shuts down ends its connections itself, and tells why.
        if fences && way != Way::Term {
            self.forwarder.fence()?;
        }
        let standby = self.standby.take().expect("there is always one when a server fails");
        self.forwarder.point_at(standby.target());
        self.failed = Some((std::mem::replace(&mut self.leading, standby), way));
        self.take_over();
        if way == Way::Stop {
            self.wait_until(at.after(wake_after))?;
            self.wake();
        }
        self.wait_until(at.after(self.piece.plan.replaced_after()))?;
        self.end_failed()?;
        self.standby = Some(self.start_another(self.leading.number + 1, Launch::ANY_PORT)?);
        Ok(())
    }

    /// The leading server fails and is started again at the same address.
    fn restart(&mut self, way: Way) -> Result<(), End> {
        self.let_fail(way);
        let Server { number, process } = &mut self.leading;
        let (number, address) = (*number, process.address());
        let status = process.wait_for_end();
        check_status(number, way, status)?;
        self.forwarder.drop_unanswered()?;
        self.forwarder.point_at(Target { server: number + 1, address });
        self.leading = self.start_another(number + 1, address)?;
        self.take_over();
        Ok(())
    }

    fn let_fail(&mut self, way: Way) -> Instant {
        let at = clock::now();
        self.course.outages.begin(way, at);
        self.leading.process.signal(way.signal());
        let kind = match way {
            Way::Kill => MarkKind::Kill,
            Way::Stop => MarkKind::Pause,
            Way::Term => MarkKind::Shutdown,
        };
        self.mark(at, kind, label(self.leading.number));
        at
    }

    /// Notes that the leading server is ready for all clients.
    fn take_over(&mut self) {
        let now = clock::now();
        self.course.outages.succeed(now);
        let kind = match self.piece.plan.successor {
            Successor::Standby { .. } => MarkKind::Takeover,
            Successor::Restart => MarkKind::Start,
        };
        self.mark(now, kind, label(self.leading.number));
    }

    /// The server that has failed goes on as if nothing had been.
    fn wake(&mut self) {
        if let Some((server, _)) = &mut self.failed {
            server.process.signal(Signal::CONT);
            let label = label(server.number);
            self.mark(clock::now(), MarkKind::Resume, label);
        }
    }

    /// Ends the server that has failed, if it hasn't yet.
    fn end_failed(&mut self) -> Result<(), ConductorError> {
        let Some((mut server, way)) = self.failed.take() else {
            return Ok(());
        };
        if way == Way::Stop {
            server.process.signal(Signal::KILL);
            self.mark(clock::now(), MarkKind::Kill, label(server.number));
        }
        let status = server.process.wait_for_end();
        check_status(server.number, way, status)
    }

    fn start_another(&self, number: u32, listen: SocketAddr) -> Result<Server, ConductorError> {
        start_server(&self.piece, self.clocks.as_ref(), number, listen, &self.interrupted)
    }

    fn mark(&mut self, at: Instant, kind: MarkKind, label: String) {
        self.marks.push(Mark { at, kind, label });
    }

    fn wait_for_beginning(&mut self) -> Result<(Instant, Duration), End> {
        loop {
            match self.inbox.recv_timeout(LOOK) {
                Ok(Order::Measure(from, duration)) => return Ok((from, duration)),
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(End::Stopped),
                Err(RecvTimeoutError::Timeout) => self.look()?,
            }
        }
    }

    /// Waits until then, and looks after servers, forwarder and clocks meanwhile.
    fn wait_until(&mut self, until: Instant) -> Result<(), End> {
        loop {
            let now = clock::now();
            if now >= until {
                return Ok(());
            }
            let next = self.clocks.as_ref().map_or(Instant::NEVER, Clocks::next_at).min(until);
            match self.inbox.recv_timeout(next.since(now).min(LOOK)) {
                Ok(Order::Measure(..)) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(End::Stopped),
                Err(RecvTimeoutError::Timeout) => self.look()?,
            }
        }
    }

    fn look(&mut self) -> Result<(), End> {
        self.forwarder.check()?;
        // The leading one may have failed by the plan.
        if !self.course.outages.is_out() {
            self.leading.check()?;
        }
        if let Some(standby) = &mut self.standby {
            standby.check()?;
        }
        let now = clock::now();
        if let Some(clocks) = &mut self.clocks
            && clocks.next_at() <= now
        {
            let label = clocks.step()?;
            self.mark(now, MarkKind::ClockStep, label);
        }
        Ok(())
    }

    fn wait_for_stop(&self) {
        while let Ok(order) = self.inbox.recv() {
            if matches!(order, Order::Stop) {
                return;
            }
        }
    }

    /// Ends everything. A server that is stopped can't be asked to.
    fn strike(mut self) -> Vec<Mark> {
        if self.course.outages.is_out() {
            self.leading.process.signal(Signal::KILL);
        }
        if let Some((server, _)) = &mut self.failed {
            server.process.signal(Signal::KILL);
        }
        self.marks
    }
}

fn start_server(
    piece: &Piece,
    clocks: Option<&Clocks>,
    number: u32,
    listen: SocketAddr,
    interrupted: &AtomicBool,
) -> Result<Server, ConductorError> {
    let clock = clocks.map(|clocks| clocks.of_server(number));
    let launch = Launch { path: &piece.path, args: &piece.args, listen, clock };
    Ok(Server { number, process: ServerProcess::start(&launch, interrupted)? })
}

fn check_status(server: u32, way: Way, status: Option<ExitStatus>) -> Result<(), ConductorError> {
    match status {
        None => Err(ConductorError::Hanging { server, way }),
        Some(status) if way == Way::Term && !status.success() => {
            Err(ConductorError::Shutdown { server, status })
        }
        Some(_) => Ok(()),
    }
}

fn label(number: u32) -> String {
    format!("server {number}")
}
