//! The server's event loops as everything outside them sees them: a list, also when it has one
//! entry. Each is a thread with sessions and locks of its own, spoken to through its inbox.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use monolock_core::time::Instant;
use monolock_core::wire::ErrorCode;
use monolock_ring::{Dealer, Waker};
use tokio::sync::oneshot;
use tracing::warn;

use crate::clock;
use crate::descriptors;
use crate::inspection::{Inspected, Question};
use crate::peer_limit::PeerLimit;

/// What an event loop can be told.
#[derive(Debug)]
pub enum Command {
    /// A connection is dealt to it; a place is kept for it.
    Connection {
        /// The accepted socket.
        socket: OwnedFd,
        /// Where it comes from.
        peer: SocketAddr,
        /// The connection is one too many: this is what it is to be told.
        refusal: Option<ErrorCode>,
    },
    /// A question about its sessions and locks.
    Ask(Question),
    /// Tell every session that the server shuts down, and end when all are gone.
    ShutDown,
}

/// One event loop, from outside.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    inbox: mpsc::Sender<Command>,
    waker: Waker,
    places: Arc<Places>,
}

impl ShardHandle {
    /// A handle to the loop that reads `inbox` and is woken by `waker`.
    pub fn new(inbox: mpsc::Sender<Command>, waker: Waker, places: Arc<Places>) -> ShardHandle {
        ShardHandle { inbox, waker, places }
    }

    /// Tells the loop something. It is lost if the loop has ended.
    pub fn tell(&self, command: Command) {
        if self.inbox.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Asks the loop something, which it answers within one of its next turns: see
    /// [`Question::new`]. If the loop has ended or ends before, there will be no answer.
    pub fn ask<A: Send + 'static>(
        &self,
        ask: impl FnOnce(Inspected<'_>) -> A + Send + 'static,
    ) -> oneshot::Receiver<A> {
        let (question, answered) = Question::new(ask);
        self.tell(Command::Ask(question));
        answered
    }

    /// How many places of its table are taken, and how many there are.
    pub fn slots(&self) -> (u32, u32) {
        (self.places.taken.load(Ordering::Relaxed), self.places.max)
    }
}

/// The places of one event loop's table of connections.
///
/// Only the acceptor takes places, one for each connection that it deals; only the loop gives them
/// back. So a place that the acceptor sees free stays free for it.
#[derive(Debug)]
pub struct Places {
    max: u32,
    taken: AtomicU32,
    /// Of those taken, the ones with a claim on a lock.
    claimed: AtomicU32,
    /// Accepted sockets that are still open under a number of the process's own.
    numbered: AtomicU32,
}

impl Places {
    /// All of `max` places are free.
    pub fn new(max: u32) -> Places {
        Places {
            max,
            taken: AtomicU32::new(0),
            claimed: AtomicU32::new(0),
            numbered: AtomicU32::new(0),
        }
    }

    /// Whether a connection may take a place. Those that have not sent their ACQUIRE never get the
    /// last third of what is free of claims, so that silent connections never have every place.
    fn has_room(&self) -> bool {
        let taken = self.taken.load(Ordering::SeqCst);
        let claimed = self.claimed.load(Ordering::SeqCst).min(taken);
        let unclaimed_max = u64::from(self.max - claimed) * 2;
        taken < self.max && u64::from(taken - claimed) < unclaimed_max.div_ceil(3)
    }

    fn take(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
        self.numbered.fetch_add(1, Ordering::SeqCst);
    }

    /// The loop has `freed` connections less, has put `unnumbered` dealt sockets into its ring's
    /// table or has dropped them, and `claimed` of the connections that it has are claims. Returns
    /// whether that is news, and there may be room where there was none.
    pub fn publish(&self, freed: u32, unnumbered: u32, claimed: u32) -> bool {
        if freed == 0 && unnumbered == 0 && claimed == self.claimed.load(Ordering::SeqCst) {
            return false;
        }
        self.claimed.store(claimed, Ordering::SeqCst);
        self.taken.fetch_sub(freed, Ordering::SeqCst);
        self.numbered.fetch_sub(unnumbered, Ordering::SeqCst);
        true
    }
}

/// Descriptors that are kept back from clients, for whatever else the server has to open.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Where there are few descriptors, no larger part of them than this is kept back.
const RESERVED_PART: u64 = 8;

/// Sockets on their way from the acceptor into a ring's table. More would only wait there instead
/// of in the kernel's queue.
const NUMBERED_MAX: u32 = 1024;

/// A failing accept is said once in this time, with how often it has failed so far.
const WARNING_PERIOD: Duration = Duration::from_secs(1);

/// What became of the connections that wanted to come in.
#[derive(Debug, Default)]
pub struct AcceptCounts {
    /// Accepted.
    pub accepted: AtomicU64,
    /// Not accepted, for what the kernel said or for want of descriptors.
    pub errors: AtomicU64,
}

/// Deals accepted connections round robin to the event loops that have room.
#[derive(Debug)]
pub struct RoundRobin {
    shards: Vec<ShardHandle>,
    next: usize,
    peer_limit: Option<Arc<PeerLimit>>,
    /// How many sockets there are descriptors for.
    spare_descriptors: u64,
    counts: Arc<AcceptCounts>,
    last_warning: Option<Instant>,
}

impl RoundRobin {
    /// Deals to these loops, in a process that may have `descriptors_max` descriptors.
    pub fn new(
        shards: Vec<ShardHandle>,
        peer_limit: Option<Arc<PeerLimit>>,
        descriptors_max: u64,
    ) -> RoundRobin {
        let reserved = RESERVED_DESCRIPTORS.min(descriptors_max / RESERVED_PART);
        let in_use = descriptors::open() + reserved;
        let spare_descriptors = descriptors_max.saturating_sub(in_use).max(1);
        RoundRobin {
            shards,
            next: 0,
            peer_limit,
            spare_descriptors,
            counts: Arc::default(),
            last_warning: None,
        }
    }

