//! The server's event loops as everything outside them sees them, and each of them the others: a
//! list, also when it has one entry. Each is a thread with sessions and locks of its own, spoken to
//! through its inbox.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use monolock_core::engine::Departure;
use monolock_core::places::Places;
use monolock_core::shard_map::ShardNumber;
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
    /// Grant no lock to anybody any more, and go on serving.
    StopGranting,
    /// Grant locks again, first those that have waiters and no holder.
    ResumeGranting,
    /// A connection comes from another loop, since its lock belongs here; a place was taken for it.
    Adopt {
        /// Its socket.
        socket: OwnedFd,
        /// Its claim.
        departure: Departure,
        /// The loop that it comes from.
        from: ShardNumber,
    },
    /// So many connections wait in that loop for places here.
    PlacesWanted {
        /// The loop where they wait.
        from: ShardNumber,
        /// How many there are now.
        count: u32,
    },
    /// A place in that loop is kept for a connection that waits here.
    PlaceKept {
        /// Where the place is.
        at: ShardNumber,
    },
    /// A place that was taken here is not needed.
    PlaceReturned {
        /// The loop that had it.
        from: ShardNumber,
        /// How many connections wait there for a place here.
        still_wanted: u32,
    },
    /// Grant nothing any more, tell every session that the server shuts down, as far as is let,
    /// and end when all are gone, here and in all other loops.
    ShutDown,
    /// From now on the sessions of so many places may be told of the shutdown, whatever was said
    /// before.
    TellOfShutdown {
        /// How many.
        places_max: u32,
    },
}

/// One event loop, from outside.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    inbox: mpsc::Sender<Command>,
    waker: Waker,
    shared: Arc<Shared>,
}

/// What several threads need to know of an event loop.
#[derive(Debug)]
struct Shared {
    places: Places,
    numbered: NumberedSockets,
}

/// Sockets that are open under a number of the process's own, because they are on their way into an
/// event loop's ring: the process may have a limited number of those.
#[derive(Debug, Default)]
#[repr(align(128))]
struct NumberedSockets {
    /// Dealt to this loop and not yet in its ring.
    dealt: AtomicU32,
    /// How many more this loop may send to others now.
    may_leave: AtomicU32,
}

