//! Send buffers, held from the call of `send` to its completion.

use std::io;

use crate::mapping::Mapping;

/// The longest send, in bytes.
pub const SEND_LEN: usize = 512;

/// Bytes in a buffer for a short send. Nearly all sends are a few frames of a few bytes, and a
/// thousand of them are in flight when a thousand peers speak at once.
const SHORT_LEN: usize = 64;

/// How many buffers of each kind stay resident when none is in use: 256 KiB. More are only needed
/// when many peers are slow at once, or when all are told that the server ends.
const SHORT_RETAINED: u32 = 4096;
const LONG_RETAINED: u32 = 512;

/// At most one buffer a connection, at stable addresses.
pub(crate) struct SendPool {
    /// Where a send is written before its length is known.
    draft: Box<[u8; SEND_LEN]>,
    short: Buffers,
    long: Buffers,
}

impl SendPool {
    /// A pool for `most` sends at once. Costs no resident memory until used.
    pub(crate) fn new(most: u32) -> io::Result<SendPool> {
        Ok(SendPool {
            draft: Box::new([0; SEND_LEN]),
            short: Buffers::new(most, SHORT_LEN, SHORT_RETAINED)?,
            long: Buffers::new(most, SEND_LEN, LONG_RETAINED)?,
        })
    }

    /// Where to write the next send. What was there before is of no meaning.
    #[inline]
    pub(crate) fn draft(&mut self) -> &mut [u8] {
        &mut self.draft[..]
    }

    /// Copies at least the first `len` bytes of the draft into a buffer that nobody else touches
    /// until it is given back. Returns the buffer and where it starts.
    #[inline]
    pub(crate) fn keep(&mut self, len: usize) -> (u32, *const u8) {
        let SendPool { draft, short, long } = self;
        // Whole buffers: a length that the compiler knows is copied without a call.
        if len <= SHORT_LEN {
            short.take::<SHORT_LEN>(draft.first_chunk().expect("shorter than the draft"))
        } else {
            long.take::<SEND_LEN>(draft)
        }
    }

    /// Takes the buffer of a send of `len` bytes back, after its completion.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: u32, len: usize) {
        if len <= SHORT_LEN { &mut self.short } else { &mut self.long }.give_back(buffer);
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.short.in_use + self.long.in_use
    }
}

/// Buffers of one length. The one freed last is used first, as it is still in the cache.
struct Buffers {
    bytes: Mapping,
    len: usize,
    /// How many of them stay resident.
    retained: u32,
    free: Vec<u32>,
    /// Buffers from here on were never used, or were given back to the system.
    untouched: u32,
    in_use: u32,
}

impl Buffers {
    fn new(most: u32, len: usize, retained: u32) -> io::Result<Buffers> {
        let bytes = Mapping::new(most as usize * len)?;
        Ok(Buffers { bytes, len, retained, free: Vec::new(), untouched: 0, in_use: 0 })
    }

    /// There is one, as each connection has at most one send in flight.
    #[inline]
    fn take<const LEN: usize>(&mut self, content: &[u8; LEN]) -> (u32, *const u8) {
        assert_eq!(LEN, self.len, "a buffer is filled as a whole");
        self.in_use += 1;
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.untouched += 1;
            self.untouched - 1
        });
        let start = self.bytes.at(buffer as usize * self.len);
        // SAFETY: the buffer is inside the mapping, its bytes are ours alone as it was free, and
        // the content, which is as long, is elsewhere.
        unsafe { start.copy_from_nonoverlapping(content.as_ptr(), LEN) };
        (buffer, start)
    }

    #[inline]
    fn give_back(&mut self, buffer: u32) {
        self.in_use -= 1;
        self.free.push(buffer);
        if self.in_use == 0 && self.untouched > self.retained {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.bytes.release_from(self.retained as usize * self.len);
        self.untouched = self.retained;
        self.free.clear();
        self.free.extend((0..self.retained).rev());
        self.free.shrink_to(self.retained as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_freed_last_is_used_first() {
        let mut pool = SendPool::new(8).expect("memory");
        let (first, second) = (pool.keep(9).0, pool.keep(9).0);
        pool.give_back(first, 9);
        pool.give_back(second, 9);
        assert_eq!(pool.keep(9).0, second);
        assert_eq!(pool.keep(9).0, first);
        assert_eq!(pool.keep(9).0, 2, "a third one is new");
    }

    #[test]
    fn short_and_long_sends_are_kept_whole_beside_each_other() {
        let mut pool = SendPool::new(8).expect("memory");
        let lens = [1, SHORT_LEN, SHORT_LEN + 1, SEND_LEN];
        let kept = lens.map(|len| {
            let mark = u8::try_from(len % 251).expect("below 251");
            pool.draft()[..len].fill(mark);
            (len, mark, pool.keep(len))
        });
        assert_eq!(pool.in_use(), 4);
        for (len, mark, (buffer, start)) in kept {
            // SAFETY: `len` bytes were just copied there, and the buffer is not given back yet.
            let bytes = unsafe { std::slice::from_raw_parts(start, len) };
            assert!(bytes.iter().all(|&byte| byte == mark), "{len} bytes of {mark}");
            pool.give_back(buffer, len);
        }
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_burst_is_given_back_to_the_system() {
        for (len, retained) in [(9, SHORT_RETAINED), (SEND_LEN, LONG_RETAINED)] {
            let burst = retained + 1000;
            let mut pool = SendPool::new(burst).expect("memory");
            let taken: Vec<u32> = (0..burst).map(|_| pool.keep(len).0).collect();
            for buffer in taken {
                pool.give_back(buffer, len);
            }
            let buffers = if len == SEND_LEN { &pool.long } else { &pool.short };
            assert_eq!(buffers.untouched, retained);
            let mut again: Vec<u32> = (0..burst).map(|_| pool.keep(len).0).collect();
            assert_eq!(again[0], 0, "the lowest, resident ones come first");
            again.sort_unstable();
            assert!(again.into_iter().eq(0..burst), "each buffer is there once");
        }
    }
}
