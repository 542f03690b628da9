//! Send buffers, held from the call of `send` to its completion.

use std::io;

use crate::mapping::Mapping;

/// Bytes in a send buffer: the longest send.
pub const SEND_LEN: usize = 512;

/// How many buffers stay resident when none is in use: 2 MiB. More are only needed when many peers
/// are slow at once, or when all are told that the server ends.
const RETAINED: u32 = 4096;

/// At most one buffer a connection, at stable addresses. The buffer freed last is used first, as it
/// is still in the cache.
pub(crate) struct SendPool {
    bytes: Mapping,
    free: Vec<u32>,
    /// Buffers from here on were never used, or were given back to the system.
    untouched: u32,
    in_use: u32,
}

impl SendPool {
    /// A pool for `most` sends at once. Costs no resident memory until used.
    pub(crate) fn new(most: u32) -> io::Result<SendPool> {
        let bytes = Mapping::new(most as usize * SEND_LEN)?;
        Ok(SendPool { bytes, free: Vec::new(), untouched: 0, in_use: 0 })
    }

    /// Takes a buffer. There is one, as each connection has at most one send in flight.
    #[inline]
    pub(crate) fn take(&mut self) -> u32 {
        self.in_use += 1;
        self.free.pop().unwrap_or_else(|| {
            self.untouched += 1;
            self.untouched - 1
        })
    }

    /// Where a taken buffer is: `SEND_LEN` initialised bytes that nobody else touches until the
    /// buffer is in flight.
    #[inline]
    pub(crate) fn start(&self, buffer: u32) -> *mut u8 {
        self.bytes.at(buffer as usize * SEND_LEN)
    }

    /// Takes a buffer back, after its completion.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: u32) {
        self.in_use -= 1;
        self.free.push(buffer);
        if self.in_use == 0 && self.untouched > RETAINED {
            self.shrink();
        }
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    #[cold]
    fn shrink(&mut self) {
        self.bytes.release_from(RETAINED as usize * SEND_LEN);
        self.untouched = RETAINED;
        self.free.clear();
        self.free.extend((0..RETAINED).rev());
        self.free.shrink_to(RETAINED as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_freed_last_is_used_first() {
        let mut pool = SendPool::new(8).expect("memory");
        let (first, second) = (pool.take(), pool.take());
        pool.give_back(first);
        pool.give_back(second);
        assert_eq!(pool.take(), second);
        assert_eq!(pool.take(), first);
        assert_eq!(pool.take(), 2, "a third one is new");
    }

    #[test]
    fn a_burst_is_given_back_to_the_system() {
        let burst = RETAINED + 1000;
        let mut pool = SendPool::new(burst).expect("memory");
        let taken: Vec<u32> = (0..burst).map(|_| pool.take()).collect();
        for buffer in taken {
            pool.give_back(buffer);
        }
        assert_eq!(pool.untouched, RETAINED);
        let mut again: Vec<u32> = (0..burst).map(|_| pool.take()).collect();
        assert_eq!(again[0], 0, "the lowest, resident ones come first");
        again.sort_unstable();
        assert!(again.into_iter().eq(0..burst), "each buffer is there once");
    }
}
