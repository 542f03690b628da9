//! The judge: its own view of what the server did with each lock, and what no lock server may do.
//!
//! Everything that happens to one lock is seen by one thread, in one order, on one clock. Still the
//! frames of two connections may arrive in another order than they were sent in. So what looks
//! wrong is at first a suspicion: the session that it hangs on is asked, by a heartbeat, and only
//! an answer that the server gave *after* the suspicion arose makes it a verdict. A server that
//! tells the session at last that its claim has ended, and why, clears it.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use monolock_core::claim::Loss;
use monolock_core::fencing::Token;
use monolock_core::time::Instant;

use crate::guard::Guard;

/// How long a lock may be free, with a known waiter, before that waiter is asked about it. A server
/// has read a closed connection's end long before, unless it is as much behind with heartbeats.
pub const VACANCY_MAX: Duration = Duration::from_secs(1);

/// What no lock server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A lock was granted while its holder still held it, and knew nothing of an end.
    TwoHolders,
    /// A grant's token was not larger than that of an earlier grant of the same lock.
    TokenNotGrowing,
    /// A session was granted a lock before another one that was surely ahead in the queue.
    FifoBroken,
    /// A lock was free, and a waiter was left waiting.
    PromotionMissing,
    /// A holder was ended without a word before its lease can have run out, and its lock was given
    /// away.
    GrantBeforeExpiry,
    /// A resource that checks tokens took a write of a past holder after its successor's.
    StaleWriteAccepted,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 6] = [
        Invariant::TwoHolders,
        Invariant::TokenNotGrowing,
        Invariant::FifoBroken,
        Invariant::PromotionMissing,
        Invariant::GrantBeforeExpiry,
        Invariant::StaleWriteAccepted,
    ];

    /// Its words in reports.
    pub fn words(self) -> &'static str {
        match self {
            Invariant::TwoHolders => "two holders at once",
            Invariant::TokenNotGrowing => "token not growing",
            Invariant::FifoBroken => "FIFO broken",
            Invariant::PromotionMissing => "promotion missing",
            Invariant::GrantBeforeExpiry => "grant before expiry",
            Invariant::StaleWriteAccepted => "stale write accepted",
        }
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Invariant::TwoHolders => "two_holders",
            Invariant::TokenNotGrowing => "token_not_growing",
            Invariant::FifoBroken => "fifo_broken",
            Invariant::PromotionMissing => "promotion_missing",
            Invariant::GrantBeforeExpiry => "grant_before_expiry",
            Invariant::StaleWriteAccepted => "stale_write_accepted",
        }
    }
}

/// A session, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Its place in the thread's table.
    pub index: u32,
    /// Which of the successive users of that place.
    pub generation: u32,
}

/// How a claim came to its end on the server's side.
#[derive(Clone, Copy, Debug)]
pub struct ServerEnd {
    /// What the client saw of it.
    pub loss: Loss,
    /// When the newest message was sent that the server confirmed.
    pub confirmed_at: Instant,
    /// The moment before which the lease can't have run out.
    pub lease_ends_no_earlier_than: Instant,
}

impl ServerEnd {
    /// Whether it proves that the server gave the lock away too early, by granting it at `at` to
    /// a session that was told WAITING at `queued_at`.
    ///
    /// It must have been the same server process: one that crashes ends everybody without a word,
    /// and the next one knows nothing of their leases. It was if this session's process still
    /// answered what was sent after the other one's had spoken.
    fn is_too_early(&self, at: Instant, queued_at: Option<Instant>) -> bool {
        let is_silent = matches!(self.loss, Loss::EndOfStream | Loss::Disconnected | Loss::Silence);
        let is_same_process = queued_at.is_some_and(|queued_at| queued_at < self.confirmed_at);
        is_silent && is_same_process && at < self.lease_ends_no_earlier_than
    }
}

/// What is counted of one invariant.
#[derive(Clone, Debug, Default)]
pub struct Finding {
    /// How often it was broken.
    pub count: u64,
    /// The first case: when, and in words.
    pub first: Option<(Instant, String)>,
}

