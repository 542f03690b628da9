//! What the caller asks of a connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::arrivals::Arrivals;
use crate::connection::Flags;
use crate::operation::Operation;
use crate::{ConnectionId, Reading, Ring, SEND_LEN};

impl Ring {
    /// Puts a connected stream socket into the ring's file table and closes its number.
    ///
    /// # Errors
    ///
    /// The kernel's, such as `ENOMEM`; the socket is closed then.
    ///
    /// # Panics
    ///
    /// If the slot is taken.
    #[expect(clippy::needless_pass_by_value, reason = "the number is closed here")]
    pub fn attach(&mut self, id: ConnectionId, socket: OwnedFd) -> io::Result<()> {
        self.connections.assert_free(id);
        if self.arrivals.is_some() {
            Arrivals::ask(socket.as_fd())?;
        }
        let registered = [socket.as_raw_fd()];
        let done = self.queues.ring().submitter().register_files_update(id.index, &registered)?;
        assert_eq!(done, 1, "one socket was to be registered");
        self.connections.insert(id);
        Ok(())
    }

    /// Sets how the connection is read. Cheap when nothing changes.
    ///
    /// `Once` is `Off` again after its `Received`. `Off`, and `Once` while a stream is being read,
    /// take back what the kernel has; bytes that it had already read are still handed out.
    #[inline]
    pub fn read(&mut self, id: ConnectionId, reading: Reading) {
        let connection = self.connections.open(id);
        if connection.wanted() != reading {
            connection.want(reading);
            self.adjust_reading(id);
        }
    }

    /// Reads once without waiting, whether or not the connection is being read. Answered by
    /// `Received`, `EndOfStream`, `ReceiveFailed` or, if nothing was there, `Silent`. A probe that
    /// isn't answered yet answers for a second one too.
    ///
    /// # Panics
    ///
    /// In a ring with stamps.
    pub fn probe(&mut self, id: ConnectionId) {
        assert!(self.arrivals.is_none(), "a ring with stamps can only stream");
        let connection = self.connections.open(id);
        if connection.has(Flags::PROBING | Flags::PROBE_OWED) {
            return;
        }
        if connection.has(Flags::STARVED) {
            connection.flags |= Flags::PROBE_OWED;
        } else {
            connection.flags |= Flags::PROBING;
            self.queues.push_read(&Operation::probe(id));
        }
    }

    /// Sends what `fill` writes: it gets a buffer of [`SEND_LEN`] bytes and returns how many it has
    /// used; with none there is nothing to send. Answered by `Sent` or `SendFailed`, and before by
    /// `SendBlocked` if it takes longer than to the end of the turn after that of its submission.
    ///
    /// # Panics
    ///
    /// If a send is in flight, the write side is shut, or the length is above `SEND_LEN`.
    #[inline]
    pub fn send(&mut self, id: ConnectionId, fill: impl FnOnce(&mut [u8]) -> usize) {
        let connection = self.connections.open(id);
        assert!(!connection.is_sending(), "two sends at once on {id:?}");
        assert!(!connection.has(Flags::WRITE_SHUT), "a send after the shutdown of {id:?}");
        let len = fill(self.send_pool.draft());
        assert!(len <= SEND_LEN, "a send of {len} bytes");
        if len == 0 {
            return;
        }
        let (buffer, start) = self.send_pool.keep(len);
        let len = u16::try_from(len).expect("SEND_LEN fits, as connection.rs asserts");
        connection.send_buffer = buffer;
        connection.send_turn = self.turn;
        connection.send_len = len;
        // SAFETY: the buffer is given back, and so written to, only after the completion; its
        // memory outlives the queues.
        let send = unsafe { Operation::send(id, start, u32::from(len)) };
        self.queues.push(&send);
        self.sends.push(id);
    }

    /// Whether a send is in flight: asked for, and its end not yet handed out.
    #[inline]
    pub fn is_sending(&self, id: ConnectionId) -> bool {
        self.connections.is_sending(id)
    }

    /// Shuts the write side once nothing is being sent, so that the peer sees the end of the
    /// stream. Not answered; what fails here shows elsewhere. A worker thread of the kernel does
    /// it: plain closing is cheaper and needs no shutdown before it.
    pub fn shutdown_write(&mut self, id: ConnectionId) {
        let connection = self.connections.open(id);
        if connection.has(Flags::WRITE_SHUT) {
            return;
        }
        connection.flags |= Flags::WRITE_SHUT;
        if !connection.is_sending() {
            self.shut_now(id);
        }
    }

    pub(crate) fn shut_now(&mut self, id: ConnectionId) {
        self.connections.expect(id).flags |= Flags::SHUTTING;
        self.queues.push(&Operation::shutdown(id));
    }

    /// Takes the socket out of the ring, to be used elsewhere: what the kernel has of it is taken
    /// back, then a descriptor is made for it. Bytes that were already read are still handed out;
    /// then it is answered by `Detached` or `DetachFailed`, or, if the stream has ended, by
    /// `EndOfStream` or `ReceiveFailed` in place of them.
    ///
    /// # Panics
    ///
    /// If a send is in flight or the write side is shut.
    pub fn detach(&mut self, id: ConnectionId) {
        let connection = self.connections.open(id);
        assert!(!connection.is_sending(), "{id:?} is detached under a send");
        assert!(!connection.has(Flags::WRITE_SHUT), "{id:?} is detached after its shutdown");
        connection.flags.remove(Flags::PROBE_OWED);
        connection.flags |= Flags::LEAVING;
        connection.want(Reading::Off);
        self.adjust_reading(id);
        self.install_if_quiet(id);
    }

    /// Makes the descriptor for a connection that is to leave and of which the kernel has nothing.
    pub(crate) fn install_if_quiet(&mut self, id: ConnectionId) {
        let connection = self.connections.expect(id);
        if connection.has(Flags::LEAVING) && !connection.in_flight() {
            connection.flags.remove(Flags::LEAVING);
            connection.flags |= Flags::INSTALLING;
            self.queues.push(&Operation::install(id));
        }
    }

    /// Ends the connection: takes back what the kernel has of it, then closes the socket. Answered
    /// by `Closed`, and no other event of it comes from this call on. A send that the socket can
    /// take at once still goes out. Does nothing if it is already closing or gone.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.find(id) else {
            return;
        };
        if connection.has(Flags::CLOSING) {
            return;
        }
        connection.flags |= Flags::CLOSING;
        connection.want(Reading::Off);
        let sending = connection.is_sending();
        self.adjust_reading(id);
        if sending {
            self.queues.push(&Operation::cancel_send(id));
        }
        self.close_if_quiet(id);
    }

    /// Closes the socket of a connection that is to be closed and of which the kernel has nothing
    /// left. Earlier would be in vain: an armed receive holds the socket open.
    pub(crate) fn close_if_quiet(&mut self, id: ConnectionId) {
        let connection = self.connections.expect(id);
        let closing = connection.has(Flags::CLOSING) && !connection.has(Flags::CLOSE_SENT);
        if closing && !connection.in_flight() {
            connection.flags |= Flags::CLOSE_SENT;
            self.queues.push(&Operation::close(id));
        }
    }
}
