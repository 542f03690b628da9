//! Accepting connections, on a small thread of its own and by plain `accept4`.
//!
//! No request of a ring ever refers to the listening socket: such a request would keep the port
//! bound after a SIGKILL until the kernel has taken the whole ring down, which with many sessions
//! takes seconds. And a connection is accepted only when there is a place for it, so that the
//! others wait in the kernel's queue instead of being closed.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

/// How long to wait after a failed accept that would fail again at once; doubled up to the maximum.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(200);

/// Decides about connections and takes them, on the acceptor's thread.
pub trait Dealer: Send + 'static {
    /// Whether a connection could be taken now.
    ///
    /// # Errors
    /// If it can't be for want of something that nobody will ring the [`Bell`] for. It is treated
    /// like a failed accept.
    fn has_room(&mut self) -> io::Result<bool>;

    /// A connection for which there was room.
    fn deal(&mut self, socket: OwnedFd, peer: SocketAddr);

    /// A connection could not be accepted. The acceptor goes on.
    fn accept_failed(&mut self, error: &io::Error);
}

/// A running acceptor.
#[derive(Debug)]
pub struct Acceptor {
    thread: JoinHandle<()>,
    bell: Bell,
}

impl Acceptor {
    /// Begins to accept on `listener`, which must be listening and non-blocking.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(listener: OwnedFd, bell: Bell, dealer: impl Dealer) -> io::Result<Acceptor> {
        let thread = thread::Builder::new().name("acceptor".into()).spawn({
            let bell = bell.clone();
            move || Accepting { listener, bell, dealer, backoff: BACKOFF_MIN }.run()
        })?;
        Ok(Acceptor { thread, bell })
    }

    /// Ends accepting and closes the listener. What waits in the kernel's queue is refused.
    pub fn stop(self) {
        self.bell.shared.stopping.store(true, Ordering::SeqCst);
        self.bell.strike();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Tells an acceptor that waits for room that there may be some.
#[derive(Clone, Debug)]
pub struct Bell {
    shared: Arc<BellShared>,
}

#[derive(Debug)]
struct BellShared {
    event: OwnedFd,
    listened_for: AtomicBool,
    stopping: AtomicBool,
}

impl Bell {
    /// A bell that nobody has rung.
    ///
    /// # Errors
    /// If there is no descriptor to be had.
    pub fn new() -> io::Result<Bell> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = BellShared {
            event,
            listened_for: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        };
        Ok(Bell { shared: Arc::new(shared) })
    }

    /// There may be room. Costs next to nothing while nobody waits for it.
    ///
    /// Whatever makes [`Dealer::has_room`] true must have been stored before, in sequentially
    /// consistent order.
    pub fn ring(&self) {
        if self.shared.listened_for.load(Ordering::SeqCst) {
            self.strike();
        }
    }

    fn strike(&self) {
        // It fails only when the counter is full, and then the acceptor is woken all the same.
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
    }
}

struct Accepting<D> {
    listener: OwnedFd,
    bell: Bell,
    dealer: D,
    backoff: Duration,
}

impl<D: Dealer> Accepting<D> {
    fn run(mut self) {
        while !self.bell.shared.stopping.load(Ordering::SeqCst) {
            match self.dealer.has_room() {
                Ok(true) => self.accept(),
                Ok(false) => self.wait_for_room(),
                Err(error) => self.fail(&error),
            }
        }
    }

    fn accept(&mut self) {
        match acceptfrom_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok((socket, peer)) => {
                self.backoff = BACKOFF_MIN;
                // A TCP peer always has an address.
                if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                    self.dealer.deal(socket, peer);
                }
            }
            Err(Errno::AGAIN) => self.sleep(Some(&self.listener), None),
            Err(Errno::INTR) => {}
            // The connection was there and is gone: the next one may be fine. Linux also reports
            // here what the network said of the new connection.
            Err(
                error @ (Errno::CONNABORTED
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::TIMEDOUT),
            ) => self.dealer.accept_failed(&error.into()),
            // EMFILE, ENFILE, ENOBUFS, ENOMEM, and whatever else would be the same at once again.
            Err(error) => self.fail(&error.into()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.dealer.accept_failed(error);
        self.sleep(None, Some(self.backoff));
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn wait_for_room(&mut self) {
        let shared = Arc::clone(&self.bell.shared);
        shared.listened_for.store(true, Ordering::SeqCst);
        // Room that came before the bell was listened for has not been rung for.
        if let Ok(false) = self.dealer.has_room() {
            self.sleep(None, None);
        }
        shared.listened_for.store(false, Ordering::SeqCst);
    }

    /// Sleeps until the bell rings, the listener has a connection, or the time is over.
    fn sleep(&self, listener: Option<&OwnedFd>, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let bell = PollFd::new(&self.bell.shared.event, PollFlags::IN);
        // A signal or a want of memory ends the sleep early, which does no harm.
        let _ = match listener {
            Some(listener) => {
                poll(&mut [bell, PollFd::new(listener, PollFlags::IN)], timeout.as_ref())
            }
            None => poll(&mut [bell], timeout.as_ref()),
        };
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.bell.shared.event, &mut rung);
    }
}
