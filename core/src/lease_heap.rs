//! Whose deadline comes next: a 5-ary heap that is intrusive, which is to say that every session
//! knows its position in it and so can be moved or taken out without a search.
//!
//! The deadlines in the heap may be older than the truth. A heartbeat only notes when it came; that
//! the lease now ends later is found out when the session gets to the top, and then it sinks. Five
//! children to a node, since so many entries of twelve bytes fit into a cache line: at a million
//! sessions, waiting for memory is all that sinking costs.

use alloc::vec::Vec;

use crate::NONE;
use crate::time::Instant;

/// How many children a node has.
const ARITY: usize = 5;

/// Where the heap notes the position of the session at an index.
pub trait HeapPositions {
    /// The position of the session at `index`, to be read and written by the heap only.
    fn heap_position(&mut self, index: u32) -> &mut u32;
}

/// The deadlines of all sessions, the earliest at the top.
#[derive(Debug, Default)]
pub struct LeaseHeap {
    /// The top is the last one of the first line; the children of the node at position `n` are
    /// line `n + 1`.
    lines: Vec<Siblings>,
    len: usize,
}

/// The children of a node, in a cache line of their own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Siblings([Entry; ARITY]);

const _: () = assert!(size_of::<Siblings>() == 64);

/// A session and its deadline, without the four bytes that would align it.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Entry {
    deadline: Instant,
    index: u32,
}

impl Entry {
    /// Nobody, and later than everybody: a search for the earliest child need not know how many
    /// there are.
    const NOBODY: Entry = Entry { deadline: Instant::NEVER, index: NONE };

    /// By value: what is packed can't be compared in place.
    fn deadline(self) -> Instant {
        self.deadline
    }
}

/// The line of a position, and the place in it.
const fn line_and_place(position: usize) -> (usize, usize) {
    let place = position + ARITY - 1;
    (place / ARITY, place % ARITY)
}

impl LeaseHeap {
    /// An empty heap with room for `capacity` sessions.
    pub fn with_capacity(capacity: usize) -> LeaseHeap {
        LeaseHeap { lines: Vec::with_capacity(capacity.div_ceil(ARITY) + 1), len: 0 }
    }

    /// Puts in the session at `index`, which must not be in the heap.
    pub fn insert(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        debug_assert_eq!(*sessions.heap_position(index), NONE);
        let last = self.len;
        self.len += 1;
        if line_and_place(last).0 == self.lines.len() {
            self.lines.push(Siblings([Entry::NOBODY; ARITY]));
        }
        *self.entry(last) = Entry { deadline, index };
        self.rise(sessions, last);
    }

    /// Takes out the session at `index`; nothing happens if it is not in the heap.
    pub fn remove(&mut self, sessions: &mut impl HeapPositions, index: u32) {
        let position = core::mem::replace(sessions.heap_position(index), NONE);
        if position == NONE {
            return;
        }
        let position = position as usize;
        assert_eq!({ self.entry(position).index }, index, "the heap and the session agree");
        let last = self.take_last();
        if position < self.len {
            *self.entry(position) = last;
            self.settle(sessions, position);
        }
    }

    /// Gives the session at `index`, which must be in the heap, another deadline.
    pub fn change(&mut self, sessions: &mut impl HeapPositions, index: u32, deadline: Instant) {
        let position = *sessions.heap_position(index) as usize;
        let entry = self.entry(position);
        assert_eq!({ entry.index }, index, "the heap and the session agree");
        entry.deadline = deadline;
        self.settle(sessions, position);
    }

    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(Instant, u32)> {
        let Siblings([.., first]) = self.lines.first()?;
        Some((first.deadline(), first.index))
    }

    /// How many sessions have a deadline.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no session has a deadline.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn entry(&mut self, position: usize) -> &mut Entry {
        let (line, place) = line_and_place(position);
        &mut self.lines[line].0[place]
    }

    fn take_last(&mut self) -> Entry {
        self.len -= 1;
        let last = core::mem::replace(self.entry(self.len), Entry::NOBODY);
        self.lines.truncate(if self.len == 0 { 0 } else { line_and_place(self.len - 1).0 + 1 });
        last
    }

    fn settle(&mut self, sessions: &mut impl HeapPositions, position: usize) {
        let deadline = self.entry(position).deadline();
        if position > 0 && deadline < self.entry((position - 1) / ARITY).deadline() {
            self.rise(sessions, position);
        } else {
            self.sink(sessions, position);
        }
    }

    fn rise(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let rising = *self.entry(position);
        while position > 0 {
            let parent = (position - 1) / ARITY;
            let above = *self.entry(parent);
            if above.deadline() <= rising.deadline() {
                break;
            }
            self.place(sessions, position, above);
            position = parent;
        }
        self.place(sessions, position, rising);
    }

    fn sink(&mut self, sessions: &mut impl HeapPositions, mut position: usize) {
        let sinking = *self.entry(position);
        while let Some(&Siblings(children)) = self.lines.get(position + 1) {
            let (mut first, mut below) = (0, children[0]);
            for (place, &child) in children.iter().enumerate().skip(1) {
                if child.deadline() < below.deadline() {
                    (first, below) = (place, child);
                }
            }
            if sinking.deadline() <= below.deadline() {
                break;
            }
            self.place(sessions, position, below);
            position = position * ARITY + 1 + first;
        }
        self.place(sessions, position, sinking);
    }

    fn place(&mut self, sessions: &mut impl HeapPositions, position: usize, entry: Entry) {
        *self.entry(position) = entry;
        #[expect(clippy::cast_possible_truncation, reason = "no more positions than indexes")]
        {
            *sessions.heap_position(entry.index) = position as u32;
        }
    }
}
