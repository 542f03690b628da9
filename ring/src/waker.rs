//! Wake-ups from other threads.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Makes the present or next [`Ring::wait`](crate::Ring::wait) return with
/// [`Event::Woken`](crate::Event::Woken), from any thread.
///
/// To hand something over: put it where the ring's thread looks, then call [`Waker::wake`]; that
/// thread looks when it gets `Woken`. Nothing is missed: a wake-up that is swallowed because one is
/// pending happened before the `Woken` that is still to come.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

struct Shared {
    eventfd: OwnedFd,
    /// A wake-up was sent and not yet handed out: others needn't send theirs.
    pending: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker(Arc::new(Shared { eventfd, pending: AtomicBool::new(false) })))
    }

    /// Wakes the ring's thread. Costs no system call while an earlier wake-up is still pending, and
    /// does nothing when the ring is gone.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            // Can only fail when the counter is full, and then the ring is woken anyway.
            let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// To be called before `Woken` is handed out, so that whatever is put in the inbox after the
    /// caller looked there sends a new wake-up.
    pub(crate) fn acknowledge(&self) {
        self.0.pending.swap(false, Ordering::AcqRel);
    }

    /// What the ring polls. The counter is never read: each write wakes a multishot poll.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}
