//! What the judge knows of one connection.

use std::collections::VecDeque;

use monolock_core::fencing::Token;

use crate::sim::frames::{ClientStream, ServerStream};
use crate::sim::sighting::Shard;

/// Where a session stands, as far as was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Connected,
    /// Its lock is in another shard.
    Moving,
    Waiting,
    Holding(Token),
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    In(Shard),
    /// There since that time, because there is no place where it is to go.
    HeldUpIn(Shard, u64),
    /// Its socket is being taken out of the ring.
    Leaving(Shard),
    UnderWay,
}

impl Whereabouts {
    /// The shard that has it.
    pub(super) fn shard(self) -> Option<Shard> {
        match self {
            Whereabouts::In(shard)
            | Whereabouts::HeldUpIn(shard, _)
            | Whereabouts::Leaving(shard) => Some(shard),
            Whereabouts::UnderWay => None,
        }
    }

    /// Whether it is on the way to another shard: it holds nothing, and ends where it arrives.
    pub(super) fn is_on_the_way(self) -> bool {
        matches!(self, Whereabouts::Leaving(_) | Whereabouts::UnderWay)
    }
}

/// What ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The peer has closed or broken off.
    Left,
    /// The kernel gave up on somebody who holds nothing.
    Lost,
    Wrong,
    Administrator,
    Shutdown,
    Expired,
    Stuck,
}

/// What the judge knows of one connection.
pub(super) struct Session {
    pub(super) accepted: u64,
    pub(super) whereabouts: Whereabouts,
    /// Since when it is in the loop that has it.
    pub(super) there_since: u64,
    pub(super) has_moved: bool,
    /// What is wrong with what it has sent behind its ACQUIRE, to be told where it arrives.
    pub(super) wrong_on_arrival: Option<u8>,
    pub(super) said: ClientStream,
    pub(super) answers: ServerStream,
    pub(super) lock: String,
    pub(super) lease: u64,
    pub(super) standing: Standing,
    /// When the last message was read that restarts the lease.
    pub(super) heard: u64,
    /// What has arrived and was not read.
    pub(super) unread: usize,
    pub(super) end_unread: bool,
    /// Since when each answer is owed.
    pub(super) owed: VecDeque<u64>,
    pub(super) error_owed: Option<u8>,
    pub(super) error_submitted: bool,
    /// Since when the kernel has not taken what was submitted, and since when it has.
    pub(super) stuck: Option<u64>,
    pub(super) taken: u64,
    pub(super) gave_up: bool,
    /// The peer will send no more.
    pub(super) hung_up: bool,
    pub(super) ended: Option<(u64, Cause)>,
    pub(super) drained: usize,
    /// All that was given to the kernel, less what the client has read.
    pub(super) to_client: VecDeque<u8>,
}
impl Session {
    pub(super) fn new(shard: Shard, accepted: u64) -> Session {
        Session {
            accepted,
            whereabouts: Whereabouts::In(shard),
            there_since: accepted,
            has_moved: false,
            wrong_on_arrival: None,
            said: ClientStream::default(),
            answers: ServerStream::default(),
            lock: String::new(),
            lease: 0,
            standing: Standing::Connected,
            heard: accepted,
            unread: 0,
            end_unread: false,
            owed: VecDeque::new(),
            error_owed: None,
            error_submitted: false,
            stuck: None,
            taken: accepted,
            gave_up: false,
            hung_up: false,
            ended: None,
            drained: 0,
            to_client: VecDeque::new(),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.ended.is_none()
    }

    /// When a session that is not stuck is over if nothing more comes.
    pub(super) fn deadline(&self, io_timeout: u64) -> u64 {
        match self.standing {
            Standing::Connected => self.accepted + io_timeout,
            Standing::Moving | Standing::Waiting | Standing::Holding(_) => self.heard + self.lease,
        }
    }

    /// Whether a stuck write has outlasted the io-timeout.
    pub(super) fn stuck_too_long(&self, io_timeout: u64, now: u64) -> bool {
        self.stuck.is_some_and(|since| since + io_timeout <= now)
    }

    pub(super) fn end(&mut self, now: u64, cause: Cause) {
        self.ended.get_or_insert((now, cause));
    }
}