impl Finding {
    /// One more case.
    pub fn add(&mut self, at: Instant, text: String) {
        self.count += 1;
        self.first.get_or_insert((at, text));
    }
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    who: Who,
    token: Token,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    who: Who,
    /// When the session's WAITING was read: whoever asks later is behind it.
    queued_at: Instant,
}

#[derive(Debug, Default)]
struct LockHistory {
    holder: Option<Hold>,
    /// In the order of their WAITINGs.
    queue: VecDeque<Waiter>,
    /// The newest token of those that held the lock and gave it back themselves.
    token_floor: u64,
    /// The holder before, if the server has ended it and nobody was granted the lock since.
    last_end: Option<(Who, ServerEnd)>,
    /// Since when nobody is known to hold it, though somebody waits.
    vacant_since: Option<Instant>,
    guard: Guard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It holds a lock that another one was granted, which was told WAITING before at this time.
    Overlap { other: Who, other_queued_at: Option<Instant> },
    /// It waits for a lock that one behind it was granted.
    Overtaken { other: Who },
    /// It waits for a lock that nobody holds.
    Vacancy,
}

#[derive(Clone, Copy, Debug)]
struct Suspicion {
    doubt: Doubt,
    lock: u32,
    /// Whose answer will decide.
    who: Who,
    since: Instant,
}

/// Judges the locks of one thread.
#[derive(Debug)]
pub struct Checker {
    locks: Vec<LockHistory>,
    /// Locks that became vacant, in the order of time.
    vacancies: VecDeque<(Instant, u32)>,
    suspicions: Vec<Suspicion>,
    /// Sessions that are to send a heartbeat, whenever they may.
    questions: Vec<Who>,
    findings: [Finding; Invariant::ALL.len()],
}

impl Checker {
    /// Nothing has happened to any of the locks.
    pub fn new(locks: u32) -> Checker {
        Checker {
            locks: (0..locks).map(|_| LockHistory::default()).collect(),
            vacancies: VecDeque::new(),
            suspicions: Vec::new(),
            questions: Vec::new(),
            findings: Default::default(),
        }
    }

    /// A session's first WAITING was read.
    pub fn queued(&mut self, lock: u32, who: Who, now: Instant) {
        let history = &mut self.locks[lock as usize];
        history.queue.push_back(Waiter { who, queued_at: now });
        if history.holder.is_none() && history.vacant_since.is_none() {
            self.note_vacancy(lock, now);
        }
    }

    /// A session's first ACQUIRED was read. Its ACQUIRE was sent at `asked_at`.
    pub fn granted(&mut self, lock: u32, who: Who, token: Token, asked_at: Instant, now: Instant) {
        let history = &mut self.locks[lock as usize];
        let place = history.queue.iter().position(|waiter| waiter.who == who);
        let queued = place.and_then(|place| history.queue.remove(place));
        if let Some(first) = history.queue.front().copied()
            && first.queued_at <= asked_at
        {
            self.suspect(Doubt::Overtaken { other: who }, lock, first.who, now);
        }
        let history = &mut self.locks[lock as usize];
        history.vacant_since = None;
        if let Some(holder) = history.holder.replace(Hold { who, token }) {
            let other_queued_at = queued.map(|queued| queued.queued_at);
            self.suspect(Doubt::Overlap { other: who, other_queued_at }, lock, holder.who, now);
        }
        self.judge_last_end(lock, who, queued.map(|queued| queued.queued_at), now);
        self.judge_token(lock, token, now);
        // Whoever was suspected to be overtaken, and has got the lock now, was overtaken.
        self.settle(who, now, |suspicion| {
            matches!(suspicion.doubt, Doubt::Overtaken { .. }).then_some(Invariant::FifoBroken)
        });
    }

