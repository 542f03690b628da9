//! Kernel operations, and the `user_data` that says whose completion it is.

use std::os::fd::RawFd;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{TimeoutFlags, Timespec};
use io_uring::{cqueue, opcode, types};
use libc::msghdr;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags};

use crate::buffers::GROUP;
use crate::{ConnectionId, Errno};

/// Connections are numbered in 24 bits of the `user_data`.
pub(crate) const SLOTS_MAX: u32 = 1 << 24;

/// What an operation is for. The number is the top byte of its `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Receive,
    Probe,
    Send,
    Shutdown,
    Close,
    CancelReceive,
    CancelSend,
    Install,
    Wake,
    Alarm,
    MoveAlarm,
    /// No operation: the ring's own note to look at a send that didn't complete at once.
    LateSend,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::Receive,
        Kind::Probe,
        Kind::Send,
        Kind::Shutdown,
        Kind::Close,
        Kind::CancelReceive,
        Kind::CancelSend,
        Kind::Install,
        Kind::Wake,
        Kind::Alarm,
        Kind::MoveAlarm,
        Kind::LateSend,
    ];
}

/// Kind (8 bits), index (24 bits) and generation (32 bits).
#[inline]
fn user_data(kind: Kind, id: ConnectionId) -> u64 {
    debug_assert!(id.index < SLOTS_MAX);
    u64::from(kind as u8) << 56 | u64::from(id.index) << 32 | u64::from(id.generation)
}

/// For operations that are no connection's.
const OF_THE_RING: ConnectionId = ConnectionId { index: 0, generation: 0 };

/// An operation that may be submitted: if it refers to memory, somebody promised that the memory
/// lives long enough.
pub(crate) struct Operation(Entry);

impl Operation {
    /// Receives once, into a buffer of the group, when bytes are there.
    pub(crate) fn receive_once(id: ConnectionId) -> Operation {
        let receive = opcode::Recv::new(types::Fixed(id.index), std::ptr::null_mut(), 0)
            .buf_group(GROUP)
            .build()
            .flags(Flags::BUFFER_SELECT);
        Operation::tagged(receive, Kind::Receive, id)
    }

    /// Receives again and again, into buffers of the group.
    pub(crate) fn receive_stream(id: ConnectionId) -> Operation {
        let receive = opcode::RecvMulti::new(types::Fixed(id.index), GROUP).build();
        Operation::tagged(receive, Kind::Receive, id)
    }

    /// The same, with the head that `layout` asks for before the bytes.
    ///
    /// # Safety
    ///
    /// What `layout` points to stays alive until this is submitted.
    pub(crate) unsafe fn receive_stamped(id: ConnectionId, layout: *const msghdr) -> Operation {
        let receive = opcode::RecvMsgMulti::new(types::Fixed(id.index), layout, GROUP).build();
        Operation::tagged(receive, Kind::Receive, id)
    }

    /// Receives what is there now.
    pub(crate) fn probe(id: ConnectionId) -> Operation {
        let receive = opcode::Recv::new(types::Fixed(id.index), std::ptr::null_mut(), 0)
            .buf_group(GROUP)
            .flags(RecvFlags::DONTWAIT.bits().cast_signed())
            .build()
            .flags(Flags::BUFFER_SELECT);
        Operation::tagged(receive, Kind::Probe, id)
    }

    /// Sends all of `len` bytes.
    ///
    /// # Safety
    ///
    /// The bytes at `start` are initialised, and stay alive and unchanged until the completion.
    #[inline]
    pub(crate) unsafe fn send(id: ConnectionId, start: *const u8, len: u32) -> Operation {
        // Without WAITALL a full socket takes a part and the rest is lost.
        // (rustix has no WAITALL among its flags for sending, as it means nothing in send(2).)
        let flags = SendFlags::NOSIGNAL.bits() | RecvFlags::WAITALL.bits();
        let send = opcode::Send::new(types::Fixed(id.index), start, len)
            .flags(flags.cast_signed())
            .build();
        Operation::tagged(send, Kind::Send, id)
    }

    /// Shuts the write side.
    pub(crate) fn shutdown(id: ConnectionId) -> Operation {
        const WRITE: i32 = 1;
        let shutdown = opcode::Shutdown::new(types::Fixed(id.index), WRITE).build();
        Operation::tagged(shutdown, Kind::Shutdown, id)
    }

    /// Takes the socket out of the file table, which closes it.
    pub(crate) fn close(id: ConnectionId) -> Operation {
        Operation::tagged(opcode::Close::new(types::Fixed(id.index)).build(), Kind::Close, id)
    }

