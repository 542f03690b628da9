//! One run: a server, threads, a measured time, and the results of it.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_core::time::Instant;
use rustix::process::Signal;

use crate::clock;
use crate::course::Course;
use crate::drive::DriveConfig;
use crate::failure::Failure;
use crate::holder_process::{Crowd, CrowdConfig};
use crate::lock_names::LockNames;
use crate::mark::Mark;
use crate::outages::Outage;
use crate::pace::Pace;
use crate::plan;
use crate::preflight::preflight;
use crate::procfs::{self, Usage};
use crate::resource::{self, Prepared, Site, WriteQueue};
use crate::scenario::Scenario;
use crate::script::Share;
use crate::server_process::STOP_MAX;
use crate::settings::{Load, Settings, Target};
use crate::source::Source;
use crate::subject::Subject;
use crate::worker::{Outcome, Worker, WorkerError};

/// Slots left alone of those that the limit allows, so that a full ring is not the first to fail.
const SLOTS_SPARE: u32 = 100;

/// How long the setup may take beyond its ramp.
const SETUP_MAX: Duration = Duration::from_secs(120);

/// How often the run looks how far it is.
const LOOK: Duration = Duration::from_millis(100);

/// How often the run looks whether its threads have had their last answers.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// When the server has ended and for so long no session has, none will. A last word that was lost
/// for want of memory is sent again by the kernel, after longer and longer times.
const SEE_OFF_MAX: Duration = Duration::from_secs(8);

/// From deciding when to measure to measuring, so that all threads know in time.
const NOTICE: Duration = Duration::from_millis(20);

/// Everything that was seen of one run.
#[derive(Debug)]
pub struct Report {
    /// Where the server is.
    pub server_address: SocketAddr,
    /// What the threads have to say.
    pub outcomes: Vec<Outcome>,
    /// Processor time and memory, of the server if it is ours, and of this process.
    pub usages: Usages,
    /// When measuring began.
    pub measured_from: Instant,
    /// Measured time, as it was in the end.
    pub measured: Duration,
    /// What happened to servers and worker processes in the measured time.
    pub marks: Vec<Mark>,
    /// Failures of servers.
    pub outages: Vec<Outage>,
    /// From the beginning to the end of the setup.
    pub setup: Duration,
    /// How the server was shut down with all sessions, if it was.
    pub shutdown: Option<Shutdown>,
    /// Milliseconds since 1970 at the start of measuring.
    pub started_unix_ms: u64,
    /// Threads, each with a ring.
    pub threads: u32,
    /// The limit of open files.
    pub descriptors_max: u64,
    /// Why the measured time is not what it should have been.
    pub cut_short: Option<String>,
}

/// The end of a server that was told to shut down while all sessions were there.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// From the signal to the end of the process.
    pub took: Duration,
    /// How it ended, if it did in time.
    pub status: Option<ExitStatus>,
}

/// Readings at the start, and at both ends of the measured time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usages {
    /// The server's before the first session.
    pub server_idle: Option<Usage>,
    /// The server's at both ends.
    pub server: Option<(Usage, Usage)>,
    /// Our own at both ends.
    pub own: (Usage, Usage),
    /// The kernel's objects before the first session and with all, in bytes.
    pub slab: Option<(u64, u64)>,
}

