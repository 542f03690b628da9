//! What is written to the audit log, on its way from the event loops to its writer. An event loop
//! never waits: what finds the queue full is dropped and counted, and the gap is marked in its
//! place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolock_core::effect::{Ownership, OwnershipChange, ReleaseReason};
use monolock_core::lock_table::LockName;
use monolock_core::session::PeerAddress;
use monolock_core::time::UnixTime;
use tokio::sync::mpsc;

/// Events that wait to be written.
pub const EVENTS_MAX: usize = 65_536;

/// Something that the log tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A lock has changed hands, or an administrator has seen to it.
    Event(Event),
    /// So many events were dropped in this place.
    Dropped(u64),
}

/// One event of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: UnixTime,
    /// Of which lock.
    pub lock: LockName,
    /// Whose session it is about.
    pub peer: PeerAddress,
    /// What has happened.
    pub what: What,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The lock was granted.
    Granted {
        /// By which token.
        token: u64,
        /// From ACQUIRE to grant.
        wait: Duration,
    },
    /// The lock was taken back.
    Released {
        /// By which token it was held.
        token: u64,
        /// From grant to release.
        held: Duration,
        /// Why.
        reason: ReleaseReason,
    },
    /// An administrator takes the lock from its holder, whose release follows.
    ForceRelease {
        /// The holder's token.
        token: u64,
    },
    /// An administrator has taken a waiter out of the queue.
    KickWaiter,
}

impl Event {
    /// The event of a change of ownership.
    pub fn of_change(change: &OwnershipChange, time: UnixTime) -> Event {
        let token = change.token.get();
        let what = match change.what {
            Ownership::Granted { wait } => What::Granted { token, wait },
            Ownership::Released { held, reason } => What::Released { token, held, reason },
        };
        Event { time, lock: change.lock.clone(), peer: change.peer, what }
    }
}

/// How many events were dropped, and how many lines wait.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    dropped: AtomicU64,
    queued: AtomicU64,
    written: AtomicU64,
}

impl Ledger {
    /// How many events were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// How many lines are not written yet.
    pub fn waiting(&self) -> u64 {
        let written = self.0.written.load(Ordering::Relaxed);
        self.0.queued.load(Ordering::Relaxed).saturating_sub(written)
    }

    /// Notes a line that is to be written.
    pub fn note_queued(&self) {
        self.0.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes lines that are written.
    pub fn note_written(&self, lines: u64) {
        self.0.written.fetch_add(lines, Ordering::Relaxed);
    }
}

/// Where one event loop puts its events.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Entry>,
    /// Dropped events of this loop whose gap is not marked yet.
    unmarked: Arc<AtomicU64>,
    ledger: Ledger,
}

/// Where the writer takes the events of all loops from.
#[derive(Debug)]
pub struct Queue {
    queue: mpsc::Receiver<Entry>,
    /// Of each loop.
    unmarked: Vec<Arc<AtomicU64>>,
    ledger: Ledger,
}

/// A queue of so many entries, and a recorder for each of so many event loops.
pub fn queue(entries_max: usize, loops: usize, ledger: &Ledger) -> (Vec<Recorder>, Queue) {
    let (sender, receiver) = mpsc::channel(entries_max);
    let recorders: Vec<Recorder> = (0..loops)
        .map(|_| Recorder {
            queue: sender.clone(),
            unmarked: Arc::default(),
            ledger: ledger.clone(),
        })
        .collect();
    let unmarked = recorders.iter().map(|recorder| Arc::clone(&recorder.unmarked)).collect();
    (recorders, Queue { queue: receiver, unmarked, ledger: ledger.clone() })
}

impl Recorder {
    /// Puts an event into the queue, or counts it as dropped. To be called on the loop's thread
    /// alone, so that events have their order.
    pub fn record(&self, event: Event) {
        // Whoever takes the count marks the gap: here before the next event, or the writer once it
        // has written all that came before the gap. Either way the mark is in its place.
        let dropped = self.unmarked.swap(0, Ordering::SeqCst);
        let is_marked = dropped == 0 || self.put(Entry::Dropped(dropped));
        if is_marked && self.put(Entry::Event(event)) {
            return;
        }
        self.ledger.0.dropped.fetch_add(1, Ordering::Relaxed);
        self.unmarked.fetch_add(1 + if is_marked { 0 } else { dropped }, Ordering::SeqCst);
    }

    fn put(&self, entry: Entry) -> bool {
        let has_room = self.queue.try_send(entry).is_ok();
        if has_room {
            self.ledger.note_queued();
        }
        has_room
    }
}

impl Queue {
    /// Waits for entries and takes up to `limit` of them, in their order. There are none any more
    /// once all recorders are gone.
    pub async fn take(&mut self, into: &mut Vec<Entry>, limit: usize) {
        self.queue.recv_many(into, limit).await;
    }

    /// The gaps behind all that was taken, if nothing waits any more.
    pub fn gaps(&self) -> Option<Entry> {
        if !self.queue.is_empty() {
            return None;
        }
        let counts = self.unmarked.iter();
        let dropped = counts.map(|count| count.swap(0, Ordering::SeqCst)).sum();
        if dropped == 0 {
            return None;
        }
        self.ledger.note_queued();
        Some(Entry::Dropped(dropped))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn event(token: u64) -> Event {
        Event {
            time: UnixTime::new(token, 0),
            lock: "lock".into(),
            peer: SocketAddr::from(([10, 0, 0, 5], 1)).into(),
            what: What::ForceRelease { token },
        }
    }

    /// The tokens of what is taken, and gaps as negative numbers.
    fn take(queue: &mut Queue, limit: usize) -> Vec<i64> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Ok(entry) = queue.queue.try_recv()
        {
            taken.push(entry);
        }
        let number = |entry| match entry {
            Entry::Dropped(count) => -i64::try_from(count).expect("few"),
            Entry::Event(event) => i64::try_from(event.time.secs()).expect("few"),
        };
        taken.into_iter().map(number).collect()
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_marked_in_its_place() {
        let ledger = Ledger::default();
        let (recorders, mut queue) = queue(3, 1, &ledger);
        (1..=5).for_each(|token| recorders[0].record(event(token)));
        assert_eq!(ledger.dropped(), 2);
        assert!(queue.gaps().is_none(), "what came before the gap is not taken yet");
        assert_eq!(take(&mut queue, 2), [1, 2]);
        (6..=7).for_each(|token| recorders[0].record(event(token)));
        assert_eq!(take(&mut queue, 9), [3, -2, 6]);
        assert_eq!(queue.gaps(), Some(Entry::Dropped(1)), "nothing more has come behind it");
        assert_eq!(queue.gaps(), None);
        assert_eq!(ledger.dropped(), 3);
        recorders[0].record(event(8));
        assert_eq!(take(&mut queue, 9), [8]);
    }

    #[test]
    fn a_gap_without_room_for_its_mark_grows() {
        let ledger = Ledger::default();
        let (recorders, mut queue) = queue(2, 1, &ledger);
        (1..=3).for_each(|token| recorders[0].record(event(token)));
        assert_eq!(take(&mut queue, 1), [1]);
        // There is room for the mark and not for the event.
        recorders[0].record(event(4));
        recorders[0].record(event(5));
        assert_eq!(take(&mut queue, 9), [2, -1]);
        assert_eq!(queue.gaps(), Some(Entry::Dropped(2)));
        assert_eq!(ledger.dropped(), 3);
    }
}
