//! The thread on which all claims of this process live.
//!
//! Heartbeats must go out whatever the caller's threads do: a runtime whose only worker computes for
//! a minute, or a blocking call in an async function, must not cost the lock. So nothing of the
//! caller's ever runs on this thread.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

static SHARED: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

/// A handle to the thread, which ends with the last handle.
#[derive(Debug)]
pub(crate) struct Driver {
    runtime: Handle,
    /// Dropped, it ends the thread.
    _alive: oneshot::Sender<()>,
}

impl Driver {
    /// The driver of this process, started if there is none.
    ///
    /// # Errors
    /// If there is no thread or no descriptor to be had.
    pub(crate) fn shared() -> io::Result<Arc<Driver>> {
        // Whoever panicked while starting it has left what was there before.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = shared.upgrade() {
            return Ok(driver);
        }
        let driver = Arc::new(Driver::start()?);
        *shared = Arc::downgrade(&driver);
        Ok(driver)
    }

    fn start() -> io::Result<Driver> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        thread::Builder::new().name("monolock-client".into()).spawn(move || {
            // Nothing is ever sent: it ends when the sender is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Driver { runtime: handle, _alive: alive })
    }

    /// Runs a task on the thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}
