//! The thread that starts the processes, stops and wakes them by the plan, and makes of what they
//! tell the same outcome as a thread with sessions on a ring has.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use monolock_core::claim::Loss;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use rustix::process::{Pid, Signal, kill_process};

use super::{Job, News, Told};
use crate::busy_time::BusyTime;
use crate::checker::{Checker, ServerEnd, Who};
use crate::clock;
use crate::course::Course;
use crate::lock_names::LockNames;
use crate::mark::MarkKind;
use crate::pause_plan::{Pause, PausePlan};
use crate::phase::Phase;
use crate::plan;
use crate::recorder::{Recorder, Timing};
use crate::resource::{Author, Site, Written};
use crate::script::Share;
use crate::settings::{Load, Pauses};
use crate::silence::Silence;
use crate::worker::{DRAIN_LOOK, DRAIN_MAX, Outcome, SLEEP_MAX, WorkerError};

/// How long a write takes at most that one may count on.
const WRITE_PATIENCE: Duration = Duration::from_millis(100);

/// What a crowd is made for.
#[derive(Debug)]
pub struct CrowdConfig {
    /// What to claim locks from.
    pub server: SocketAddr,
    /// What the locks are called.
    pub names: LockNames,
    /// What they guard.
    pub site: Site,
    /// When the plan begins.
    pub start: Instant,
}

/// All processes of a run.
#[expect(missing_debug_implementations, reason = "a plan is nothing to show")]
pub struct Crowd {
    load: Load,
    pauses: Pauses,
    config: CrowdConfig,
    course: Arc<Course>,
    /// Processes to start, the next one last.
    settlers: Vec<(Instant, u32)>,
    plan: PausePlan,
    holders: Vec<Holder>,
    /// By lock, who fell silent last.
    silent: Vec<Option<u32>>,
    tell: Sender<Line>,
    told: Receiver<Line>,
    recorder: Recorder,
    /// What the judge will be told, when it can be put in order.
    facts: Vec<Fact>,
    /// Past holders' writes that a resource has taken though it checks tokens.
    stale_writes: Vec<(Instant, String)>,
    losses: BTreeMap<String, u64>,
    heartbeats: u64,
    grants: u64,
}

/// A line of a process's, or nothing when its stdout is closed.
type Line = (u32, Option<io::Result<Told>>);

/// One process, and where its claim stands. It is killed when this is dropped.
#[derive(Debug)]
struct Holder {
    process: Child,
    lock: u32,
    /// Tells apart its successive claims.
    generation: u32,
    /// When it should have begun to connect, and when it did.
    begun: Instant,
    /// When the ACQUIRE was sent.
    asked_at: Instant,
    queued_at: Option<Instant>,
    sent_at: Instant,
    silence: Option<Silence>,
    /// It has been stopped, and not woken up since.
    is_stopped: bool,
    /// When it was stopped last.
    stopped_at: Instant,
    /// When it was woken up last.
    woken_at: Instant,
    /// When its last write was done.
    wrote_at: Instant,
    is_settled: bool,
}

/// Something that the judge wants to know.
#[derive(Clone, Copy, Debug)]
struct Fact {
    at: Instant,
    lock: u32,
    who: Who,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Queued,
    Granted { token: Token, asked_at: Instant },
    Confirmed { sent_at: Instant },
    GivenUp,
    Ended(ServerEnd),
}

impl Crowd {
    /// To be called on the thread that runs it: with its end the kernel ends the processes too.
    pub fn new(load: Load, config: CrowdConfig, course: Arc<Course>) -> Crowd {
        let pauses = load.pauses.clone().expect("the scenario is about them");
        let share = Share { worker: 0, workers: 1, start: config.start, sessions: load.sessions };
        let mut settlers: Vec<_> = share.of(plan::settlers(&load)).collect();
        settlers.reverse();
        let plan = PausePlan::new(&load, pauses.lengths, share);
        let (tell, told) = mpsc::channel();
        course.started.fetch_add(1, Ordering::SeqCst);
        Crowd {
            silent: vec![None; load.locks as usize],
            recorder: Recorder::new(load.scenario.records_setup()),
            load,
            pauses,
            config,
            course,
            settlers,
            plan,
            holders: Vec::new(),
            tell,
            told,
            facts: Vec::new(),
            stale_writes: Vec::new(),
            losses: BTreeMap::new(),
            heartbeats: 0,
            grants: 0,
        }
    }

