//! What the ring hands out.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno as Code;

use crate::ConnectionId;

/// Something that happened, from [`Ring::next_event`](crate::Ring::next_event).
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Bytes arrived. They are lent until the next call on the ring.
    Received {
        /// The connection that they came from.
        id: ConnectionId,
        /// At least one byte and at most `Config::buffer_len`, in stream order.
        bytes: &'a [u8],
    },
    /// The peer has shut its write side; sending is still possible. Reading is off from here. It
    /// can come twice when a probe and an armed receive both find the end.
    EndOfStream {
        /// The connection whose stream ended.
        id: ConnectionId,
    },
    /// Reading failed, such as by a reset. Reading is off from here.
    ReceiveFailed {
        /// The connection that can't be read.
        id: ConnectionId,
        /// The reason.
        error: Errno,
    },
    /// A probe found nothing to read.
    Silent {
        /// The connection that was probed.
        id: ConnectionId,
    },
    /// All bytes of a send are in the socket's buffer; the next send may follow.
    Sent {
        /// The connection that was sent to.
        id: ConnectionId,
    },
    /// A send is still not done a turn after it was submitted: the peer doesn't read. Said once a
    /// send; `Sent` or `SendFailed` still follows.
    SendBlocked {
        /// The connection whose send waits.
        id: ConnectionId,
    },
    /// A send failed, perhaps after a part of its bytes had gone: nothing sensible can be sent on
    /// this connection any more.
    SendFailed {
        /// The connection that can't be sent to.
        id: ConnectionId,
        /// The reason; `EPIPE` for a send that was cut short.
        error: Errno,
    },
    /// The socket is closed and its slot free: the index may be attached again.
    Closed {
        /// The connection that is gone.
        id: ConnectionId,
    },
    /// The connection is out of the ring and its slot free: the index may be attached again.
    Detached {
        /// The connection that is the ring's no more.
        id: ConnectionId,
        /// Its socket.
        socket: Socket,
    },
    /// No descriptor could be made for the socket, which stays attached and is not read.
    DetachFailed {
        /// The connection that stays.
        id: ConnectionId,
        /// The reason, such as `EMFILE`.
        error: Errno,
    },
    /// A [`Waker`](crate::Waker) was used, once or more often. May rarely come without a cause.
    Woken,
}

/// A socket that was taken out of a ring. Two are equal if they are the same descriptor.
#[derive(Debug)]
pub struct Socket(pub OwnedFd);

impl PartialEq for Socket {
    fn eq(&self, other: &Socket) -> bool {
        self.0.as_raw_fd() == other.0.as_raw_fd()
    }
}

impl Eq for Socket {}

/// An operating system's error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    pub(crate) const AGAIN: Errno = Errno(Code::AGAIN.raw_os_error());
    pub(crate) const BROKEN_PIPE: Errno = Errno(Code::PIPE.raw_os_error());
    pub(crate) const CANCELED: Errno = Errno(Code::CANCELED.raw_os_error());
    pub(crate) const NO_BUFFERS: Errno = Errno(Code::NOBUFS.raw_os_error());
    pub(crate) const TIME: Errno = Errno(Code::TIME.raw_os_error());

    /// Whether the peer has broken the connection off, as against the kernel having given up on it.
    pub fn is_by_peer(self) -> bool {
        [Code::CONNRESET, Code::PIPE].iter().any(|code| code.raw_os_error() == self.0)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}
