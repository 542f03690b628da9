//! A judge for each server process, and one for their succession.
//!
//! What a lock server must not do, it must not do to its own sessions: a process knows nothing of
//! those that another one had. So each has a [`Checker`] of its own, for as long as it has sessions.

use std::collections::VecDeque;

use monolock_core::fencing::Token;
use monolock_core::time::Instant;

use crate::checker::{Checker, Finding, Invariant, ServerEnd, Who};
use crate::succession::{Grant, Overlap, ServerTokens, Succession};

/// What is known of the session at one place.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    generation: u32,
    server: u32,
    /// Since when it waits, if it does.
    queued_at: Option<Instant>,
    /// Its server has answered it, and it hasn't left.
    is_judged: bool,
}

/// One server's judge, and how many sessions of it are judged.
#[derive(Debug)]
struct Bench {
    server: u32,
    sessions: u32,
    checker: Checker,
}

/// Judges what the servers of one thread's sessions do.
#[derive(Debug)]
pub struct Judges {
    locks: u32,
    /// In the order of the servers; there is always one.
    benches: VecDeque<Bench>,
    places: Vec<Place>,
    /// With servers that come after each other.
    succession: Option<Succession>,
    /// Of servers that have no sessions any more, and of the succession.
    findings: [Finding; Invariant::ALL.len()],
}

impl Judges {
    /// For so many locks, of one server or of several that come after each other.
    pub fn new(locks: u32, are_servers_succeeded: bool) -> Judges {
        Judges {
            locks,
            benches: VecDeque::from([Bench::new(0, locks)]),
            places: Vec::new(),
            succession: are_servers_succeeded.then(|| Succession::new(locks)),
            findings: Default::default(),
        }
    }