    /// Runs to the end of the run.
    ///
    /// # Errors
    /// If a process can't be started, or can't go on.
    pub fn run(mut self) -> Result<Outcome, WorkerError> {
        let mut busy_time = BusyTime::default();
        let mut over_since = None;
        while !self.course.is_abandoned() {
            let now = clock::now();
            busy_time.note(now, &self.course);
            self.recorder.turn(now, &self.course)?;
            self.wake(now)?;
            self.start_settlers(now)?;
            while let Some(pause) = self.plan.next(now) {
                self.stop(pause, now)?;
            }
            if self.course.is_over(now) {
                let since = *over_since.get_or_insert(now);
                let is_drained = self.unfinished().next().is_none() && !self.is_about_to_write(now);
                if now.since(since) >= DRAIN_MAX || is_drained {
                    break;
                }
            }
            let sleep = if over_since.is_some() { DRAIN_LOOK } else { SLEEP_MAX };
            self.listen(self.next_at().min(now.after(sleep)))?;
        }
        self.finish(&busy_time)
    }

    fn start_settlers(&mut self, now: Instant) -> Result<(), WorkerError> {
        while let Some((_, lock)) = self.settlers.pop_if(|(at, _)| *at <= now) {
            let index = u32::try_from(self.holders.len()).expect("a few hundred");
            let holder = self.start_holder(index, lock);
            self.holders.push(
                holder
                    .map_err(|error| WorkerError::Holder(format!("can't be started: {error}")))?,
            );
        }
        Ok(())
    }

    fn start_holder(&self, index: u32, lock: u32) -> io::Result<Holder> {
        let job = Job {
            parent: std::process::id(),
            server: self.config.server,
            lock_name: self.config.names.name(lock),
            lease_ms: self.load.lease_ms,
            site: self.config.site.clone(),
            rules: self.pauses.rules(),
            write_every: self.pauses.write_every,
        };
        // Not by its name, which may mean another file by now. In a group of its own, as a
        // terminal's interrupt is for the one that makes the report.
        let mut process = Command::new("/proc/self/exe")
            .arg("holder-process")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let mut line = serde_json::to_vec(&job)?;
        line.push(b'\n');
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let now = clock::now();
        let holder = Holder {
            process,
            lock,
            generation: 0,
            begun: now,
            asked_at: now,
            queued_at: None,
            sent_at: now,
            silence: None,
            is_stopped: false,
            stopped_at: Instant::NEVER,
            woken_at: now,
            wrote_at: now,
            is_settled: false,
        };
        stdin.expect("it is a pipe").write_all(&line)?;
        let (tell, stdout) = (self.tell.clone(), stdout.expect("it is a pipe"));
        thread::Builder::new()
            .name("listener".to_owned())
            .spawn(move || pass_on(index, stdout, &tell))?;
        Ok(holder)
    }

    /// Stops a holder, wherever it is in its program.
    fn stop(&mut self, pause: Pause, now: Instant) -> Result<(), WorkerError> {
        let Pause { lock, who, length, .. } = pause;
        let lease = Duration::from_millis(u64::from(self.load.lease_ms.get()));
        // What doesn't end in the measured time would be seen in part.
        if self.course.is_over(now.after(length.max(lease))) {
            return Ok(());
        }
        let holder = &mut self.holders[who.index as usize];
        if holder.generation != who.generation || holder.is_stopped {
            return Ok(());
        }
        holder.signal(Signal::STOP)?;
        holder.is_stopped = true;
        holder.stopped_at = now;
        let lease_ms = self.load.lease_ms.get();
        holder.silence = Some(Silence::new(lock, now, length, holder.sent_at, lease_ms));
        self.silent[lock as usize] = Some(who.index);
        let secs = length.as_secs_f64();
        let label = format!("lock {lock}, session {}, for {secs:.3} s", who.index);
        self.recorder.mark(now, MarkKind::Pause, label, &self.course);
        self.recorder.fencing.pauses += 1;
        Ok(())
    }

