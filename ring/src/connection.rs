//! The record that a connection costs, and the table of them.

use std::ops::{BitOr, BitOrAssign};

/// A connection's slot in the ring's file table, with the generation that tells apart its
/// successive users. The caller chooses both; a slot may be attached again only after
/// [`Event::Closed`](crate::Event::Closed) for it, and then with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Below `Config::slots`.
    pub index: u32,
    /// Any number that the slot's former users didn't have.
    pub generation: u32,
}

/// How a connection is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Not at all.
    #[default]
    Off,
    /// Until bytes arrive once; then `Off`.
    Once,
    /// On and on.
    Stream,
}

/// A set of facts about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    /// The slot is taken.
    pub(crate) const ATTACHED: Flags = Flags(1 << 0);
    /// A receive is with the kernel.
    pub(crate) const RECEIVING: Flags = Flags(1 << 1);
    /// That receive is a multishot one.
    pub(crate) const STREAMING: Flags = Flags(1 << 2);
    /// That receive's cancellation is with the kernel.
    pub(crate) const CANCELLING: Flags = Flags(1 << 3);
    /// A probe is with the kernel.
    pub(crate) const PROBING: Flags = Flags(1 << 4);
    /// A probe is to be made once there are buffers.
    pub(crate) const PROBE_OWED: Flags = Flags(1 << 5);
    /// Found no buffer, and is in the list of those that wait for one.
    pub(crate) const STARVED: Flags = Flags(1 << 6);
    /// The write side is shut, or will be when the last send is done.
    pub(crate) const WRITE_SHUT: Flags = Flags(1 << 7);
    /// The shutdown is with the kernel.
    pub(crate) const SHUTTING: Flags = Flags(1 << 8);
    /// The caller wants nothing of it any more.
    pub(crate) const CLOSING: Flags = Flags(1 << 9);
    /// The close is with the kernel.
    pub(crate) const CLOSE_SENT: Flags = Flags(1 << 10);
    /// The caller wants it read once.
    const WANT_ONCE: Flags = Flags(1 << 11);
    /// The caller wants it read on and on. Neither of the two: not at all.
    const WANT_STREAM: Flags = Flags(1 << 12);
    /// The caller wants its socket back, once nothing is under way.
    pub(crate) const LEAVING: Flags = Flags(1 << 13);
    /// The descriptor that the caller gets is being made by the kernel.
    pub(crate) const INSTALLING: Flags = Flags(1 << 14);

    #[inline]
    pub(crate) fn any(self, others: Flags) -> bool {
        self.0 & others.0 != 0
    }

    #[inline]
    pub(crate) fn remove(&mut self, others: Flags) {
        self.0 &= !others.0;
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// What is kept of a connection: small, since most of a million are idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u32,
    /// The buffer of the send in flight, or `NO_SEND`.
    pub(crate) send_buffer: u32,
    /// The turn in which that send was asked for.
    pub(crate) send_turn: u32,
    /// How many bytes it has.
    pub(crate) send_len: u16,
    pub(crate) flags: Flags,
}

const _: () = assert!(size_of::<Connection>() == 16);
const _: () = assert!(crate::SEND_LEN <= u16::MAX as usize);

impl Connection {
    pub(crate) const NO_SEND: u32 = u32::MAX;

    /// A slot that nobody has.
    const FREE: Connection = Connection {
        generation: 0,
        send_buffer: Connection::NO_SEND,
        send_turn: 0,
        send_len: 0,
        flags: Flags(0),
    };

    #[inline]
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.any(flags)
    }

    #[inline]
    pub(crate) fn wanted(&self) -> Reading {
        if self.has(Flags::WANT_STREAM) {
            Reading::Stream
        } else if self.has(Flags::WANT_ONCE) {
            Reading::Once
        } else {
            Reading::Off
        }
    }

    #[inline]
    pub(crate) fn want(&mut self, reading: Reading) {
        self.flags.remove(Flags::WANT_ONCE | Flags::WANT_STREAM);
        match reading {
            Reading::Off => {}
            Reading::Once => self.flags |= Flags::WANT_ONCE,
            Reading::Stream => self.flags |= Flags::WANT_STREAM,
        }
    }

    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        self.send_buffer != Connection::NO_SEND
    }

    /// Whether the kernel still has an operation that will complete, other than the close.
    pub(crate) fn in_flight(&self) -> bool {
        let reads = Flags::RECEIVING | Flags::PROBING;
        self.is_sending() || self.has(reads | Flags::SHUTTING | Flags::INSTALLING)
    }
}

/// All slots, in memory that is touched only as far as slots were used.
pub(crate) struct Connections {
    records: Vec<Connection>,
    slots: u32,
    attached: usize,
}

impl Connections {
    pub(crate) fn new(slots: u32) -> Connections {
        Connections { records: Vec::with_capacity(slots as usize), slots, attached: 0 }
    }

    pub(crate) fn attached(&self) -> usize {
        self.attached
    }

    /// Asserts that a slot is there and free.
    pub(crate) fn assert_free(&self, id: ConnectionId) {
        assert!(id.index < self.slots, "{id:?} in a ring of {} slots", self.slots);
        if let Some(record) = self.records.get(id.index as usize) {
            assert!(!record.has(Flags::ATTACHED), "{id:?} on the slot of {record:?}");
        }
    }

    /// Takes a free slot.
    pub(crate) fn insert(&mut self, id: ConnectionId) {
        self.assert_free(id);
        let index = id.index as usize;
        if index >= self.records.len() {
            self.records.resize(index + 1, Connection::FREE);
        }
        self.records[index] =
            Connection { generation: id.generation, flags: Flags::ATTACHED, ..Connection::FREE };
        self.attached += 1;
    }

    /// Frees a slot after its last completion.
    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let connection = self.expect(id);
        assert!(!connection.in_flight(), "{id:?} is freed, but is {connection:?}");
        *connection = Connection::FREE;
        self.attached -= 1;
    }

    /// The connection, unless it is gone and perhaps succeeded by another.
    pub(crate) fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let record = self.records.get_mut(id.index as usize)?;
        (record.generation == id.generation && record.has(Flags::ATTACHED)).then_some(record)
    }

    /// The connection of a completion. It is there, as a slot is freed after its last completion.
    #[inline]
    pub(crate) fn expect(&mut self, id: ConnectionId) -> &mut Connection {
        let record = &mut self.records[id.index as usize];
        assert!(
            record.generation == id.generation && record.has(Flags::ATTACHED),
            "{id:?} on the slot of {record:?}"
        );
        record
    }

    /// The connection that the caller asks something of, which it hasn't closed.
    #[inline]
    pub(crate) fn open(&mut self, id: ConnectionId) -> &mut Connection {
        let record = self.expect(id);
        assert!(!record.has(Flags::CLOSING), "{id:?} is used after its close");
        record
    }

    pub(crate) fn is_sending(&self, id: ConnectionId) -> bool {
        let record = &self.records[id.index as usize];
        assert!(
            record.generation == id.generation && record.has(Flags::ATTACHED),
            "{id:?} on the slot of {record:?}"
        );
        record.is_sending()
    }
}
