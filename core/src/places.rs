//! The places of one event loop's table of connections, as those see them who want one.
//!
//! Three take places: the acceptor, for a connection that it deals; another loop, for a connection
//! whose lock belongs here; and the loop itself, which hands a place that has become free straight
//! to another loop where a connection waits for it. Only the loop gives places back.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::shard_map::ShardNumber;

/// How many places there are and how many of them are taken. Shared between threads; touched when
/// connections come, move and go, and never by a heartbeat.
// A cache line of its own: neighbours in memory are other loops' business.
#[derive(Debug)]
#[repr(align(128))]
pub struct Places {
    max: u32,
    taken: AtomicU32,
    /// Of those taken, the ones with a claim on a lock of this loop.
    claimed: AtomicU32,
}

impl Places {
    /// All of `max` places are free.
    pub const fn new(max: u32) -> Places {
        Places { max, taken: AtomicU32::new(0), claimed: AtomicU32::new(0) }
    }

    /// Whether the acceptor may take a place. Connections that have not sent their ACQUIRE, or that
    /// wait for a place elsewhere, never get the last third of what is free of claims: so neither
    /// silent connections nor those that want to a full loop ever have every place.
    pub fn has_room(&self) -> bool {
        let taken = self.taken.load(Ordering::SeqCst);
        let claimed = self.claimed.load(Ordering::SeqCst).min(taken);
        let unclaimed_max = u64::from(self.max - claimed) * 2;
        taken < self.max && u64::from(taken - claimed) < unclaimed_max.div_ceil(3)
    }

    /// The acceptor takes a place, after it has seen that there is [room](Places::has_room). The
    /// place is still there: there is one acceptor, and nobody else takes the last one.
    pub fn take_for_new(&self) {
        self.taken.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes a place for a connection that is to move here, if there is one. The last one is left
    /// to the acceptor, which may have seen it already.
    pub fn take_for_move(&self) -> bool {
        let one_more = |taken: u32| (taken + 1 < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// The loop has `freed` connections less, and `claimed` of those that it has are claims on its
    /// own locks. Returns whether that is news, and there may be room where there was none.
    pub fn publish(&self, freed: u32, claimed: u32) -> bool {
        if freed == 0 && claimed == self.claimed.load(Ordering::SeqCst) {
            return false;
        }
        self.claimed.store(claimed, Ordering::SeqCst);
        self.taken.fetch_sub(freed, Ordering::SeqCst);
        true
    }

    /// How many there are.
    pub const fn max(&self) -> u32 {
        self.max
    }

    /// How many there still are for connections that move.
    pub fn left_for_moves(&self) -> u32 {
        self.max.saturating_sub(self.taken() + 1)
    }

    /// How many are taken: by connections that are here or on their way here, or kept for others.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::SeqCst)
    }
}

/// The other loops that have connections waiting for places here, in the order in which they get
/// them: one place each, round and round.
#[derive(Debug)]
pub struct PlaceQueue {
    /// How many wait at each shard, as far as is known: those that have ended are still counted.
    waiting: Vec<u32>,
    waiting_sum: u64,
    next: ShardNumber,
}

impl PlaceQueue {
    /// Nobody waits, at any of so many shards.
    pub fn new(shards: u32) -> PlaceQueue {
        PlaceQueue { waiting: alloc::vec![0; shards as usize], waiting_sum: 0, next: 0 }
    }

    /// So many wait at that shard now.
    pub fn set_waiting(&mut self, shard: ShardNumber, count: u32) {
        let known = core::mem::replace(&mut self.waiting[shard as usize], count);
        self.waiting_sum = self.waiting_sum - u64::from(known) + u64::from(count);
    }

    /// Whether nobody waits, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.waiting_sum == 0
    }

    /// The shard to which the next free place goes.
    pub fn pop(&mut self) -> Option<ShardNumber> {
        if self.is_empty() {
            return None;
        }
        loop {
            let shard = self.next;
            self.next = (shard + 1) % u32::try_from(self.waiting.len()).expect("counted in u32");
            let waiting = &mut self.waiting[shard as usize];
            if *waiting > 0 {
                *waiting -= 1;
                self.waiting_sum -= 1;
                return Some(shard);
            }
        }
    }
}
