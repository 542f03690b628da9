//! One session in ten floods the server with heartbeats and doesn't read a single answer. The
//! others should not notice, and the server should end it when its time for a blocked write is
//! over.

use std::collections::HashMap;

use monolock_core::time::Instant;

use super::{BACKOFF, Returning, Script, Share};
use crate::drive::{Drive, Happening};
use crate::phase::Phase;
use crate::plan;
use crate::settings::Load;

/// One session in so many is deaf.
const DEAF_ONE_IN: u32 = 10;

/// See the module.
pub(super) struct SlowReader {
    /// Sessions that are to come, the next one last.
    settlers: Vec<(Instant, u32)>,
    /// Those that were cut off, and come back.
    returning: Returning,
    /// Since when the answers of a deaf session have been stuck.
    stuck_since: HashMap<u32, Instant>,
}

impl SlowReader {
    pub(super) fn new(load: &Load, share: Share) -> SlowReader {
        let mut settlers: Vec<_> = share.of(plan::settlers(load)).collect();
        settlers.reverse();
        SlowReader { settlers, returning: Returning::default(), stuck_since: HashMap::new() }
    }

    fn open(drive: &mut Drive, lock: u32, intended: Instant) {
        if is_deaf(lock) {
            drive.open_hard_of_hearing(lock, intended);
        } else {
            drive.open(lock, intended);
        }
    }
}

fn is_deaf(lock: u32) -> bool {
    lock.is_multiple_of(DEAF_ONE_IN)
}

impl Script for SlowReader {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        while drive.may_open()
            && let Some((intended, lock)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            SlowReader::open(drive, lock, intended);
        }
        while drive.may_open()
            && !drive.course.is_over(now)
            && let Some((intended, lock)) = self.returning.pop_if_due(now)
        {
            SlowReader::open(drive, lock, intended);
        }
    }

    fn next_at(&self) -> Instant {
        let settler_at = self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at);
        settler_at.min(self.returning.next_at())
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, now: Instant) {
        drive.count_settled(happening);
        match happening {
            Happening::Granted(index) if is_deaf(drive.sessions.at(index).lock) => {
                drive.turn_deaf(index, now);
                drive.flood(index);
            }
            Happening::Flooded(index) => {
                self.stuck_since.remove(&index);
                drive.flood(index);
            }
            Happening::Stuck(index) => {
                self.stuck_since.entry(index).or_insert(now);
            }
            Happening::Lost(index) => {
                if let Some(since) = self.stuck_since.remove(&index) {
                    drive.record_cutoff(since, now);
                }
            }
            Happening::Closed(index) => {
                let lock = drive.sessions.at(index).lock;
                if is_deaf(lock) {
                    self.returning.push(now.after(BACKOFF), lock);
                }
            }
            Happening::Failed(lock) if is_deaf(lock) => {
                self.returning.push(now.after(BACKOFF), lock);
            }
            Happening::Failed(_)
            | Happening::Queued(_)
            | Happening::Granted(_)
            | Happening::Survived(_) => {}
        }
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        Vec::new()
    }
}