/// Carries out a run.
///
/// # Errors
/// If there is no server, or this machine can't carry the load.
pub fn run(settings: &Settings, interrupted: &Arc<AtomicBool>) -> Result<Report, Failure> {
    let load = &settings.load;
    let descriptors_max = monolock_ring::raise_descriptor_limit();
    let threads = threads(load, descriptors_max)?;
    let course = Arc::new(Course::new(shuts_server_down(settings)));
    let mut subject = Subject::start(settings, &course, interrupted)?;
    let server_address = subject.address();
    let names = LockNames::new();
    preflight(server_address, &format!("{}/preflight", names.name(0)), load.lease_ms)
        .map_err(Failure::cut_short)?;
    let mut usages = Usages { server_idle: subject.usage()?, ..Usages::default() };
    let slab_idle = slab_bytes()?;

    let guarded = guarded(load, names)?;
    let start = clock::now().after(NOTICE);
    let site = guarded.as_ref().map(|guarded| &guarded.site);
    let workers = start_workers(load, threads, start, names, &subject, site, &course)?;
    let mut watch = Watch { course: &course, workers: &workers, interrupted, is_shown: false };
    let setup = watch.set_up(load, start, &mut subject);
    let setup_end = clock::now();
    let warmed_up = setup.and_then(|()| {
        let from = setup_end.after(load.warmup.max(NOTICE));
        course.measure(from, from.after(load.duration));
        subject.measure(from, load.duration);
        watch.sleep_until(from, &mut subject, "warming up").map_or(Ok(from), Err)
    });
    let (from, started_unix_ms, cut_short) = match warmed_up {
        Ok(from) => {
            let before = (subject.usage()?, own_usage()?);
            let started_unix_ms = unix_ms();
            let cut = watch.sleep_until(from.after(load.duration), &mut subject, "measuring");
            usages.own = (before.1, own_usage()?);
            // A server that has ended can't be looked at, which is said as the reason of the cut.
            usages.server = match subject.trouble("measuring") {
                None => before.0.zip(subject.usage()?),
                Some(_) => None,
            };
            usages.slab = Some((slab_idle, slab_bytes()?));
            (from, started_unix_ms, cut)
        }
        Err(reason) => {
            let now = clock::now();
            course.measure(now, now);
            (now, unix_ms(), Some(reason))
        }
    };
    course.note_accounted();
    let now = clock::now();
    course.end_at(now);
    let measured = now.since(from).min(load.duration);
    let shutdown = watch.shut_down_or_spare(cut_short.is_some(), threads, &mut subject);
    let cut_short = cut_short.or_else(|| watch.wait_for_workers());
    watch.clear();
    let outcomes = join(workers)?;
    Ok(Report {
        server_address,
        outcomes,
        usages,
        measured_from: from,
        measured,
        marks: subject.stop(),
        outages: course.outages.to_vec(),
        setup: setup_end.since(start),
        shutdown,
        started_unix_ms,
        threads,
        descriptors_max,
        cut_short,
    })
}

/// Whether the server is shut down while all sessions are there.
fn shuts_server_down(settings: &Settings) -> bool {
    let is_own = matches!(settings.target, Target::Own { .. });
    is_own && settings.load.scenario == Scenario::Heartbeat
}

/// As many threads as were asked for, or as are needed to have a slot for every session.
fn threads(load: &Load, descriptors_max: u64) -> Result<u32, Failure> {
    if load.has_processes() {
        return Ok(1);
    }
    let slots_max = u32::try_from(descriptors_max).unwrap_or(u32::MAX).saturating_sub(SLOTS_SPARE);
    for threads in load.threads.min(load.locks).. {
        let most = (0..threads).map(|worker| plan::sessions_of_worker(load, worker, threads)).max();
        if most.is_some_and(|most| most <= slots_max) {
            return Ok(threads);
        }
        if threads >= load.locks {
            break;
        }
    }
    Err(Failure::cut_short(format_args!(
        "all sessions of a lock are on one ring, and a ring has at most {slots_max} of them here: \
         raise RLIMIT_NOFILE (ulimit -n), or take more locks than {}",
        load.locks
    )))
}

type Workers = Vec<JoinHandle<Result<Outcome, WorkerError>>>;

/// Makes ready what the locks guard, in the scenario that is about that.
fn guarded(load: &Load, names: LockNames) -> Result<Option<Prepared>, Failure> {
    let Some(pauses) = &load.pauses else {
        return Ok(None);
    };
    let rows: Vec<String> = (0..load.locks).map(|lock| names.name(lock)).collect();
    let processes = if pauses.are_real { load.sessions } else { 0 };
    Prepared::new(&pauses.resource, &rows, processes).map(Some).map_err(Failure::cut_short)
}

