//! Sessions that are processes of their own, so that they can be stopped as a program is that is
//! being debugged, swapped out or moved: this program, executed again for each.
//!
//! A process tells on its stdout, a line of JSON each, what happened to it and when. All processes
//! of a machine read the same clock, so the one that has started them can put it all in order.

mod crowd;
mod history;
mod holder;
mod process;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::claim::Loss;
use monolock_core::time::Instant;
use monolock_core::wire::{ErrorCode, UnknownServerFrame};
use serde::{Deserialize, Serialize};

use crate::resource::{Author, Rules, Site, Written};

pub use crowd::{Crowd, CrowdConfig};
pub use holder::run;

/// What such a process is told, on its stdin.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    /// Who has started it, and whose death ends it.
    parent: u32,
    server: SocketAddr,
    lock_name: String,
    lease_ms: NonZeroU32,
    site: Site,
    rules: Rules,
    write_every: Duration,
}

/// A moment as it goes from one process to another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Moment(u64);

impl From<Instant> for Moment {
    fn from(instant: Instant) -> Moment {
        Moment(instant.as_nanos())
    }
}

impl From<Moment> for Instant {
    fn from(Moment(nanos): Moment) -> Instant {
        Instant::from_nanos(nanos)
    }
}

/// What such a process tells.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    at: Moment,
    news: News,
}

/// What has happened to it.
#[derive(Debug, Serialize, Deserialize)]
enum News {
    /// A connection was begun, and the ACQUIRE sent at `at`.
    Asked { begun: Moment },
    /// No connection came about.
    NotConnected { why: String, is_nobody_there: bool },
    /// It waits.
    Queued,
    /// It holds the lock.
    Granted { token: u64 },
    /// A heartbeat was sent.
    Sent,
    /// An answer to a message that was sent then. `due` is when the heartbeat should have been, if
    /// it is the answer to the newest one.
    Confirmed { sent_at: Moment, due: Option<Moment> },
    /// The claim is over.
    Lost { end: ClaimEnd, confirmed_at: Moment, gives_up_at: Moment, words: String },
    /// A write is done.
    Wrote { author: Author, due: Moment, begun: Moment, written: Written },
    /// It can't go on.
    Failed { why: String },
}

/// How a claim came to its end, as far as it matters to the judge.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum ClaimEnd {
    Silence,
    EndOfStream,
    Disconnected,
    Refused(u8),
    Unintelligible(u8),
    Contradiction,
}

impl From<Loss> for ClaimEnd {
    fn from(loss: Loss) -> ClaimEnd {
        match loss {
            Loss::Silence => ClaimEnd::Silence,
            Loss::EndOfStream => ClaimEnd::EndOfStream,
            Loss::Disconnected => ClaimEnd::Disconnected,
            Loss::Refused(code) => ClaimEnd::Refused(code.get()),
            Loss::Unintelligible(UnknownServerFrame(byte)) => ClaimEnd::Unintelligible(byte),
            Loss::Contradiction => ClaimEnd::Contradiction,
        }
    }
}

impl From<ClaimEnd> for Loss {
    fn from(end: ClaimEnd) -> Loss {
        match end {
            ClaimEnd::Silence => Loss::Silence,
            ClaimEnd::EndOfStream => Loss::EndOfStream,
            ClaimEnd::Disconnected => Loss::Disconnected,
            ClaimEnd::Refused(code) => Loss::Refused(ErrorCode::new(code)),
            ClaimEnd::Unintelligible(byte) => Loss::Unintelligible(UnknownServerFrame(byte)),
            ClaimEnd::Contradiction => Loss::Contradiction,
        }
    }
}
