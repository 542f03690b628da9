//! The thread that starts the processes, stops and wakes them by the plan, and makes of what they
//! tell the same outcome as a thread with sessions on a ring has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use monolock_core::claim::Loss;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;

use super::history::{History, What};
use super::process::{Holder, Line};
use super::{Job, News, Told};
use crate::busy_time::BusyTime;
use crate::checker::ServerEnd;
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
    history: History,
    losses: BTreeMap<String, u64>,
    refusals: u64,
    heartbeats: u64,
    grants: u64,
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
            history: History::default(),
            losses: BTreeMap::new(),
            refusals: 0,
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
            let job = Job {
                parent: std::process::id(),
                server: self.config.server,
                lock_name: self.config.names.name(lock),
                lease_ms: self.load.lease_ms,
                site: self.config.site.clone(),
                rules: self.pauses.rules(),
                write_every: self.pauses.write_every,
            };
            self.holders.push(Holder::start(index, lock, &job, &self.tell)?);
        }
        Ok(())
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
        holder.stop(length, self.load.lease_ms.get(), now)?;
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
            if holder.wakes_at <= now {
                holder.wake(now)?;
                let label = format!("lock {}, session {index}", holder.lock);
                self.recorder.mark(now, MarkKind::Resume, label, &self.course);
            }
        }
        Ok(())
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        let next_at = settler_at.min(self.plan.next_at());
        self.holders.iter().map(|holder| holder.wakes_at).fold(next_at, Instant::min)
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
                    let status = self.holders[index as usize].end()?;
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
            News::NotConnected { why, is_nobody_there } => {
                self.settle(index);
                self.refusals += u64::from(is_nobody_there);
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
            News::Sent => holder.sent(at),
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
        let holder = &mut self.holders[index as usize];
        holder.is_holding = true;
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
        // Who was awake by then may have given the lock up itself, and not been heard yet.
        if let Some(before) = self.silent[lock as usize]
            && self.holders[before as usize].slept_between(at, at)
            && let Some(silence) = &mut self.holders[before as usize].silence
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
        let what = match end.loss {
            Loss::Silence if self.holders[index as usize].silence.is_some() => What::Overslept(end),
            Loss::Silence => What::GivenUp,
            _ => What::Ended(end),
        };
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
                let phase = match holder.queued_at {
                    _ if holder.is_holding => Phase::Heartbeat,
                    Some(_) => Phase::Wait,
                    None => Phase::Acquire,
                };
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
        let at = timing.done;
        if let Some(words) = self.recorder.write(&whose, author, written, at, &self.course)
            && self.pauses.is_fenced
        {
            self.history.note_stale_write(at, words);
        }
    }

    fn note(&mut self, index: u32, at: Instant, what: What) {
        let holder = &self.holders[index as usize];
        self.history.note(at, holder.lock, holder.who(index), what);
    }

    /// Silences of the measured time whose end has not been seen.
    fn unfinished(&self) -> impl Iterator<Item = Instant> {
        let silences = self.holders.iter().filter_map(|holder| holder.silence);
        silences.map(|silence| silence.since).filter(|since| self.course.is_measured(*since))
    }

    /// Whether a write may still come of somebody who was woken up, and slept right before it.
    fn is_about_to_write(&self, now: Instant) -> bool {
        let patience = self.pauses.write_every + WRITE_PATIENCE;
        self.holders.iter().any(|holder| holder.is_about_to_write(now, patience))
    }

    fn finish(mut self, busy_time: &BusyTime) -> Result<Outcome, WorkerError> {
        let lost = self.losses.values().sum();
        let unfinished: Vec<Instant> = self.unfinished().collect();
        for since in unfinished {
            self.recorder.fail(Phase::Takeover, since, &self.course);
            let text = format!("takeover not done {DRAIN_MAX:?} after the end");
            *self.losses.entry(text).or_default() += 1;
        }
        self.recorder.finish()?;
        Ok(Outcome {
            findings: self.history.judge(self.load.locks).into_findings(),
            recorder: self.recorder,
            outages: Vec::new(),
            servers: Vec::new(),
            losses: self.losses,
            shut_down: BTreeMap::new(),
            own_limits: BTreeMap::new(),
            refusals: self.refusals,
            lost,
            heartbeats: self.heartbeats,
            grants: self.grants,
            busy_ratio: busy_time.ratio(),
        })
    }
}
