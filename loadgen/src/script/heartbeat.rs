//! Sessions that come once, hold their locks, and do nothing but send heartbeats.

use monolock_core::time::Instant;

use super::{Script, Share};
use crate::drive::{Drive, Happening};
use crate::phase::Phase;
use crate::plan;
use crate::settings::Load;

/// With more threads than this, one that wakes for each answer would take more time than all the
/// rest of connecting.
const THREADS_AT_ONCE_MAX: u32 = 4;

/// See the module.
pub(super) struct Heartbeat {
    /// What is still to come, the next one last.
    settlers: Vec<(Instant, u32)>,
    /// How many have come and had no answer yet.
    asking: u32,
    /// Few enough threads.
    notes_connecting: bool,
}

impl Heartbeat {
    pub(super) fn new(load: &Load, share: Share) -> Heartbeat {
        let mut settlers: Vec<_> = share.of(plan::settlers(load)).collect();
        settlers.reverse();
        let notes_connecting = share.workers <= THREADS_AT_ONCE_MAX;
        Heartbeat { settlers, asking: 0, notes_connecting }
    }
}

impl Script for Heartbeat {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        while drive.may_open()
            && let Some((intended, lock)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            drive.open(lock, intended);
            self.asking += 1;
        }
    }

    fn next_at(&self) -> Instant {
        self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at)
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, _now: Instant) {
        self.asking -= u32::from(drive.count_settled(happening));
    }

    /// Nothing follows from a heartbeat's answer. Connecting is timed by when it is noticed.
    fn answers_at_once(&self) -> bool {
        self.notes_connecting && (self.asking > 0 || !self.settlers.is_empty())
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        Vec::new()
    }
}