/// Where holders on a ring write to.
fn writes(load: &Load, locks: u32, names: LockNames, site: &Site) -> Result<WriteQueue, Failure> {
    let rules = load.pauses.as_ref().expect("a site is made for them").rules();
    let rows = (0..locks).map(|lock| names.name(lock)).collect();
    let resource = resource::open(site, rows, rules).map_err(Failure::cut_short)?;
    if *site == Site::Memory {
        return Ok(WriteQueue::here(resource));
    }
    WriteQueue::on_a_thread(resource)
        .map_err(|error| Failure::cut_short(format_args!("no thread to be had: {error}")))
}

fn start_workers(
    load: &Load,
    threads: u32,
    start: Instant,
    names: LockNames,
    subject: &Subject,
    site: Option<&Site>,
    course: &Arc<Course>,
) -> Result<Workers, Failure> {
    let server = subject.address();
    if let Some(site) = site.filter(|_| load.has_processes()) {
        let config = CrowdConfig { server, names, site: site.clone(), start };
        let (load, course) = (load.clone(), Arc::clone(course));
        let crowd = move || Crowd::new(load, config, course).run();
        let thread = thread::Builder::new().name("processes".to_owned()).spawn(crowd);
        return thread
            .map(|thread| vec![thread])
            .map_err(|error| Failure::cut_short(format_args!("no thread to be had: {error}")));
    }
    let source = Source::new(server, load.sessions);
    let mut workers = Vec::new();
    for worker in 0..threads {
        let sessions = plan::sessions_of_worker(load, worker, threads);
        let share = Share { worker, workers: threads, start, sessions };
        let config = DriveConfig {
            sessions_max: sessions.max(1),
            locks: plan::locks_of_worker(load.locks, worker, threads),
            lease_ms: load.lease_ms,
            names: names.of_worker(worker, threads),
            source: source.clone().of_worker(worker, threads),
            counts_setup: load.scenario.records_setup(),
            pace: Pace::new(load.lease_ms, worker, threads),
            routes: subject.routes(),
        };
        let its_writes = site.map(|site| writes(load, config.locks, config.names, site));
        let its_writes = its_writes.transpose()?;
        let (load, its_course) = (load.clone(), Arc::clone(course));
        let body = move || Worker::new(&load, share, config, its_writes, its_course)?.run();
        let thread = thread::Builder::new().name(format!("worker-{worker}")).spawn(body);
        match thread {
            Ok(thread) => workers.push(thread),
            Err(error) => {
                course.abandon();
                return Err(Failure::cut_short(format_args!("no thread to be had: {error}")));
            }
        }
    }
    Ok(workers)
}

