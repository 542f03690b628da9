//! What the engine asks of its driver, and what it reports.

use core::fmt;
use core::time::Duration;

use crate::fencing::Token;
use crate::lock_table::LockName;
use crate::session::{PeerAddress, SessionId};
use crate::shard_map::ShardNumber;

/// Something that the driver is to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send what [`transmit`](crate::engine::Engine::transmit) gives, then report it
    /// [`sent`](crate::engine::Engine::sent). Not asked again before that.
    Transmit(SessionId),
    /// The deadline has passed: read once without waiting. What was there goes to
    /// [`receive`](crate::engine::Engine::receive); if nothing was,
    /// [`silent`](crate::engine::Engine::silent) ends the session.
    Probe(SessionId),
    /// Tell the peer that nothing more will be sent, and go on reading.
    ShutdownWrite(SessionId),
    /// The session's lock belongs to another event loop: take a place there and have the session
    /// [leave](crate::engine::Engine::leave), or have it
    /// [wait](crate::engine::Engine::wait_for_place) for one. It may have ended meanwhile
    /// ([`is_to_move`](crate::engine::Engine::is_to_move)).
    Move {
        /// The session.
        session: SessionId,
        /// The event loop that owns its lock.
        to: ShardNumber,
    },
    /// A session that had a place in that event loop has ended before it got there.
    GiveBackPlace {
        /// Where the place is.
        at: ShardNumber,
    },
    /// Close the connection, whatever is under way, then let its place be used again by
    /// [`forget`](crate::engine::Engine::forget).
    Close(SessionId),
}

/// How a connection is to be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Not at all.
    Off,
    /// Once: until its first frame is whole, a connection may still move to another event loop,
    /// and then no read may be under way.
    Once,
    /// Whatever comes.
    Stream,
}

/// Why a holder lost its lock, by the word that the audit log and the metrics have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The connection was closed or reset.
    Graceful,
    /// Nothing was heard for the length of the lease.
    Expired,
    /// The answers were stuck for longer than the server waits.
    IoTimeout,
    /// An administrator ended the claim.
    Force,
    /// The holder sent something that it must not.
    ProtocolError,
    /// The server is shutting down.
    Shutdown,
}

impl ReleaseReason {
    /// Every reason there is, in the order of its numbers.
    pub const ALL: [ReleaseReason; 6] = [
        ReleaseReason::Graceful,
        ReleaseReason::Expired,
        ReleaseReason::IoTimeout,
        ReleaseReason::Force,
        ReleaseReason::ProtocolError,
        ReleaseReason::Shutdown,
    ];

    /// The reason's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReleaseReason::Graceful => "graceful",
            ReleaseReason::Expired => "expired",
            ReleaseReason::IoTimeout => "io_timeout",
            ReleaseReason::Force => "force",
            ReleaseReason::ProtocolError => "protocol_error",
            ReleaseReason::Shutdown => "shutdown",
        }
    }
}

impl fmt::Display for ReleaseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A lock has changed hands. The release of a holder always comes before the grant to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipChange {
    /// The lock.
    pub lock: LockName,
    /// The session that got or lost it.
    pub session: SessionId,
    /// That session's peer.
    pub peer: PeerAddress,
    /// The grant's token.
    pub token: Token,
    /// Which of the two.
    pub what: Ownership,
}

/// Got or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The lock was granted.
    Granted {
        /// From the ACQUIRE to the grant; zero if the lock was free.
        wait: Duration,
    },
    /// The lock was taken back.
    Released {
        /// From the grant to the release.
        held: Duration,
        /// Why.
        reason: ReleaseReason,
    },
}
