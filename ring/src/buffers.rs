//! Receive buffers, lent to the kernel in a ring that both sides see.
//!
//! The kernel takes a buffer only when bytes are there, so that an idle connection owns none.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use crate::mapping::Mapping;

/// The one group of buffers that all receives take from.
pub(crate) const GROUP: u16 = 0;

pub(crate) struct ReceiveBuffers {
    /// What the kernel reads to find a buffer: `count` entries.
    entries: Mapping,
    /// The bytes themselves: `count` times `len`.
    bytes: Mapping,
    count: u16,
    len: u32,
    /// How many buffers were ever given to the kernel, modulo 2^16.
    tail: u16,
}

impl ReceiveBuffers {
    /// `count` is a power of two. The buffers are the kernel's once [`Self::entries`] are
    /// registered with it.
    pub(crate) fn new(count: u16, len: u32) -> io::Result<ReceiveBuffers> {
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let bytes = Mapping::new(usize::from(count) * len as usize)?;
        let mut buffers = ReceiveBuffers { entries, bytes, count, len, tail: 0 };
        for buffer in 0..count {
            buffers.give_back(buffer);
        }
        Ok(buffers)
    }

    /// The address to register as a ring of [`Self::count`] entries.
    pub(crate) fn entries(&self) -> *const BufRingEntry {
        self.entries.at(0).cast()
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// The first `len` bytes of a buffer that the kernel has filled.
    pub(crate) fn filled(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.count && len <= self.len as usize, "{len} bytes in {buffer}");
        let start = self.bytes.at(usize::from(buffer) * self.len as usize);
        // SAFETY: the range is inside the mapping, all bytes are initialised (zero or written), and
        // the kernel doesn't write them before `give_back`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Gives a buffer to the kernel.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: u16) {
        assert!(buffer < self.count, "buffer {buffer} of {}", self.count);
        let position = usize::from(self.tail & (self.count - 1));
        let entry = self.entries.at(position * size_of::<BufRingEntry>()).cast::<BufRingEntry>();
        let start = self.bytes.at(usize::from(buffer) * self.len as usize);
        // SAFETY: the entry is inside the mapping, aligned, and not the kernel's: it never has more
        // than `count` buffers. Field by field, as the first entry also holds the tail.
        unsafe {
            (*entry).set_addr(start.addr() as u64);
            (*entry).set_len(self.len);
            (*entry).set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is two aligned bytes of the first entry, which lives as long as `self`;
        // the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries()).cast_mut()) };
        // Release: the kernel must see the entry before it sees the tail.
        tail.store(self.tail, Ordering::Release);
    }
}