    /// A session has its first answer, and this server gave it.
    pub fn answered(&mut self, who: Who, server: u32) {
        let index = who.index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Place::default());
        }
        let generation = who.generation;
        self.places[index] = Place { generation, server, queued_at: None, is_judged: true };
        let place = self.benches.partition_point(|bench| bench.server < server);
        if self.benches.get(place).is_none_or(|bench| bench.server != server) {
            self.benches.insert(place, Bench::new(server, self.locks));
        }
        self.benches[place].sessions += 1;
    }

    /// The server that has answered a session, though it may have left since.
    pub fn server_of(&self, who: Who) -> Option<u32> {
        let place = self.places.get(who.index as usize)?;
        (place.generation == who.generation).then_some(place.server)
    }

    /// As [`Checker::queued`].
    pub fn queued(&mut self, lock: u32, who: Who, now: Instant) {
        if let Some((place, bench)) = self.find(who) {
            place.queued_at = Some(now);
            bench.checker.queued(lock, who, now);
        }
    }

    /// As [`Checker::granted`].
    pub fn granted(&mut self, lock: u32, who: Who, token: Token, asked_at: Instant, now: Instant) {
        let Some((place, bench)) = self.find(who) else {
            return;
        };
        bench.checker.granted(lock, who, token, asked_at, now);
        let server = place.server;
        let not_before = place.queued_at.unwrap_or(asked_at);
        if let Some(succession) = &mut self.succession {
            let grant = Grant { lock, who, server, token, not_before, read_at: now };
            if let Some(text) = succession.granted(grant) {
                self.findings[Invariant::TokenNotGrowing as usize].add(now, text);
            }
        }
    }

    /// As [`Checker::confirmed`].
    pub fn confirmed(&mut self, who: Who, sent_at: Instant, now: Instant) {
        if let Some((_, bench)) = self.find(who) {
            bench.checker.confirmed(who, sent_at, now);
        }
    }

    /// As [`Checker::released`]. A session that gives up believes no longer than its rules permit,
    /// however late we are.
    pub fn released(&mut self, lock: u32, who: Who, believed_until: Instant, now: Instant) {
        if let Some((_, bench)) = self.find(who) {
            bench.checker.released(lock, who, now);
            self.left(lock, who, believed_until);
        }
    }

    /// As [`Checker::ended`].
    pub fn ended(
        &mut self,
        lock: u32,
        who: Who,
        end: ServerEnd,
        believed_until: Instant,
        now: Instant,
    ) {
        if let Some((_, bench)) = self.find(who) {
            bench.checker.ended(lock, who, end, now);
            self.left(lock, who, believed_until);
        }
    }

    /// As [`Checker::stale_write_accepted`].
    pub fn stale_write_accepted(&mut self, now: Instant, text: String) {
        self.findings[Invariant::StaleWriteAccepted as usize].add(now, text);
    }

    /// As [`Checker::turn`].
    pub fn turn(&mut self, now: Instant) {
        for bench in &mut self.benches {
            bench.checker.turn(now);
        }
    }

    /// As [`Checker::take_questions`].
    pub fn take_questions(&mut self) -> Vec<Who> {
        let mut questions = Vec::new();
        for bench in &mut self.benches {
            questions.append(&mut bench.checker.take_questions());
        }
        questions
    }

    /// As [`Checker::is_witness`].
    pub fn is_witness(&self, who: Who) -> bool {
        self.benches.iter().any(|bench| bench.checker.is_witness(who))
    }

    /// As [`Checker::is_undecided`].
    pub fn is_undecided(&self) -> bool {
        self.benches.iter().any(|bench| bench.checker.is_undecided())
    }

    /// Takes the overlaps of holders of different servers that have come to their end.
    pub fn take_overlaps(&mut self) -> Vec<Overlap> {
        self.succession.as_mut().map(Succession::take_overlaps).unwrap_or_default()
    }

    /// It is not looked any further: beliefs end.
    pub fn finish(&mut self, now: Instant) {
        if let Some(succession) = &mut self.succession {
            succession.finish(now);
        }
    }

    /// What was seen of each server; nothing if there is but one.
    pub fn servers(&self) -> &[ServerTokens] {
        self.succession.as_ref().map(Succession::servers).unwrap_or_default()
    }

    /// What was found of each invariant, in the order of [`Invariant::ALL`].
    pub fn into_findings(mut self) -> [Finding; Invariant::ALL.len()] {
        for bench in self.benches.drain(..) {
            add_all(&mut self.findings, bench.checker);
        }
        self.findings
    }

    fn find(&mut self, who: Who) -> Option<(&mut Place, &mut Bench)> {
        let place = self.places.get_mut(who.index as usize)?;
        if place.generation != who.generation || !place.is_judged {
            return None;
        }
        let at = self.benches.partition_point(|bench| bench.server < place.server);
        let bench = self.benches.get_mut(at).filter(|bench| bench.server == place.server)?;
        Some((place, bench))
    }

    fn left(&mut self, lock: u32, who: Who, believed_until: Instant) {
        if let Some(succession) = &mut self.succession {
            succession.left(lock, who, believed_until);
        }
        let place = &mut self.places[who.index as usize];
        place.is_judged = false;
        let server = place.server;
        let at = self.benches.partition_point(|bench| bench.server < server);
        self.benches[at].sessions -= 1;
        // A server that others have come after gets no sessions any more once it has none.
        if self.benches[at].sessions == 0 && at + 1 < self.benches.len() {
            let bench = self.benches.remove(at).expect("it was just looked at");
            add_all(&mut self.findings, bench.checker);
        }
    }
}

impl Bench {
    fn new(server: u32, locks: u32) -> Bench {
        Bench { server, sessions: 0, checker: Checker::new(locks) }
    }
}

fn add_all(findings: &mut [Finding], checker: Checker) {
    for (sum, finding) in findings.iter_mut().zip(checker.into_findings()) {
        sum.count += finding.count;
        if let Some(case) = finding.first {
            sum.first.get_or_insert(case);
        }
    }
}
