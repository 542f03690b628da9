//! The two queues shared with the kernel.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring};
use rustix::io::Errno;

use crate::operation::{Completion, Operation};

pub(crate) struct Queues {
    ring: IoUring,
    /// What found no room because the kernel was out of memory for more. Usually empty.
    backlog: VecDeque<Entry>,
    /// Something queued and not yet submitted may find bytes to read.
    reads_queued: bool,
}

impl Queues {
    pub(crate) fn new(ring: IoUring) -> Queues {
        Queues { ring, backlog: VecDeque::new(), reads_queued: false }
    }

    /// Queues an operation. In a full queue it makes room by submitting.
    #[inline]
    pub(crate) fn push(&mut self, operation: &Operation) {
        if !self.backlog.is_empty() || !self.try_push(operation.entry()) {
            self.push_to_full(operation.entry());
        }
    }

    /// Queues an operation that may find bytes to read.
    pub(crate) fn push_read(&mut self, operation: &Operation) {
        self.reads_queued = true;
        self.push(operation);
    }

    #[inline]
    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: the entry comes from an `Operation`, whose maker answers for the memory that it
        // refers to.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    #[cold]
    fn push_to_full(&mut self, entry: &Entry) {
        self.backlog.push_back(entry.clone());
        self.submit_backlog();
    }

    /// Submits until the backlog is in the queue, or the kernel takes no more for now. A real error
    /// will come again, and be reported, in the enter that follows.
    fn submit_backlog(&mut self) {
        while let Some(entry) = self.backlog.front().cloned() {
            if self.try_push(&entry) {
                self.backlog.pop_front();
            } else if !matches!(self.enter_at_once(EnterFlags::empty()), Ok(1..)) {
                return;
            }
        }
    }

    /// Submits what is queued and waits until there are as many completions as are wanted or the
    /// time has passed. None: no limit, and one completion will do; zero: runs what is ready to
    /// run, and doesn't sleep.
    pub(crate) fn enter(&mut self, timeout: Option<Duration>, wanted: usize) -> io::Result<()> {
        self.submit_backlog();
        let timeout = if self.backlog.is_empty() { timeout } else { Some(Duration::ZERO) };
        let result = match timeout {
            None => self.ring.submit_and_wait(1),
            // Asking for many completions would run more than some 20 deferred items, but where
            // there are fewer the kernel sleeps on a timer that has run out: 25 us, measured, and
            // no less CPU a heartbeat where there are more.
            Some(Duration::ZERO) => self.enter_at_once(EnterFlags::GETEVENTS),
            Some(limit) => {
                let micros = u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
                let limit = Timespec::from(limit);
                let limits = SubmitArgs::new().timespec(&limit);
                // After the time at which one would do too, the kernel returns with what it has.
                let limits = if wanted > 1 { limits.min_wait_usec(micros) } else { limits };
                self.ring.submitter().submit_with_args(wanted, &limits)
            }
        };
        if self.backlog.is_empty() && self.ring.submission().is_empty() {
            self.reads_queued = false;
        }
        match result.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) => Ok(()),
            // The time has passed; a signal; completions that must be reaped first; no memory for
            // all that was queued, which stays queued.
            Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    fn enter_at_once(&mut self, flags: EnterFlags) -> io::Result<usize> {
        let queued = self.ring.submission().len();
        let queued = u32::try_from(queued).expect("a queue has less than 2^32 entries");
        // SAFETY: no argument is passed, so its type doesn't matter; flags and counts are valid.
        unsafe { self.ring.submitter().enter::<()>(queued, 0, flags.bits(), None) }
    }

    /// Takes all completions that are there.
    #[inline]
    pub(crate) fn reap(&mut self, into: &mut VecDeque<Completion>) {
        into.extend(self.ring.completion().map(|entry| Completion::of(&entry)));
    }

    /// Whether the kernel holds completions that found no room in their queue.
    #[inline]
    pub(crate) fn is_overflowing(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Whether the kernel has nothing for us, nor will have by submitting what is queued.
    pub(crate) fn is_settled(&mut self) -> bool {
        let submission = self.ring.submission();
        let (taskrun, overflow) = (submission.taskrun(), submission.cq_overflow());
        drop(submission);
        !taskrun && !overflow && !self.reads_queued && self.ring.completion().is_empty()
    }

    /// For what is registered: files, buffers.
    pub(crate) fn ring(&self) -> &IoUring {
        &self.ring
    }
}
