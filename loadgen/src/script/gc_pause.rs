//! Holders fall silent, as a program does that is being collected, stopped or moved. They wake up
//! and go on writing to what the lock guards, before they look at the clock or read what the server
//! said meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use monolock_core::claim::Standing;
use monolock_core::time::Instant;

use super::{BACKOFF, Returning, Script, Share};
use crate::checker::Who;
use crate::drive::{Drive, Happening};
use crate::mark::MarkKind;
use crate::pause_plan::{Pause, PausePlan};
use crate::phase::Phase;
use crate::plan;
use crate::recorder::Timing;
use crate::resource::{Author, Done, Order, ResourceError, Write, WriteQueue};
use crate::session::Stage;
use crate::settings::Load;
use crate::silence::Silence;

/// How long to wait for the answer of a write at a time.
const ANSWER_LOOK: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct GcPause {
    share: Share,
    lease: Duration,
    write_every: Duration,
    is_fenced: bool,
    /// Sessions that are to come, the next one last.
    settlers: Vec<(Instant, u32)>,
    /// Sessions that have lost their lock and queue again.
    returning: Returning,
    plan: PausePlan,
    /// What is known of each session, by its place.
    programs: Vec<Program>,
    /// Those that are silent, or have just woken up.
    silences: HashMap<u32, Silence>,
    /// When they wake up.
    asleep: BinaryHeap<Reverse<(Instant, u32)>>,
    /// By lock, who fell silent last.
    silent: Vec<Option<u32>>,
    writes: WriteQueue,
    /// Writes to come. Each is as long after the one before as all others, so they are in order.
    due: VecDeque<(Instant, Who)>,
    /// How many writes there were, which is what they write.
    value: u64,
    turned_at: Instant,
    failure: Option<ResourceError>,
}

/// The program behind a session.
#[derive(Clone, Copy, Debug)]
struct Program {
    /// When it was told that it waits.
    queued_at: Option<Instant>,
    /// What it signs its writes with, if it takes itself for the holder.
    author: Option<Author>,
    /// When it writes next.
    write_at: Instant,
    /// Writes under way.
    writing: u32,
}

impl Program {
    const NEW: Program =
        Program { queued_at: None, author: None, write_at: Instant::NEVER, writing: 0 };
}

impl GcPause {
    pub(super) fn new(load: &Load, share: Share, writes: WriteQueue) -> GcPause {
        let pauses = load.pauses.as_ref().expect("the scenario is about them");
        let mut settlers: Vec<_> = share.of(plan::settlers(load)).collect();
        settlers.reverse();
        let locks = plan::locks_of_worker(load.locks, share.worker, share.workers) as usize;
        GcPause {
            share,
            lease: Duration::from_millis(u64::from(load.lease_ms.get())),
            write_every: pauses.write_every,
            is_fenced: pauses.is_fenced,
            settlers,
            returning: Returning::default(),
            plan: PausePlan::new(load, pauses.lengths, share),
            programs: vec![Program::NEW; share.sessions as usize],
            silences: HashMap::new(),
            asleep: BinaryHeap::new(),
            silent: vec![None; locks],
            writes,
            due: VecDeque::new(),
            value: 0,
            turned_at: share.start,
            failure: None,
        }
    }

    /// Wakes those whose time has come. Each writes first, as it was about to when it fell silent.
    fn wake(&mut self, drive: &mut Drive, now: Instant) {
        while let Some(Reverse((until, index))) = self.asleep.peek().copied()
            && until <= now
        {
            self.asleep.pop();
            let label = self.label(drive, index);
            drive.recorder.mark(now, MarkKind::Resume, label, &drive.course);
            self.write(drive, index, now);
            drive.wake(index, now);
        }
    }

    fn fall_silent(&mut self, pause: Pause, drive: &mut Drive, now: Instant) {
        let Pause { lock, who, length, .. } = pause;
        // What doesn't end in the measured time would be seen in part.
        if drive.course.is_over(now.after(length.max(self.lease))) {
            return;
        }
        let index = who.index;
        let session = drive.sessions.at(index);
        if session.generation != who.generation || session.stage != Stage::Open {
            return;
        }
        let (sent_at, lease_ms) = (session.claim.sent_at(), session.claim.lease_ms());
        drive.fall_silent(index);
        let silence = Silence::new(lock, now, length, sent_at, lease_ms);
        self.asleep.push(Reverse((silence.until, index)));
        self.silences.insert(index, silence);
        self.silent[lock as usize] = Some(index);
        let label = format!("{}, for {:.3} s", self.label(drive, index), length.as_secs_f64());
        drive.recorder.mark(now, MarkKind::Pause, label, &drive.course);
        drive.recorder.fencing.pauses += 1;
    }

    /// A session was granted its lock, perhaps while another one takes itself for the holder.
    fn granted(&mut self, index: u32, drive: &mut Drive, now: Instant) {
        let who = drive.sessions.who(index);
        let session = drive.sessions.at(index);
        let lock = session.lock;
        let Standing::Holding(token) = session.claim.standing() else {
            return;
        };
        let program = &mut self.programs[index as usize];
        program.author = Some(Author::new(token, now));
        let queued_at = program.queued_at;
        if let Some(before) = self.silent[lock as usize]
            && let Some(silence) = self.silences.get_mut(&before)
            && silence.is_succeeded(now, queued_at)
        {
            let holder = self.label(drive, index);
            let label = format!("{holder} with token {}, from session {before}", token.get());
            drive.recorder.mark(now, MarkKind::Takeover, label, &drive.course);
            drive.recorder.fencing.takeovers += 1;
        }
        self.plan.works(lock, who, now);
        self.write(drive, index, now);
    }

