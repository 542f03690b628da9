//! Whose deadline comes next: a 4-ary heap that is intrusive, which is to say that every session
//! knows its position in it and so can be moved or taken out without a search.
//!
//! The deadlines in the heap may be older than the truth. A heartbeat only notes when it came; that
//! the lease now ends later is found out when the session gets to the top, and then it sinks. Four
//! children to a node, and twelve bytes a session, because then the four that are compared lie in
//! one cache line or two: at a million sessions, waiting for memory is all that sinking costs.

use alloc::vec::Vec;

use crate::NONE;
use crate::time::Instant;

const ARITY: usize = 4;

/// Where the heap notes the position of the session at an index.
pub trait HeapPositions {
    /// The position of the session at `index`, to be read and written by the heap only.
    fn heap_position(&mut self, index: u32) -> &mut u32;
}

/// The deadlines of all sessions, the earliest at the top.
#[derive(Debug, Default)]
pub struct LeaseHeap {
    entries: Vec<Entry>,
}

/// A session and its deadline, without the four bytes that would align it.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Entry {
    deadline: Instant,
    index: u32,
}

const _: () = assert!(size_of::<Entry>() == 12);

impl Entry {
    /// By value: what is packed can't be compared in place.
    fn deadline(self) -> Instant {
        self.deadline
    }
}

impl LeaseHeap {
    /// An empty heap with room for `capacity` sessions.
    pub fn with_capacity(capacity: usize) -> LeaseHeap {
        LeaseHeap { entries: Vec::with_capacity(capacity) }
    }

    /// Puts in the session at `index`, which must not be in the heap.
    pub fn insert(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        debug_assert_eq!(*sessions.heap_position(index), NONE);
        self.entries.push(Entry { deadline, index });
        self.rise(sessions, self.len() - 1);
    }

    /// Takes out the session at `index`; nothing happens if it is not in the heap.
    pub fn remove(&mut self, sessions: &mut impl HeapPositions, index: u32) {
        let position = core::mem::replace(sessions.heap_position(index), NONE);
        if position == NONE {
            return;
        }
        let position = position as usize;
        assert_eq!({ self.entries[position].index }, index, "the heap and the session agree");
        self.entries.swap_remove(position);
        if position < self.len() {
            self.settle(sessions, position);
        }
    }

    /// Gives the session at `index`, which must be in the heap, another deadline.
    pub fn change(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        let position = *sessions.heap_position(index) as usize;
        assert_eq!({ self.entries[position].index }, index, "the heap and the session agree");
        self.entries[position].deadline = deadline;
        self.settle(sessions, position);
    }

    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(Instant, u32)> {
        let first = self.entries.first()?;
        Some((first.deadline(), first.index))
    }

    /// How many sessions have a deadline.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no session has a deadline.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn settle(&mut self, sessions: &mut impl HeapPositions, position: usize) {
        let deadline = self.entries[position].deadline();
        if position > 0 && deadline < self.entries[(position - 1) / ARITY].deadline() {
            self.rise(sessions, position);
        } else {
            self.sink(sessions, position);
        }
    }

    fn rise(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let rising = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            let above = self.entries[parent];
            if above.deadline() <= rising.deadline() {
                break;
            }
            self.place(sessions, position, above);
            position = parent;
        }
        self.place(sessions, position, rising);
    }

    fn sink(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let sinking = self.entries[position];
        loop {
            let first = position * ARITY + 1;
            let children = first..(first + ARITY).min(self.len());
            let Some(child) = children.min_by_key(|&child| self.entries[child].deadline()) else {
                break;
            };
            let below = self.entries[child];
            if sinking.deadline() <= below.deadline() {
                break;
            }
            self.place(sessions, position, below);
            position = child;
        }
        self.place(sessions, position, sinking);
    }

    fn place(&mut self, sessions: &mut impl HeapPositions, position: usize, entry: Entry) {
        self.entries[position] = entry;
        #[expect(clippy::cast_possible_truncation, reason = "no more positions than indexes")]
        {
            *sessions.heap_position(entry.index) = position as u32;
        }
    }
}