    /// A session was answered, with what it was told before. `sent_at` is when the message was sent
    /// that was answered.
    pub fn confirmed(&mut self, who: Who, sent_at: Instant, now: Instant) {
        if self.suspicions.is_empty() {
            return;
        }
        let locks = &self.locks;
        let mut is_open = false;
        let verdict = |suspicion: &Suspicion| {
            if sent_at <= suspicion.since {
                is_open = true;
                return None;
            }
            match suspicion.doubt {
                Doubt::Overlap { .. } => Some(Invariant::TwoHolders),
                Doubt::Overtaken { .. } => Some(Invariant::FifoBroken),
                Doubt::Vacancy => {
                    let is_vacant = locks[suspicion.lock as usize]
                        .vacant_since
                        .is_some_and(|vacant_since| vacant_since < suspicion.since);
                    is_vacant.then_some(Invariant::PromotionMissing)
                }
            }
        };
        let verdicts =
            judge(&mut self.suspicions, who, verdict, |suspicion| sent_at <= suspicion.since);
        self.find_all(verdicts, now);
        if is_open {
            self.questions.push(who);
        }
    }

    /// We end a session: from here on its lock may be given away.
    pub fn released(&mut self, lock: u32, who: Who, now: Instant) {
        self.settle(who, now, |_| None);
        if let Some(hold) = self.leave(lock, who, now) {
            let history = &mut self.locks[lock as usize];
            history.token_floor = history.token_floor.max(hold.token.get());
            history.last_end = None;
        }
    }

    /// A session that has slept finds that it can't hold its lock any more, and gives it up. It has
    /// read all that came: no end that would excuse it if the lock was given away before its lease
    /// can have run out.
    pub fn overslept(&mut self, lock: u32, who: Who, end: ServerEnd, now: Instant) {
        self.settle_overlaps(who, end, now);
        self.released(lock, who, now);
    }

    /// The server has ended a session.
    pub fn ended(&mut self, lock: u32, who: Who, end: ServerEnd, now: Instant) {
        self.settle_overlaps(who, end, now);
        if self.leave(lock, who, now).is_some() {
            self.locks[lock as usize].last_end = Some((who, end));
        }
    }

    /// A resource that checks tokens took a write of a past holder after its successor's.
    pub fn stale_write_accepted(&mut self, now: Instant, text: String) {
        self.find(Invariant::StaleWriteAccepted, now, text);
    }

    fn settle_overlaps(&mut self, who: Who, end: ServerEnd, now: Instant) {
        self.settle(who, now, |suspicion| match suspicion.doubt {
            Doubt::Overlap { other_queued_at, .. } => end
                .is_too_early(suspicion.since, other_queued_at)
                .then_some(Invariant::GrantBeforeExpiry),
            Doubt::Overtaken { .. } | Doubt::Vacancy => None,
        });
    }

    /// To be called every turn: locks that are vacant for too long raise a suspicion.
    pub fn turn(&mut self, now: Instant) {
        while let Some(&(since, lock)) = self.vacancies.front() {
            if since.after(VACANCY_MAX) > now {
                return;
            }
            self.vacancies.pop_front();
            let history = &self.locks[lock as usize];
            if history.vacant_since == Some(since)
                && let Some(waiter) = history.queue.front().copied()
            {
                self.suspect(Doubt::Vacancy, lock, waiter.who, now);
            }
        }
    }

    /// Takes sessions that are to send a heartbeat now, or as soon as they may.
    pub fn take_questions(&mut self) -> Vec<Who> {
        std::mem::take(&mut self.questions)
    }

    /// Whether a session must not be ended by us before it is known whether it is a witness.
    pub fn is_witness(&self, who: Who) -> bool {
        self.suspicions.iter().any(|suspicion| suspicion.who == who)
    }

    /// Whether anything is still to be found out.
    pub fn is_undecided(&self) -> bool {
        !self.suspicions.is_empty()
    }

    /// What was found of each invariant, in the order of [`Invariant::ALL`].
    pub fn into_findings(self) -> [Finding; Invariant::ALL.len()] {
        self.findings
    }

    fn judge_last_end(&mut self, lock: u32, who: Who, queued_at: Option<Instant>, now: Instant) {
        let Some((ended, end)) = self.locks[lock as usize].last_end.take() else {
            return;
        };
        if end.is_too_early(now, queued_at) {
            let left = end.lease_ends_no_earlier_than.since(now);
            let text = format!(
                "lock {lock}: the server closed session {} with {left:?} of its lease left, and \
                 gave the lock to session {}",
                ended.index, who.index
            );
            self.find(Invariant::GrantBeforeExpiry, now, text);
        }
    }

