//! What the locks of a run are called.

use crate::clock;

/// Names that no other run uses, so that all sessions of a lock are ours.
#[derive(Clone, Copy, Debug)]
pub struct LockNames {
    run: u32,
    worker: u32,
    workers: u32,
}

impl LockNames {
    /// For a new run.
    pub fn new() -> LockNames {
        let low_bits = clock::now().as_nanos() & u64::from(u32::MAX);
        let run = u32::try_from(low_bits).expect("32 bits") ^ std::process::id().rotate_left(16);
        LockNames { run, worker: 0, workers: 1 }
    }

    /// For the locks of one worker of several.
    #[must_use]
    pub fn of_worker(self, worker: u32, workers: u32) -> LockNames {
        LockNames { worker, workers, ..self }
    }

    /// The name of a lock, by the number that it has in its worker.
    pub fn name(&self, lock: u32) -> String {
        let number = u64::from(lock) * u64::from(self.workers) + u64::from(self.worker);
        format!("loadgen/{:08x}/{number}", self.run)
    }
}

impl Default for LockNames {
    fn default() -> LockNames {
        LockNames::new()
    }
}
