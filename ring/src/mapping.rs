//! Memory that the kernel reads and writes behind the compiler's back.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// An anonymous mapping: page-aligned, zeroed, at a fixed address, and without resident memory
/// until it is touched. It deals in raw pointers only, since a reference to bytes that the kernel
/// may be writing would be a lie.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, `len` > 0.
    pub(crate) fn new(len: usize) -> io::Result<Mapping> {
        // SAFETY: a new private mapping where the kernel chooses; nothing else is there.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast()).expect("a mapping doesn't start at zero");
        Ok(Mapping { start, len })
    }

    /// The address `offset` bytes from the start.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset {offset} of a mapping of {} bytes", self.len);
        // SAFETY: the sum stays inside the mapping, as asserted.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Gives the resident memory from `offset` on back to the system; it will read as zero. The
    /// caller no longer needs its content. `offset` is a multiple of the page size.
    pub(crate) fn release_from(&self, offset: usize) {
        let len = self.len - offset;
        // SAFETY: the range is inside our own mapping, and dropping its content makes it zeros,
        // which are valid bytes. A failure only keeps the memory resident.
        let _ = unsafe { madvise(self.at(offset).cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it. The ring drops its queues first:
        // reads and writes of user memory run inside this thread's calls of io_uring_enter, and
        // there is no such call on a closed ring.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