    /// Only what we gave back ourselves, after we knew its token, was surely granted earlier.
    fn judge_token(&mut self, lock: u32, token: Token, now: Instant) {
        let history = &mut self.locks[lock as usize];
        let floor = history.token_floor;
        let stale = history.guard.enter(token);
        if token.get() <= floor {
            let text = format!("lock {lock}: token {token} was granted after token {floor}");
            self.find(Invariant::TokenNotGrowing, now, text);
        }
        if let Some(stale) = stale {
            let text = format!(
                "lock {lock}: with token {stale} a past holder could write after its successor \
                 with token {token}"
            );
            self.find(Invariant::StaleWriteAccepted, now, text);
        }
    }

    /// Takes a session out of its lock's history. Returns its hold, if it had the lock.
    fn leave(&mut self, lock: u32, who: Who, now: Instant) -> Option<Hold> {
        let history = &mut self.locks[lock as usize];
        let Some(hold) = history.holder.take_if(|hold| hold.who == who) else {
            history.queue.retain(|waiter| waiter.who != who);
            return None;
        };
        history.guard.leave(hold.token);
        if !history.queue.is_empty() {
            self.note_vacancy(lock, now);
        }
        Some(hold)
    }

    fn note_vacancy(&mut self, lock: u32, now: Instant) {
        self.locks[lock as usize].vacant_since = Some(now);
        self.vacancies.push_back((now, lock));
    }

    fn suspect(&mut self, doubt: Doubt, lock: u32, who: Who, now: Instant) {
        self.suspicions.push(Suspicion { doubt, lock, who, since: now });
        self.questions.push(who);
    }

    /// Ends all suspicions that hang on a session.
    fn settle(
        &mut self,
        who: Who,
        now: Instant,
        verdict: impl FnMut(&Suspicion) -> Option<Invariant>,
    ) {
        if self.suspicions.is_empty() {
            return;
        }
        let verdicts = judge(&mut self.suspicions, who, verdict, |_| false);
        self.find_all(verdicts, now);
    }

    fn find_all(&mut self, verdicts: Vec<(Suspicion, Invariant)>, now: Instant) {
        for (suspicion, invariant) in verdicts {
            let Suspicion { doubt, lock, who, since } = suspicion;
            let ago = now.since(since);
            let index = who.index;
            let mut text = format!("lock {lock}: session {index} ");
            // Writing to a String doesn't fail.
            let _ = match (doubt, invariant) {
                (Doubt::Overlap { other, .. }, Invariant::GrantBeforeExpiry) => write!(
                    text,
                    "was closed {ago:?} after session {} was granted its lock, before its lease \
                     can have run out",
                    other.index
                ),
                (Doubt::Overlap { other, .. }, _) => write!(
                    text,
                    "was told that it holds the lock, asked after session {} was granted it",
                    other.index
                ),
                (Doubt::Overtaken { other }, _) => write!(
                    text,
                    "was in the queue before session {} asked, which was granted the lock first",
                    other.index
                ),
                (Doubt::Vacancy, _) => {
                    let free = VACANCY_MAX + ago;
                    write!(text, "is left waiting, though the lock has been free for {free:?}")
                }
            };
            self.find(invariant, now, text);
        }
    }

    fn find(&mut self, invariant: Invariant, now: Instant, text: String) {
        self.findings[invariant as usize].add(now, text);
    }
}

/// Takes out the suspicions that hang on a session, unless they stay open, with their verdicts.
fn judge(
    suspicions: &mut Vec<Suspicion>,
    who: Who,
    mut verdict: impl FnMut(&Suspicion) -> Option<Invariant>,
    stays_open: impl Fn(&Suspicion) -> bool,
) -> Vec<(Suspicion, Invariant)> {
    let mut verdicts = Vec::new();
    suspicions.retain(|suspicion| {
        if suspicion.who != who {
            return true;
        }
        verdicts.extend(verdict(suspicion).map(|invariant| (*suspicion, invariant)));
        stays_open(suspicion)
    });
    verdicts
}