impl ShardHandle {
    /// A handle to the loop that reads `inbox`, is woken by `waker` and has so many places.
    pub fn new(inbox: mpsc::Sender<Command>, waker: Waker, places_max: u32) -> ShardHandle {
        let shared =
            Shared { places: Places::new(places_max), numbered: NumberedSockets::default() };
        ShardHandle { inbox, waker, shared: Arc::new(shared) }
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

    /// Makes the loop turn once.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// The places of its table of connections.
    pub fn places(&self) -> &Places {
        &self.shared.places
    }

    /// The loop has taken or dropped so many of the sockets that were dealt to it.
    pub fn has_taken_dealt(&self, count: u32) {
        self.shared.numbered.dealt.fetch_sub(count, Ordering::SeqCst);
    }

    /// The loop is about to send a connection to another one, which takes a descriptor: whether it
    /// may now. If not, it is woken when it may.
    pub fn begin_to_send(&self) -> bool {
        let one_less = |may_leave: u32| may_leave.checked_sub(1);
        let may_leave = &self.shared.numbered.may_leave;
        may_leave.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    /// A connection that the loop has sent is in the other one's ring, or was not sent after all.
    pub fn has_sent(&self) {
        if self.shared.numbered.may_leave.fetch_add(1, Ordering::SeqCst) == 0 {
            self.waker.wake();
        }
    }

    fn dealt(&self) -> u32 {
        self.shared.numbered.dealt.load(Ordering::SeqCst)
    }
}

/// Whether there are more event loops than processors.
pub fn share_processors(shards: &[ShardHandle]) -> bool {
    thread::available_parallelism().is_ok_and(|processors| processors.get() < shards.len())
}

/// Descriptors that are kept back from clients, for whatever else the server has to open.
const RESERVED_DESCRIPTORS: u64 = 32;

/// Where there are few descriptors, no larger part of them than this is kept back.
const RESERVED_PART: u64 = 8;

/// Sockets on their way from the acceptor into a ring's table. More would only wait there instead
/// of in the kernel's queue.
const DEALT_MAX: u32 = 1024;

/// Sockets on their way from one event loop to others. More would only wait there instead of in the
/// ring that they come from.
const LEAVING_MAX: u64 = 256;

/// How many descriptors there are for connections, in a process that may have so many and that has
/// already opened what it needs for itself.
pub fn spare_descriptors(descriptors_max: u64) -> u64 {
    let reserved = RESERVED_DESCRIPTORS.min(descriptors_max / RESERVED_PART);
    descriptors_max.saturating_sub(descriptors::open() + reserved)
}

/// Shares out descriptors. Each event loop may have some of them under way to others; what is left,
/// which is returned, is for connections that are accepted.
pub fn share_descriptors(shards: &[ShardHandle], spare: u64) -> u64 {
    if let [_] = shards {
        return spare.max(1);
    }
    let count = shards.len() as u64;
    let leaving_max = (spare / 2 / count).clamp(1, LEAVING_MAX);
    for shard in shards {
        let may_leave = u32::try_from(leaving_max).expect("clamped");
        shard.shared.numbered.may_leave.store(may_leave, Ordering::SeqCst);
    }
    spare.saturating_sub(leaving_max * count).max(1)
}

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
    shards: Arc<[ShardHandle]>,
    next: usize,
    /// There are more event loops than processors: they are let run after each round.
    shares_processor: bool,
    peer_limit: Option<Arc<PeerLimit>>,
    /// How many sockets there are descriptors for.
    descriptors_max: u64,
    counts: Arc<AcceptCounts>,
    last_warning: Option<Instant>,
}

impl RoundRobin {
    /// Deals to these loops; so many sockets may be on their way to them.
    pub fn new(
        shards: Arc<[ShardHandle]>,
        peer_limit: Option<Arc<PeerLimit>>,
        descriptors_max: u64,
    ) -> RoundRobin {
        RoundRobin {
            shares_processor: share_processors(&shards),
            shards,
            next: 0,
            peer_limit,
            descriptors_max,
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
        let dealt: u32 = self.shards.iter().map(ShardHandle::dealt).sum();
        if u64::from(dealt) >= self.descriptors_max {
            return Err(io::Error::other("the descriptors kept for connections are all in use"));
        }
        if dealt >= DEALT_MAX {
            // Nothing is wanting: the loops are behind, and ring when they have caught up.
            return Ok(false);
        }
        let count = self.shards.len();
        let next = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|&shard| self.shards[shard].places().has_room());
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
        shard.places().take_for_new();
        shard.shared.numbered.dealt.fetch_add(1, Ordering::SeqCst);
        shard.tell(Command::Connection { socket, peer, refusal });
        self.next = (self.next + 1) % self.shards.len();
        if self.next == 0 && self.shares_processor {
            thread::yield_now();
        }
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

    fn handle(places_max: u32) -> ShardHandle {
        let ring = Ring::new(&monolock_ring::Config::default()).expect("io_uring");
        let (inbox, _) = mpsc::channel();
        ShardHandle::new(inbox, ring.waker(), places_max)
    }

    #[test]
    fn loops_that_are_behind_are_waited_for_and_want_no_descriptors() {
        let shards: Arc<[ShardHandle]> = [handle(20_000), handle(20_000)].into();
        let dealer = |descriptors_max| RoundRobin::new(Arc::clone(&shards), None, descriptors_max);
        let (mut rich, mut poor) = (dealer(20_000), dealer(100));
        assert!(rich.has_room().expect("descriptors") && poor.has_room().expect("descriptors"));
        shards[1].shared.numbered.dealt.store(DEALT_MAX, Ordering::SeqCst);
        assert!(!rich.has_room().expect("descriptors"), "it waits until the bell is rung");
        assert!(poor.has_room().is_err(), "there is no descriptor to be had");
        shards[1].has_taken_dealt(DEALT_MAX);
        assert!(rich.has_room().expect("descriptors") && poor.has_room().expect("descriptors"));
    }

    #[test]
    fn connections_are_dealt_in_turn_to_loops_that_have_room() {
        let shards: Arc<[ShardHandle]> = [handle(9), handle(3), handle(9)].into();
        let mut dealer = RoundRobin::new(Arc::clone(&shards), None, 1000);
        while dealer.has_room().expect("descriptors") {
            let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
            dealer.deal(socket.into(), ([127, 0, 0, 1], 1).into());
        }
        let taken: Vec<u32> = shards.iter().map(|shard| shard.places().taken()).collect();
        assert_eq!(taken, [6, 2, 6], "two thirds of each");
    }

    #[test]
    fn a_loop_sends_no_more_at_a_time_than_it_has_descriptors_for() {
        let shards = [handle(9), handle(9)];
        assert_eq!(share_descriptors(&shards, 20), 10, "half are for connections that come");
        assert_eq!((0..100).filter(|_| shards[0].begin_to_send()).count(), 5, "and a quarter each");
        shards[0].has_sent();
        assert!(shards[0].begin_to_send() && !shards[0].begin_to_send());
        assert_eq!(share_descriptors(&shards, 0), 1, "there is always one to go on with");
        assert_eq!(share_descriptors(&shards, 20_000), 20_000 - 2 * LEAVING_MAX);
        assert_eq!(share_descriptors(&shards[..1], 20), 20, "nobody leaves the only loop");
    }
}