    /// Wakes those whose time has come.
    fn wake(&mut self, now: Instant) -> Result<(), WorkerError> {
        for (index, holder) in (0_u32..).zip(&mut self.holders) {
            if holder.is_stopped && holder.wakes_at() <= now {
                holder.signal(Signal::CONT)?;
                holder.is_stopped = false;
                holder.woken_at = now;
                let label = format!("lock {}, session {index}", holder.lock);
                self.recorder.mark(now, MarkKind::Resume, label, &self.course);
            }
        }
        Ok(())
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        let stopped = self.holders.iter().filter(|holder| holder.is_stopped);
        stopped.map(Holder::wakes_at).fold(settler_at.min(self.plan.next_at()), Instant::min)
    }

    /// Takes in what is told until then.
    fn listen(&mut self, until: Instant) -> Result<(), WorkerError> {
        let first = self.told.recv_timeout(until.since(clock::now()));
        let mut line = match first {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => unreachable!("this thread has a sender too"),
        };
        loop {
            let (index, told) = line;
            match told {
                Some(Ok(told)) => self.hear(index, told)?,
                Some(Err(error)) => {
                    return Err(WorkerError::Holder(format!("can't be understood: {error}")));
                }
                None => {
                    let status = self.holders[index as usize].process.wait()?;
                    return Err(WorkerError::Holder(format!("has ended ({status})")));
                }
            }
            match self.told.try_recv() {
                Ok(next) => line = next,
                Err(_) => return Ok(()),
            }
        }
    }

    fn hear(&mut self, index: u32, told: Told) -> Result<(), WorkerError> {
        let at = Instant::from(told.at);
        let holder = &mut self.holders[index as usize];
        match told.news {
            News::Asked { begun } => {
                holder.ask(begun.into(), at);
                let timing = Timing { intended: holder.begun, begun: holder.begun, done: at };
                self.recorder.record(Phase::Connect, timing, &self.course);
                self.course.open.fetch_add(1, Ordering::Relaxed);
            }
            News::NotConnected { why } => {
                self.settle(index);
                *self.losses.entry(why).or_default() += 1;
                self.course.lost.fetch_add(1, Ordering::Relaxed);
                self.recorder.fail(Phase::Connect, at, &self.course);
            }
            News::Queued => {
                holder.queued_at = Some(at);
                self.answered(index, at);
                self.note(index, at, What::Queued);
            }
            News::Granted { token } => self.granted(index, token, at)?,
            News::Sent => {
                holder.sent_at = at;
                // It may have been stopped before it could tell.
                let was_before = holder.is_stopped || at < holder.woken_at;
                if let Some(silence) = holder.silence.as_mut().filter(|_| was_before) {
                    silence.sent_at = at;
                }
            }
            News::Confirmed { sent_at, due } => {
                self.confirmed(index, sent_at.into(), due.map(Into::into), at);
            }
            News::Lost { end, confirmed_at, gives_up_at, words } => {
                let lease_ends_no_earlier_than =
                    Instant::from(confirmed_at).after_ms(self.load.lease_ms.get());
                let confirmed_at = confirmed_at.into();
                let end = ServerEnd { loss: end.into(), confirmed_at, lease_ends_no_earlier_than };
                self.lost(index, end, gives_up_at.into(), words, at);
            }
            News::Wrote { author, due, begun, written } => {
                let timing = Timing { intended: due.into(), begun: begun.into(), done: at };
                self.wrote(index, author, timing, written);
            }
            News::Failed { why } => {
                return Err(WorkerError::Holder(format!("can't go on: {why}")));
            }
        }
        Ok(())
    }