    /// What it counts, for others to read.
    pub fn counts(&self) -> Arc<AcceptCounts> {
        Arc::clone(&self.counts)
    }
}

impl Dealer for RoundRobin {
    fn has_room(&mut self) -> io::Result<bool> {
        let numbered: u32 =
            self.shards.iter().map(|shard| shard.places.numbered.load(Ordering::SeqCst)).sum();
        if u64::from(numbered) >= self.spare_descriptors {
            return Err(io::Error::other("the descriptors kept for connections are all in use"));
        }
        if numbered >= NUMBERED_MAX {
            // Nothing is wanting: the loops are behind, and ring when they have caught up.
            return Ok(false);
        }
        let count = self.shards.len();
        let next = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|&shard| self.shards[shard].places.has_room());
        if let Some(next) = next {
            self.next = next;
        }
        Ok(next.is_some())
    }

    fn deal(&mut self, socket: OwnedFd, peer: SocketAddr) {
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        let refusal = match &self.peer_limit {
            Some(limit) if !limit.enter(peer.ip().to_canonical()) => {
                Some(ErrorCode::TOO_MANY_SESSIONS)
            }
            _ => None,
        };
        let shard = &self.shards[self.next];
        shard.places.take();
        shard.tell(Command::Connection { socket, peer, refusal });
        self.next = (self.next + 1) % self.shards.len();
    }

    fn accept_failed(&mut self, error: &io::Error) {
        let errors = self.counts.errors.fetch_add(1, Ordering::Relaxed) + 1;
        let now = clock::monotonic();
        if self.last_warning.is_none_or(|last| now.since(last) >= WARNING_PERIOD) {
            self.last_warning = Some(now);
            warn!(errors, "cannot accept a connection, will try again: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use monolock_ring::Ring;

    use super::*;

    #[test]
    fn unclaimed_connections_get_two_thirds_of_what_no_claim_has() {
        let places = Places::new(9);
        for _ in 0..6 {
            assert!(places.has_room());
            places.take();
        }
        assert!(!places.has_room(), "the last third is for claims");
        places.publish(0, 0, 6);
        for claimed in 6..9 {
            assert!(places.has_room(), "with {claimed} claims");
            places.take();
            places.publish(0, 0, claimed + 1);
        }
        assert!(!places.has_room(), "every place is taken");
        places.publish(1, 0, 8);
        assert!(places.has_room());
    }

    #[test]
    fn loops_that_are_behind_are_waited_for_and_want_no_descriptors() {
        let ring = Ring::new(&monolock_ring::Config::default()).expect("io_uring");
        let places = Arc::new(Places::new(20_000));
        let (inbox, _) = mpsc::channel();
        let shard = ShardHandle::new(inbox, ring.waker(), Arc::clone(&places));
        let dealer = |descriptors_max| RoundRobin::new(vec![shard.clone()], None, descriptors_max);
        let mut rich = dealer(20_000);
        let mut poor = dealer(descriptors::open() + RESERVED_DESCRIPTORS + 100);
        assert!(rich.has_room().expect("descriptors") && poor.has_room().expect("descriptors"));
        (0..NUMBERED_MAX).for_each(|_| places.take());
        assert!(!rich.has_room().expect("descriptors"), "it waits until the bell is rung");
        assert!(poor.has_room().is_err(), "there is no descriptor to be had");
        assert!(places.publish(0, NUMBERED_MAX, 0), "the bell is rung");
        assert!(rich.has_room().expect("descriptors") && poor.has_room().expect("descriptors"));
    }
}
