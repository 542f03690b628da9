//! The course of a run, as all its threads see it: what is measured, and when it ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use monolock_core::time::Instant;

use crate::outages::Outages;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Shared by all threads of a run.
#[derive(Debug)]
pub struct Course {
    /// Nanoseconds of the clock; the end of time until it is decided.
    measured_from: AtomicU64,
    measured_until: AtomicU64,
    /// Everything is to end now, measured or not.
    abandoned: AtomicBool,
    /// It was noted what all threads have used, which is lost when one ends.
    is_accounted: AtomicBool,
    /// The server is shut down at the end, with all sessions that there are.
    awaits_shutdown: AtomicBool,
    /// That has begun.
    shutting_down: AtomicBool,
    /// Sessions of the setup that stand, or have failed to.
    pub settled: AtomicU64,
    /// Sessions that are connected.
    pub open: AtomicU64,
    /// Whatever was recorded, for the progress line.
    pub recorded: AtomicU64,
    /// Sessions that ended unasked.
    pub lost: AtomicU64,
    /// Threads that have begun.
    pub started: AtomicU64,
    /// Threads that have had their last answers.
    pub drained: AtomicU64,
    /// Failures of servers.
    pub outages: Outages,
}

impl Course {
    /// Nothing is measured yet. At the end the server may be about to be shut down.
    pub fn new(awaits_shutdown: bool) -> Course {
        Course {
            measured_from: AtomicU64::new(u64::MAX),
            measured_until: AtomicU64::new(u64::MAX),
            abandoned: AtomicBool::new(false),
            is_accounted: AtomicBool::new(false),
            awaits_shutdown: AtomicBool::new(awaits_shutdown),
            shutting_down: AtomicBool::new(false),
            settled: AtomicU64::new(0),
            open: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            started: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            outages: Outages::default(),
        }
    }

    /// Decides what is measured. In the future, so that all threads agree.
    pub fn measure(&self, from: Instant, until: Instant) {
        self.measured_until.store(until.as_nanos(), Ordering::SeqCst);
        self.measured_from.store(from.as_nanos(), Ordering::SeqCst);
    }

    /// Ends measuring early.
    pub fn end_at(&self, now: Instant) {
        self.measured_until.fetch_min(now.as_nanos(), Ordering::SeqCst);
    }

    /// Ends everything at once.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// Whether everything is to end at once.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// It was noted what all threads have used: they may end.
    pub fn note_accounted(&self) {
        self.is_accounted.store(true, Ordering::SeqCst);
    }

    /// Whether it was noted what all threads have used.
    pub fn is_accounted(&self) -> bool {
        self.is_accounted.load(Ordering::SeqCst)
    }

    /// The server is told to shut down now.
    pub fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
    }

    /// The server is not told to shut down after all.
    pub fn spare_server(&self) {
        self.awaits_shutdown.store(false, Ordering::SeqCst);
    }

    /// Whether the server is to be shut down, or is being.
    pub fn awaits_shutdown(&self) -> bool {
        self.awaits_shutdown.load(Ordering::SeqCst)
    }

    /// Whether sessions end now because the server shuts down.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    /// Whether something intended for this moment is measured.
    pub fn is_measured(&self, intended: Instant) -> bool {
        let nanos = intended.as_nanos();
        nanos >= self.measured_from.load(Ordering::Relaxed)
            && nanos < self.measured_until.load(Ordering::Relaxed)
    }

    /// Whether measuring is over.
    pub fn is_over(&self, now: Instant) -> bool {
        now.as_nanos() >= self.measured_until.load(Ordering::Relaxed)
    }

    /// How far into the measured time this is, in nanoseconds; nothing outside it.
    pub fn measured_nanos(&self, at: Instant) -> Option<u64> {
        let from = self.measured_from.load(Ordering::Relaxed);
        self.is_measured(at).then(|| at.as_nanos() - from)
    }

    /// Which second of the measured time this is. What comes in after its end is the last second's.
    pub fn measured_second(&self, now: Instant) -> Option<u64> {
        let from = self.measured_from.load(Ordering::Relaxed);
        let until = self.measured_until.load(Ordering::Relaxed);
        let nanos = now.as_nanos().min(until.saturating_sub(1)).checked_sub(from)?;
        Some(nanos / NANOS_PER_SEC)
    }
}

impl Default for Course {
    fn default() -> Course {
        Course::new(false)
    }
}
