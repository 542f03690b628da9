//! The queue of one lock: first in, first out, and anybody may leave from the middle at any time in
//! constant time. The links are in the sessions themselves.

use crate::NONE;

/// What a queued session keeps of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    previous: Link,
    next: Link,
}

impl Links {
    /// The links of what stands in no queue.
    pub const UNLINKED: Links = Links { previous: Link::to(NONE), next: Link::to(NONE) };
}

/// An index in bytes, which need no alignment: so a session fits into a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link([u8; 4]);

impl Link {
    const fn to(index: u32) -> Link {
        Link(index.to_ne_bytes())
    }

    const fn index(self) -> u32 {
        u32::from_ne_bytes(self.0)
    }
}

/// Where the queue finds the links of the session at an index.
pub trait QueueLinks {
    /// The links of the session at `index`.
    fn links(&mut self, index: u32) -> &mut Links;
}

/// The ends and the length of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl WaiterQueue {
    /// An empty queue.
    pub const fn new() -> WaiterQueue {
        WaiterQueue { head: NONE, tail: NONE, len: 0 }
    }

    /// Puts the session at `index` at the end.
    pub fn push_back(&mut self, sessions: &mut impl QueueLinks, index: u32) {
        *sessions.links(index) = Links { previous: Link::to(self.tail), next: Link::to(NONE) };
        match self.tail {
            NONE => self.head = index,
            tail => sessions.links(tail).next = Link::to(index),
        }
        self.tail = index;
        self.len += 1;
    }

    /// Takes out who has waited longest.
    pub fn pop_front(&mut self, sessions: &mut impl QueueLinks) -> Option<u32> {
        let head = self.front()?;
        self.remove(sessions, head);
        Some(head)
    }

    /// Takes out the session at `index`, which must be in this queue.
    pub fn remove(&mut self, sessions: &mut impl QueueLinks, index: u32) {
        let Links { previous, next } = core::mem::replace(sessions.links(index), Links::UNLINKED);
        match previous.index() {
            NONE => {
                assert_eq!(self.head, index, "what has nobody before it is the head");
                self.head = next.index();
            }
            previous => sessions.links(previous).next = next,
        }
        match next.index() {
            NONE => {
                assert_eq!(self.tail, index, "what has nobody behind it is the tail");
                self.tail = previous.index();
            }
            next => sessions.links(next).previous = previous,
        }
        self.len -= 1;
    }

    /// Who has waited longest.
    pub const fn front(&self) -> Option<u32> {
        match self.head {
            NONE => None,
            head => Some(head),
        }
    }

    /// Who stands behind somebody with these links.
    pub const fn behind(links: Links) -> Option<u32> {
        match links.next.index() {
            NONE => None,
            next => Some(next),
        }
    }

    /// How many wait.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for WaiterQueue {
    fn default() -> WaiterQueue {
        WaiterQueue::new()
    }
}