    /// Its first answer has come, or none will.
    fn settle(&mut self, index: u32) {
        let holder = &mut self.holders[index as usize];
        if !std::mem::replace(&mut holder.is_settled, true) {
            self.course.settled.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The ACQUIRE was answered for the first time.
    fn answered(&mut self, index: u32, at: Instant) {
        self.settle(index);
        let begun = self.holders[index as usize].begun;
        let timing = Timing { intended: begun, begun, done: at };
        self.recorder.record(Phase::Acquire, timing, &self.course);
    }

    fn granted(&mut self, index: u32, token: u64, at: Instant) -> Result<(), WorkerError> {
        let token = Token::new(token)
            .ok_or_else(|| WorkerError::Holder("was granted token 0".to_owned()))?;
        let holder = &self.holders[index as usize];
        let Holder { lock, asked_at, begun, queued_at, .. } = *holder;
        let who = holder.who(index);
        if queued_at.is_some() {
            let timing = Timing { intended: begun, begun, done: at };
            self.recorder.record(Phase::Wait, timing, &self.course);
        } else {
            self.answered(index, at);
        }
        self.recorder.grant(at, &self.course);
        self.grants += u64::from(self.course.is_measured(at));
        if let Some(before) = self.silent[lock as usize]
            && let Some(silence) = &mut self.holders[before as usize].silence
            && before != index
            && silence.is_succeeded(at, queued_at)
        {
            let label = format!(
                "lock {lock}, session {index} with token {}, from session {before}",
                token.get()
            );
            self.recorder.mark(at, MarkKind::Takeover, label, &self.course);
            self.recorder.fencing.takeovers += 1;
        }
        self.course.recorded.fetch_add(1, Ordering::Relaxed);
        self.note(index, at, What::Granted { token, asked_at });
        self.plan.works(lock, who, at);
        Ok(())
    }

    fn confirmed(&mut self, index: u32, sent_at: Instant, due: Option<Instant>, at: Instant) {
        self.note(index, at, What::Confirmed { sent_at });
        let holder = &mut self.holders[index as usize];
        // Otherwise the time would be the sleeper's and not the server's.
        if let Some(due) = due.filter(|due| !holder.slept_between(*due, at)) {
            let timing = Timing { intended: due, begun: sent_at, done: at };
            self.recorder.record(Phase::Heartbeat, timing, &self.course);
            self.heartbeats += u64::from(self.course.is_measured(due));
            self.course.recorded.fetch_add(1, Ordering::Relaxed);
        }
        let has_survived = !holder.is_stopped && sent_at > holder.woken_at;
        if has_survived && holder.silence.take().is_some() {
            let (lock, who) = (holder.lock, holder.who(index));
            self.plan.works(lock, who, at);
        }
    }

    fn lost(
        &mut self,
        index: u32,
        end: ServerEnd,
        gives_up_at: Instant,
        words: String,
        at: Instant,
    ) {
        self.course.open.fetch_sub(1, Ordering::Relaxed);
        self.settle(index);
        let what = if end.loss == Loss::Silence { What::GivenUp } else { What::Ended(end) };
        self.note(index, at, what);
        let holder = &mut self.holders[index as usize];
        let who = holder.who(index);
        self.plan.lost(holder.lock, who);
        match holder.silence.take() {
            // Whoever was silent has its own silence to blame.
            Some(silence) => {
                silence.measure(gives_up_at, at, &mut self.recorder, &self.course);
            }
            None => {
                let phase = if holder.queued_at.is_some() { Phase::Wait } else { Phase::Acquire };
                self.recorder.fail(phase, at, &self.course);
                *self.losses.entry(words).or_default() += 1;
                self.course.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn wrote(&mut self, index: u32, author: Author, timing: Timing, written: Written) {
        let holder = &mut self.holders[index as usize];
        holder.wrote_at = timing.done;
        // Otherwise the time would be the sleeper's and not the resource's.
        if !holder.slept_between(timing.intended, timing.done) {
            self.recorder.record(Phase::Write, timing, &self.course);
        }
        let whose = format!("lock {}, session {index}", holder.lock);
        let words = self.recorder.write(&whose, author, written, timing.done, &self.course);
        self.stale_writes
            .extend(words.filter(|_| self.pauses.is_fenced).map(|words| (timing.done, words)));
    }

    fn note(&mut self, index: u32, at: Instant, what: What) {
        let holder = &self.holders[index as usize];
        self.facts.push(Fact { at, lock: holder.lock, who: holder.who(index), what });
    }

    /// Silences of the measured time whose end has not been seen.
    fn unfinished(&self) -> impl Iterator<Item = Instant> {
        let silences = self.holders.iter().filter_map(|holder| holder.silence);
        silences.map(|silence| silence.since).filter(|since| self.course.is_measured(*since))
    }

    /// Whether a write may still come of somebody who was woken up, and slept right before it.
    fn is_about_to_write(&self, now: Instant) -> bool {
        let patience = self.pauses.write_every + WRITE_PATIENCE;
        self.holders.iter().any(|holder| {
            let has_slept = holder.stopped_at < now && !holder.is_stopped;
            has_slept && holder.wrote_at < holder.woken_at && now.since(holder.woken_at) < patience
        })
    }

    fn finish(mut self, busy_time: &BusyTime) -> Result<Outcome, WorkerError> {
        let unfinished: Vec<Instant> = self.unfinished().collect();
        for since in unfinished {
            self.recorder.fail(Phase::Takeover, since, &self.course);
            let text = format!("takeover not done {DRAIN_MAX:?} after the end");
            *self.losses.entry(text).or_default() += 1;
        }
        self.recorder.finish()?;
        let findings = self.judge();
        Ok(Outcome {
            findings: findings.into_findings(),
            recorder: self.recorder,
            outages: Vec::new(),
            servers: Vec::new(),
            losses: self.losses,
            own_limits: BTreeMap::new(),
            heartbeats: self.heartbeats,
            grants: self.grants,
            busy_ratio: busy_time.ratio(),
        })
    }

    /// Lets the judge see everything in the order in which it happened. It can ask nobody any more,
    /// but heartbeats have been answered all the time.
    fn judge(&mut self) -> Checker {
        let mut checker = Checker::new(self.load.locks);
        self.facts.sort_by_key(|fact| fact.at);
        for Fact { at, lock, who, what } in self.facts.drain(..) {
            checker.turn(at);
            match what {
                What::Queued => checker.queued(lock, who, at),
                What::Granted { token, asked_at } => {
                    checker.granted(lock, who, token, asked_at, at);
                }
                What::Confirmed { sent_at } => checker.confirmed(who, sent_at, at),
                What::GivenUp => checker.released(lock, who, at),
                What::Ended(end) => checker.ended(lock, who, end, at),
            }
        }
        for (at, text) in self.stale_writes.drain(..) {
            checker.stale_write_accepted(at, text);
        }
        checker
    }
}

impl Holder {
    /// A new claim.
    fn ask(&mut self, begun: Instant, at: Instant) {
        self.generation += 1;
        self.begun = begun;
        self.asked_at = at;
        self.queued_at = None;
        self.sent_at = at;
    }

    fn who(&self, index: u32) -> Who {
        Who { index, generation: self.generation }
    }

    fn wakes_at(&self) -> Instant {
        self.silence.map_or(Instant::NEVER, |silence| silence.until)
    }

    /// Whether it was stopped for a part of the time between these moments.
    fn slept_between(&self, from: Instant, until: Instant) -> bool {
        let woken_at = if self.is_stopped { Instant::NEVER } else { self.woken_at };
        self.stopped_at < until && from < woken_at
    }

    fn signal(&self, signal: Signal) -> Result<(), WorkerError> {
        kill_process(Pid::from_child(&self.process), signal)
            .map_err(|error| WorkerError::Holder(format!("can't be sent {signal:?}: {error}")))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It can only have ended by itself, and is waited for either way.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a process's lines to their end.
fn pass_on(index: u32, stdout: ChildStdout, tell: &Sender<Line>) {
    for line in BufReader::new(stdout).lines() {
        let told = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::other));
        if tell.send((index, Some(told))).is_err() {
            return;
        }
    }
    // Whoever would want to know may be gone too.
    let _ = tell.send((index, None));
}
