//! When bytes arrived, by the kernel's stamp: a caller that reads late still learns how long they
//! were on their way.
//!
//! With stamps the kernel puts a head before the bytes in each receive buffer: four numbers of its
//! own, then the control message that has the stamp.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{SCM_TIMESTAMPNS, SO_TIMESTAMPNS, SOL_SOCKET, cmsghdr, msghdr, timespec};

/// The kernel's `struct io_uring_recvmsg_out`: four numbers, of which the second is the length of
/// the control messages that there are.
const NUMBERS_LEN: usize = 4 * size_of::<u32>();
/// The control message: its own length, level and kind, and then the stamp.
const STAMP_LEN: usize = size_of::<cmsghdr>() + size_of::<timespec>();
const HEAD_LEN: usize = NUMBERS_LEN + STAMP_LEN;

const _: () = assert!(size_of::<timespec>() == 16, "seconds and nanoseconds are of 64 bits");

/// Reads stamps off.
pub(crate) struct Arrivals {
    /// Tells the kernel how much room to leave for what.
    layout: Box<msghdr>,
    /// When the bytes that were read last arrived, since 1970.
    last: Option<Duration>,
}

impl Arrivals {
    pub(crate) fn new() -> Arrivals {
        // SAFETY: all its fields may be zero: no name, no memory of ours, no control message.
        let mut layout: Box<msghdr> = Box::new(unsafe { std::mem::zeroed() });
        layout.msg_controllen = STAMP_LEN as _;
        Arrivals { layout, last: None }
    }

    /// What a receive with stamps refers to. It stays where it is as long as this lives.
    pub(crate) fn layout(&self) -> *const msghdr {
        &raw const *self.layout
    }

    /// Asks for the stamps of a socket's bytes.
    pub(crate) fn ask(socket: BorrowedFd<'_>) -> io::Result<()> {
        let on: libc::c_int = 1;
        let len = libc::socklen_t::try_from(size_of_val(&on)).expect("four");
        let socket = socket.as_raw_fd();
        // SAFETY: the option's value is a number of that length, and lives until the call is over.
        let done = unsafe {
            libc::setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, (&raw const on).cast(), len)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The bytes in a buffer that the kernel has filled; none at the end of the stream.
    pub(crate) fn bytes(filled: &[u8]) -> &[u8] {
        &filled[HEAD_LEN..]
    }

    /// Notes when the bytes in such a buffer arrived.
    pub(crate) fn note(&mut self, filled: &[u8]) {
        self.last = stamp(&filled[..HEAD_LEN]);
    }

    pub(crate) fn last(&self) -> Option<Duration> {
        self.last
    }
}

/// The stamp in a head, if the kernel had one.
fn stamp(head: &[u8]) -> Option<Duration> {
    let word = |at: usize| Some(u32::from_ne_bytes(*head[at..].first_chunk()?));
    let long = |at: usize| Some(i64::from_ne_bytes(*head[at..].first_chunk()?));
    let control_len = word(size_of::<u32>())?;
    let level_at = NUMBERS_LEN + std::mem::offset_of!(cmsghdr, cmsg_level);
    let kind_at = NUMBERS_LEN + std::mem::offset_of!(cmsghdr, cmsg_type);
    let is_stamp = control_len as usize == STAMP_LEN
        && word(level_at)? == SOL_SOCKET.cast_unsigned()
        && word(kind_at)? == SCM_TIMESTAMPNS.cast_unsigned();
    let secs_at = NUMBERS_LEN + size_of::<cmsghdr>();
    let (secs, nanos) = (long(secs_at)?, long(secs_at + 8)?);
    is_stamp.then_some(Duration::new(secs.try_into().ok()?, nanos.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_without_a_stamp_has_none() {
        let mut head = [0; HEAD_LEN];
        assert_eq!(stamp(&head), None);
        // What an earlier user of the buffer has left doesn't count.
        head[NUMBERS_LEN + 8..][..4].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
        head[NUMBERS_LEN + 12..][..4].copy_from_slice(&SCM_TIMESTAMPNS.to_ne_bytes());
        head[NUMBERS_LEN + 16..][..8].copy_from_slice(&7i64.to_ne_bytes());
        assert_eq!(stamp(&head), None);
        head[4..8].copy_from_slice(&32u32.to_ne_bytes());
        assert_eq!(stamp(&head), Some(Duration::from_secs(7)));
    }
}
