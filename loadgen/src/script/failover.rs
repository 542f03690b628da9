//! Clients that acquire, hold and release, and whose servers fail: each comes back by the rules for
//! clients, and it is noted when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use monolock_core::backoff::Backoff;
use monolock_core::claim::Standing;
use monolock_core::time::Instant;

use super::{Script, Share};
use crate::drive::{Drive, Happening};
use crate::lengths::Lengths;
use crate::outages::OutageTally;
use crate::phase::Phase;
use crate::plan;
use crate::random::Random;
use crate::recorder::Timing;
use crate::settings::Load;

/// The client of a place that has none.
const NOBODY: u32 = u32::MAX;

/// Who claims a lock, again and again, on one connection after the other.
#[derive(Debug)]
struct Client {
    lock: u32,
    backoff: Backoff,
    /// Of the failures so far, those that it need not come back from any more.
    recovered: usize,
}

/// See the module.
pub(super) struct Failover {
    holds: Lengths,
    /// Clients that are to come for the first time, the next one last.
    settlers: Vec<(Instant, u32)>,
    clients: Vec<Client>,
    /// By place, the client whose session it is.
    client_of: Vec<u32>,
    /// Clients that come back.
    returning: BinaryHeap<Reverse<(Instant, u32)>>,
    random: Random,
    /// By failure.
    tallies: Vec<OutageTally>,
    /// When each was.
    failed_at: Vec<Instant>,
}

impl Failover {
    pub(super) fn new(load: &Load, share: Share) -> Failover {
        let mut settlers = Vec::new();
        let mut clients = Vec::new();
        for (number, (at, lock)) in (0..).zip(share.of(plan::settlers(load))) {
            settlers.push((at, number));
            clients.push(Client { lock, backoff: Backoff::new(), recovered: 0 });
        }
        settlers.reverse();
        Failover {
            holds: Lengths::new(load.hold, "holds", load, share),
            settlers,
            clients,
            client_of: Vec::new(),
            returning: BinaryHeap::new(),
            random: Random::new(load.seed ^ u64::from(share.worker), "backoff"),
            tallies: Vec::new(),
            failed_at: Vec::new(),
        }
    }

    /// Whatever comes of a failure, comes after it was noted.
    fn learn_of_failures(&mut self, drive: &Drive) {
        let outages = &drive.course.outages;
        while self.failed_at.len() < outages.count() {
            self.failed_at.push(outages.at(self.failed_at.len()).at);
            self.tallies.push(OutageTally::default());
        }
    }

    fn open(&mut self, client: u32, intended: Instant, drive: &mut Drive, now: Instant) {
        if drive.course.outages.is_out()
            && let (Some(tally), Some(&failed_at)) =
                (self.tallies.last_mut(), self.failed_at.last())
        {
            tally.dial(now.since(failed_at));
        }
        let Some(index) = drive.open(self.clients[client as usize].lock, intended) else {
            let random = self.draw();
            let wait = self.clients[client as usize].backoff.after_failed_dial(random);
            self.returning.push(Reverse((now.after(wait), client)));
            return;
        };
        let place = index as usize;
        if self.client_of.len() <= place {
            self.client_of.resize(place + 1, NOBODY);
        }
        self.client_of[place] = client;
    }

    /// A session has its first answer, or is granted its lock.
    fn answered(&mut self, index: u32, drive: &mut Drive, now: Instant) {
        let client = &mut self.clients[self.client_of[index as usize] as usize];
        client.backoff.answered();
        let server = drive.judges.server_of(drive.sessions.who(index));
        let server = server.map_or(0, |server| server as usize);
        // The server after the last failure has that one's number and one. One that failed and
        // answers still is nobody's recovery.
        if server == self.failed_at.len() && client.recovered < server {
            client.recovered = server;
            let failed_at = self.failed_at[server - 1];
            self.tallies[server - 1].back.push(now.since(failed_at));
            let timing = Timing { intended: failed_at, begun: failed_at, done: now };
            drive.recorder.record_if(true, Phase::Recovery, timing);
        }
    }

    fn granted(&mut self, index: u32, drive: &mut Drive, now: Instant) {
        let server = drive.judges.server_of(drive.sessions.who(index));
        if let Some(number) = server.and_then(|server| (server as usize).checked_sub(1)) {
            let since = now.since(self.failed_at[number]);
            let first = &mut self.tallies[number].first_grant;
            *first = Some(first.map_or(since, |first| first.min(since)));
        }
        let hold = self.holds.next(drive.sessions.at(index).lock);
        drive.release_at(index, now.after(hold));
    }

    fn lost(&mut self, index: u32, drive: &mut Drive, now: Instant) {
        let client = std::mem::replace(&mut self.client_of[index as usize], NOBODY);
        let Standing::Lost(loss) = drive.sessions.at(index).claim.standing() else {
            unreachable!("it was lost");
        };
        let random = self.draw();
        let wait = self.clients[client as usize].backoff.after_loss(loss, random);
        if let Some(wait) = wait {
            self.returning.push(Reverse((now.after(wait), client)));
        }
    }

    fn draw(&mut self) -> u32 {
        u32::try_from(self.random.next_u64() >> 32).expect("32 bits")
    }

    fn note_overlaps(&mut self, drive: &mut Drive) {
        for overlap in drive.judges.take_overlaps() {
            let timing =
                Timing { intended: overlap.since, begun: overlap.since, done: overlap.until };
            drive.recorder.record_if(true, Phase::Overlap, timing);
            let before = self.failed_at.partition_point(|at| *at <= overlap.since);
            if let Some(tally) = before.checked_sub(1).map(|number| &mut self.tallies[number]) {
                tally.overlaps += 1;
                let length = overlap.until.since(overlap.since);
                tally.overlap_longest = tally.overlap_longest.max(length);
            }
        }
    }
}

impl Script for Failover {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        self.learn_of_failures(drive);
        self.note_overlaps(drive);
        while drive.may_open()
            && let Some((intended, client)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            self.open(client, intended, drive, now);
        }
        if drive.course.is_over(now) {
            return;
        }
        while drive.may_open()
            && let Some(&Reverse((intended, client))) = self.returning.peek()
            && intended <= now
        {
            self.returning.pop();
            self.open(client, intended, drive, now);
        }
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        let return_at = self.returning.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        settler_at.min(return_at)
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant) {
        drive.count_settled(happening);
        self.learn_of_failures(drive);
        match happening {
            Happening::Queued(index) => self.answered(index, drive, now),
            Happening::Granted(index) => {
                self.answered(index, drive, now);
                self.granted(index, drive, now);
            }
            Happening::Lost(index) => self.lost(index, drive, now),
            Happening::Closed(index) => {
                let client = std::mem::replace(&mut self.client_of[index as usize], NOBODY);
                // One that was lost is on its way already.
                if client != NOBODY {
                    self.returning.push(Reverse((now, client)));
                }
            }
            // It is known where the dial was.
            Happening::Failed(_)
            | Happening::Flooded(_)
            | Happening::Stuck(_)
            | Happening::Survived(_) => {}
        }
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        Vec::new()
    }

    fn finish(&mut self, drive: &mut Drive) -> Vec<OutageTally> {
        self.learn_of_failures(drive);
        self.note_overlaps(drive);
        // None is a result too.
        drive.recorder.miss(Phase::Overlap, 0);
        for tally in &self.tallies {
            let missing = self.clients.len() - tally.back.len();
            drive.recorder.miss(Phase::Recovery, missing as u64);
        }
        std::mem::take(&mut self.tallies)
    }
}
