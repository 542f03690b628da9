//! Sessions that come once, hold their locks, and do nothing but send heartbeats.

use monolock_core::time::Instant;

use super::{Script, Share};
use crate::drive::{Drive, Happening};
use crate::phase::Phase;
use crate::plan;
use crate::settings::Load;

/// See the module.
pub(super) struct Heartbeat {
    /// What is still to come, the next one last.
    settlers: Vec<(Instant, u32)>,
}

impl Heartbeat {
    pub(super) fn new(load: &Load, share: Share) -> Heartbeat {
        let mut settlers: Vec<_> = share.of(plan::settlers(load)).collect();
        settlers.reverse();
        Heartbeat { settlers }
    }
}

impl Script for Heartbeat {
    fn turn(&mut self, drive: &mut Drive, now: Instant) {
        while drive.may_open()
            && let Some((intended, lock)) = self.settlers.pop_if(|(at, _)| *at <= now)
        {
            drive.open(lock, intended);
        }
    }

    fn next_at(&self) -> Instant {
        self.settlers.last().map_or(Instant::NEVER, |(at, _)| *at)
    }

    fn hear(&mut self, happening: Happening, drive: &mut Drive, _now: Instant) {
        drive.count_settled(happening);
    }

    fn backlog(&self, _now: Instant) -> Vec<(Phase, Instant)> {
        Vec::new()
    }
}