    /// A session has lost its lock, or its place in the queue.
    fn lost(&mut self, index: u32, drive: &mut Drive, now: Instant) {
        let who = drive.sessions.who(index);
        let session = drive.sessions.at(index);
        let gives_up_at = session.claim.give_up_at();
        self.plan.lost(session.lock, who);
        if let Some(silence) = self.silences.remove(&index) {
            silence.measure(gives_up_at, now, &mut drive.recorder, &drive.course);
        }
    }

    /// Orders a write of a session that takes itself for the holder.
    fn write(&mut self, drive: &mut Drive, index: u32, intended: Instant) {
        let program = &mut self.programs[index as usize];
        let Some(author) = program.author else {
            return;
        };
        program.write_at = Instant::NEVER;
        program.writing += 1;
        self.value += 1;
        let row = drive.sessions.at(index).lock;
        let write = Write { row, author, value: self.value };
        self.writes.push(Order { who: drive.sessions.who(index), write, intended });
    }

    fn write_what_is_due(&mut self, drive: &mut Drive, now: Instant) {
        while let Some((at, who)) = self.due.pop_front_if(|(at, _)| *at <= now) {
            let is_up_to_date = self.programs[who.index as usize].write_at == at;
            if is_up_to_date && is_running(drive, who) {
                self.write(drive, who.index, at);
            }
        }
    }

    fn take_answers(&mut self, drive: &mut Drive, now: Instant) {
        loop {
            match self.writes.pop() {
                Ok(Some(done)) => self.written(done, drive, now),
                Ok(None) => return,
                Err(error) => {
                    self.failure.get_or_insert(error);
                    return;
                }
            }
        }
    }

    fn written(&mut self, done: Done, drive: &mut Drive, now: Instant) {
        let Order { who, write, intended } = done.order;
        let timing = Timing { intended, begun: done.begun, done: done.done };
        drive.recorder.record(Phase::Write, timing, &drive.course);
        let whose = format!("lock {}, session {}", self.share.number(write.row), who.index);
        let (author, written) = (write.author, done.written);
        let course = &drive.course;
        if let Some(words) = drive.recorder.write(&whose, author, written, done.done, course)
            && self.is_fenced
        {
            drive.judges.stale_write_accepted(now, words);
        }
        if drive.sessions.find(who).is_none() {
            return;
        }
        let program = &mut self.programs[who.index as usize];
        program.writing -= 1;
        if program.writing == 0 && is_running(drive, who) {
            program.write_at = intended.after(self.write_every).max(now);
            self.due.push_back((program.write_at, who));
        }
    }

    fn label(&self, drive: &mut Drive, index: u32) -> String {
        format!("lock {}, session {index}", self.share.number(drive.sessions.at(index).lock))
    }
}

/// Whether the session is still that one, takes itself for the holder, and isn't asleep.
fn is_running(drive: &mut Drive, who: Who) -> bool {
    drive
        .sessions
        .find(who)
        .is_some_and(|session| session.is_holding() && session.stage != Stage::Silent)
}

impl Script for GcPause {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        self.turned_at = now;
        self.wake(drive, now);
        while drive.may_open()
            && let Some((intended, lock)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            drive.open(lock, intended);
        }
        while drive.may_open()
            && !drive.course.is_over(now)
            && let Some((intended, lock)) = self.returning.pop_if_due(now)
        {
            drive.open(lock, intended);
        }
        while let Some(pause) = self.plan.next(now) {
            self.fall_silent(pause, drive, now);
        }
        self.write_what_is_due(drive, now);
        self.take_answers(drive, now);
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        let wake_at = self.asleep.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let write_at = self.due.front().map_or(Instant::NEVER, |(at, _)| *at);
        let is_pending = self.writes.is_pending();
        let answer_at = if is_pending { self.turned_at.after(ANSWER_LOOK) } else { Instant::NEVER };
        let times = [wake_at, write_at, answer_at, self.returning.next_at(), self.plan.next_at()];
        times.into_iter().fold(settler_at, Instant::min)
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant) {
        drive.count_settled(happening);
        match happening {
            Happening::Queued(index) => {
                self.programs[index as usize].queued_at = Some(now);
            }
            Happening::Granted(index) => {
                self.granted(index, drive, now);
                self.take_answers(drive, now);
            }
            Happening::Survived(index) => {
                self.silences.remove(&index);
                let (who, lock) = (drive.sessions.who(index), drive.sessions.at(index).lock);
                self.plan.works(lock, who, now);
            }
            Happening::Lost(index) => self.lost(index, drive, now),
            Happening::Closed(index) => {
                let session = drive.sessions.at(index);
                let (lock, pause) = (session.lock, session.pause(BACKOFF));
                self.programs[index as usize] = Program::NEW;
                self.returning.push(now.after(pause), lock);
            }
            Happening::Failed(lock) => self.returning.push(now.after(BACKOFF), lock),
            Happening::Flooded(_) | Happening::Stuck(_) => {}
        }
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        self.silences.values().map(|silence| (Phase::Takeover, silence.since)).collect()
    }

    fn check(&mut self) -> Result<(), ResourceError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}
