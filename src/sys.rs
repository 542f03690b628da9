//! Descriptors that the process was started with: the one thing here that no safe interface gives,
//! since nothing but a promise of whoever started it says that a number is ours to own.
#![allow(unsafe_code, reason = "only the starter's word says who owns an inherited descriptor")]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Takes the descriptor with this number, which came through the `exec` that began this process,
/// and makes it close-on-exec. `None` if nothing that came so has this number.
///
/// # Errors
/// If the flag can't be set.
pub(crate) fn take_inherited(number: RawFd) -> io::Result<Option<OwnedFd>> {
    if number < 0 {
        return Ok(None);
    }
    // SAFETY: the number is not -1, and is used for one call only, which fails with EBADF if
    // nothing is open under it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    match fcntl_getfd(borrowed) {
        // What came through an exec can't have the flag, and what this process has opened does:
        // the standard library and every crate here set it. So this one is somebody's already.
        Ok(flags) if flags.contains(FdFlags::CLOEXEC) => return Ok(None),
        Ok(_) => {}
        Err(_) => return Ok(None),
    }
    // SAFETY: it is open and nobody in this process owns it, as just seen. A second call finds the
    // flag that is set below.
    let taken = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&taken, FdFlags::CLOEXEC)?;
    Ok(Some(taken))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_this_process_has_opened_is_not_taken() {
        let own = std::fs::File::open("/proc/self/stat").expect("a file");
        assert!(take_inherited(own.as_raw_fd()).expect("no error").is_none());
    }

    #[test]
    fn a_number_without_a_descriptor_is_nothing() {
        for number in [-1, RawFd::MAX] {
            assert!(take_inherited(number).expect("no error").is_none(), "{number}");
        }
    }
}