fn join(workers: Workers) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    let mut first_error = None;
    for worker in workers {
        match worker.join() {
            Ok(Ok(outcome)) => outcomes.push(outcome),
            Ok(Err(error)) => {
                first_error.get_or_insert(Failure::cut_short(error));
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    first_error.map_or(Ok(outcomes), Err)
}

/// Watches over a run from outside its threads.
struct Watch<'a> {
    course: &'a Course,
    workers: &'a Workers,
    interrupted: &'a AtomicBool,
    /// A progress line stands on the terminal.
    is_shown: bool,
}

impl Watch<'_> {
    /// Waits until all sessions of the setup stand or have failed to.
    fn set_up(&mut self, load: &Load, start: Instant, subject: &mut Subject) -> Result<(), String> {
        let end = start.after(load.ramp);
        if let Some(reason) = self.sleep_until(end, subject, "connecting") {
            return Err(reason);
        }
        let planned = u64::from(load.sessions);
        let deadline = end.after(SETUP_MAX);
        while load.scenario.has_setup() && self.course.settled.load(Ordering::Relaxed) < planned {
            if clock::now() >= deadline {
                let settled = self.course.settled.load(Ordering::Relaxed);
                return Err(format!(
                    "only {settled} of {planned} sessions had an answer {SETUP_MAX:?} after the \
                     ramp"
                ));
            }
            let next = clock::now().after(LOOK);
            if let Some(reason) = self.sleep_until(next, subject, "connecting") {
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Sleeps until then, or until there is a reason to stop, which is returned.
    fn sleep_until(
        &mut self,
        until: Instant,
        subject: &mut Subject,
        doing: &str,
    ) -> Option<String> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Some(format!("interrupted while {doing}"));
            }
            let trouble = subject.trouble(doing);
            if trouble.is_some() {
                return trouble;
            }
            let left = until.since(clock::now());
            if left.is_zero() {
                return None;
            }
            // With an error, which it will give when it is joined.
            let has_ended = self.workers.iter().any(JoinHandle::is_finished);
            if has_ended && !self.course.is_over(clock::now()) {
                return Some(format!("a thread ended while {doing}"));
            }
            self.show(doing, left);
            thread::sleep(left.min(LOOK));
        }
    }

    /// Shuts the server down under all sessions, if that is wanted and the run was not cut short.
    fn shut_down_or_spare(
        &mut self,
        is_cut_short: bool,
        threads: u32,
        subject: &mut Subject,
    ) -> Option<Shutdown> {
        let mut shutdown = None;
        if !is_cut_short && self.course.awaits_shutdown() {
            shutdown = self.shut_down(threads, subject);
        }
        if shutdown.is_none() {
            self.course.spare_server();
        }
        shutdown
    }

    /// When all threads have had their last answers, shuts the server down under all sessions. None
    /// if it doesn't come to that: then there is a reason why the threads end.
    fn shut_down(&mut self, threads: u32, subject: &mut Subject) -> Option<Shutdown> {
        let is_interrupted = || self.interrupted.load(Ordering::Relaxed);
        while self.course.drained.load(Ordering::SeqCst) < u64::from(threads) {
            if is_interrupted() || self.workers.iter().any(JoinHandle::is_finished) {
                return None;
            }
            thread::sleep(DRAIN_LOOK);
        }
        let begun = clock::now();
        self.course.shut_down();
        subject.signal(Signal::TERM);
        loop {
            let (status, took) = (subject.has_ended(), clock::now().since(begun));
            if took >= STOP_MAX {
                subject.signal(Signal::KILL);
            }
            if status.is_some() || took >= STOP_MAX || is_interrupted() {
                self.wait_for_sessions();
                return Some(Shutdown { took, status: status.filter(|_| took < STOP_MAX) });
            }
            thread::sleep(DRAIN_LOOK);
        }
    }

    /// The server has ended, and with it all sessions, unless what was started for one is not what
    /// the sessions are with.
    fn wait_for_sessions(&self) {
        let mut open = u64::MAX;
        let mut until = clock::now();
        while (clock::now() < until || self.course.open.load(Ordering::Relaxed) < open)
            && !self.workers.iter().all(JoinHandle::is_finished)
            && !self.interrupted.load(Ordering::Relaxed)
        {
            let now_open = self.course.open.load(Ordering::Relaxed);
            if now_open < open {
                (open, until) = (now_open, clock::now().after(SEE_OFF_MAX));
            }
            thread::sleep(DRAIN_LOOK);
        }
        self.course.spare_server();
    }

    /// Waits until all threads have had the last of their answers, or given up on them. If the user
    /// doesn't want to wait for that, this is the reason for a cut.
    fn wait_for_workers(&mut self) -> Option<String> {
        while !self.workers.iter().all(JoinHandle::is_finished) {
            if self.interrupted.load(Ordering::Relaxed) {
                self.course.abandon();
                return Some("interrupted while waiting for the last answers".to_owned());
            }
            thread::sleep(DRAIN_LOOK);
        }
        None
    }

    fn show(&mut self, doing: &str, left: Duration) {
        let mut stderr = io::stderr();
        if !stderr.is_terminal() {
            return;
        }
        self.is_shown = true;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Nobody is hurt if the terminal is gone.
        let _ = write!(
            stderr,
            "\r{doing}, {}s left: {} sessions, {} operations, {} lost\x1b[K",
            left.as_secs(),
            count(&self.course.open),
            count(&self.course.recorded),
            count(&self.course.lost),
        );
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn slab_bytes() -> Result<u64, Failure> {
    procfs::slab_bytes()
        .map_err(|error| Failure::cut_short(format_args!("cannot look at the kernel: {error}")))
}

fn own_usage() -> Result<Usage, Failure> {
    Usage::of(std::process::id())
        .map_err(|error| Failure::cut_short(format_args!("cannot look at this process: {error}")))
}

fn unix_ms() -> u64 {
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}