    /// Cancels the receive. By `user_data`, which is hashed; by descriptor all would be searched.
    pub(crate) fn cancel_receive(id: ConnectionId) -> Operation {
        Operation::cancel(user_data(Kind::Receive, id), Kind::CancelReceive, id)
    }

    /// Cancels the send.
    pub(crate) fn cancel_send(id: ConnectionId) -> Operation {
        Operation::cancel(user_data(Kind::Send, id), Kind::CancelSend, id)
    }

    /// A cancellation completes only if it found nothing: a success shows in what it cancelled. So
    /// nobody need wait for it, and the generation keeps a late one from a slot's next user.
    fn cancel(target: u64, kind: Kind, id: ConnectionId) -> Operation {
        let cancel = opcode::AsyncCancel::new(target).build().flags(Flags::SKIP_SUCCESS);
        Operation::tagged(cancel, kind, id)
    }

    /// Gives the socket a descriptor of the process, close-on-exec, beside its place in the table.
    pub(crate) fn install(id: ConnectionId) -> Operation {
        let install = opcode::FixedFdInstall::new(types::Fixed(id.index), 0).build();
        Operation::tagged(install, Kind::Install, id)
    }

    /// Completes whenever the waker's descriptor is written to.
    pub(crate) fn watch(descriptor: RawFd) -> Operation {
        let poll = opcode::PollAdd::new(types::Fd(descriptor), u32::from(PollFlags::IN.bits()))
            .multi(true)
            .build();
        Operation::tagged(poll, Kind::Wake, OF_THE_RING)
    }

    /// Completes at a moment of `CLOCK_MONOTONIC`.
    ///
    /// # Safety
    ///
    /// What `at` points to stays alive until this is submitted.
    pub(crate) unsafe fn alarm(at: *const Timespec) -> Operation {
        let timeout = opcode::Timeout::new(at).flags(TimeoutFlags::ABS).build();
        Operation::tagged(timeout, Kind::Alarm, OF_THE_RING)
    }

    /// Gives the alarm another moment. It completes only if there was no alarm any more.
    ///
    /// # Safety
    ///
    /// What `at` points to stays alive until this is submitted.
    pub(crate) unsafe fn move_alarm(at: *const Timespec) -> Operation {
        let update = opcode::TimeoutUpdate::new(user_data(Kind::Alarm, OF_THE_RING), at)
            .flags(TimeoutFlags::ABS)
            .build()
            .flags(Flags::SKIP_SUCCESS);
        Operation::tagged(update, Kind::MoveAlarm, OF_THE_RING)
    }

    #[inline]
    fn tagged(entry: Entry, kind: Kind, id: ConnectionId) -> Operation {
        Operation(entry.user_data(user_data(kind, id)))
    }

    #[inline]
    pub(crate) fn entry(&self) -> &Entry {
        &self.0
    }
}

/// The end of an operation, or one result of a multishot one: what is kept of a completion entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    user_data: u64,
    /// Bytes, zero, or a negated error number.
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    #[inline]
    pub(crate) fn of(entry: &cqueue::Entry) -> Completion {
        Completion { user_data: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }

    /// A note that the send of `turn` was still not complete when others were.
    pub(crate) fn late_send(id: ConnectionId, turn: u32) -> Completion {
        let user_data = user_data(Kind::LateSend, id);
        Completion { user_data, result: turn.cast_signed(), flags: 0 }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        let number = self.user_data >> 56;
        *Kind::ALL.get(number as usize).unwrap_or_else(|| panic!("an operation of kind {number}"))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "taking the fields apart")]
    pub(crate) fn id(&self) -> ConnectionId {
        let index = (self.user_data >> 32) as u32 & (SLOTS_MAX - 1);
        ConnectionId { index, generation: self.user_data as u32 }
    }

    /// The error, if it is one.
    #[inline]
    pub(crate) fn error(&self) -> Option<Errno> {
        (self.result < 0).then_some(Errno(-self.result))
    }

    /// Whether the operation goes on.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The receive buffer that the kernel hands over, which it may even with an error.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_keeps_kind_index_and_generation() {
        for (position, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, position);
            for index in [0, 1, SLOTS_MAX - 1] {
                for generation in [0, 1, u32::MAX] {
                    let id = ConnectionId { index, generation };
                    let completion =
                        Completion { user_data: user_data(kind, id), result: 0, flags: 0 };
                    assert_eq!((completion.kind(), completion.id()), (kind, id));
                }
            }
        }
    }

    #[test]
    fn a_completion_is_sixteen_bytes() {
        assert_eq!(size_of::<Completion>(), 16);
    }
}
