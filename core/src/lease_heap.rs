//! Whose deadline comes next: a 4-ary heap that is intrusive, which is to say that every session
//! knows its position in it and so can be moved or taken out without a search.
//!
//! The deadlines in the heap may be older than the truth. A heartbeat only notes when it came; that
//! the lease now ends later is found out when the session gets to the top, and then it sinks. Four
//! children to a node, and deadlines apart from indexes, because then the four that are compared
//! lie in half a cache line.

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
    deadlines: Vec<Instant>,
    indexes: Vec<u32>,
}

impl LeaseHeap {
    /// An empty heap with room for `capacity` sessions.
    pub fn with_capacity(capacity: usize) -> LeaseHeap {
        LeaseHeap { deadlines: Vec::with_capacity(capacity), indexes: Vec::with_capacity(capacity) }
    }

    /// Puts in the session at `index`, which must not be in the heap.
    pub fn insert(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        debug_assert_eq!(*sessions.heap_position(index), NONE);
        self.deadlines.push(deadline);
        self.indexes.push(index);
        self.rise(sessions, self.len() - 1);
    }

    /// Takes out the session at `index`; nothing happens if it is not in the heap.
    pub fn remove(&mut self, sessions: &mut impl HeapPositions, index: u32) {
        let position = core::mem::replace(sessions.heap_position(index), NONE);
        if position == NONE {
            return;
        }
        let position = position as usize;
        assert_eq!(self.indexes[position], index, "the heap and the session agree");
        self.deadlines.swap_remove(position);
        self.indexes.swap_remove(position);
        if position < self.len() {
            self.settle(sessions, position);
        }
    }

    /// Gives the session at `index`, which must be in the heap, another deadline.
    pub fn change(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        let position = *sessions.heap_position(index) as usize;
        assert_eq!(self.indexes[position], index, "the heap and the session agree");
        self.deadlines[position] = deadline;
        self.settle(sessions, position);
    }

    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(Instant, u32)> {
        Some((*self.deadlines.first()?, *self.indexes.first()?))
    }

    /// How many sessions have a deadline.
    pub fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Whether no session has a deadline.
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    fn settle(&mut self, sessions: &mut impl HeapPositions, position: usize) {
        if position > 0 && self.deadlines[position] < self.deadlines[(position - 1) / ARITY] {
            self.rise(sessions, position);
        } else {
            self.sink(sessions, position);
        }
    }

    fn rise(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let (deadline, index) = (self.deadlines[position], self.indexes[position]);
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.deadlines[parent] <= deadline {
                break;
            }
            self.place(sessions, position, self.deadlines[parent], self.indexes[parent]);
            position = parent;
        }
        self.place(sessions, position, deadline, index);
    }

    fn sink(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let (deadline, index) = (self.deadlines[position], self.indexes[position]);
        loop {
            let first = position * ARITY + 1;
            let children = first..(first + ARITY).min(self.len());
            let Some(child) = children.min_by_key(|&child| self.deadlines[child]) else {
                break;
            };
            if deadline <= self.deadlines[child] {
                break;
            }
            self.place(sessions, position, self.deadlines[child], self.indexes[child]);
            position = child;
        }
        self.place(sessions, position, deadline, index);
    }

    fn place(
        &mut self,
        sessions: &mut impl HeapPositions,
        position: usize,
        deadline: Instant,
        index: u32,
    ) {
        self.deadlines[position] = deadline;
        self.indexes[position] = index;
        #[expect(clippy::cast_possible_truncation, reason = "no more positions than indexes")]
        {
            *sessions.heap_position(index) = position as u32;
        }
    }
}
