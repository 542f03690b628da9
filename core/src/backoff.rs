//! The client's half of coming back: how long to stay away after an attempt that came to nothing,
//! once for all clients. The caller draws the random numbers.
//!
//! Clients of one server lose their claims at one moment. So each waits for a time of its own
//! before it dials again, and longer every time that it is in vain: a server that is starting is
//! not met by all of them at once, and one that is gone is not dialled for nothing.

use core::time::Duration;

use crate::claim::Loss;
use crate::wire::{ErrorClass, ErrorCode};

/// The shortest wait.
pub const WAIT_MIN: Duration = Duration::from_millis(100);

/// The longest wait.
pub const WAIT_MAX: Duration = Duration::from_secs(5);

/// Doublings after which the longest wait is reached.
const DOUBLINGS_MAX: u32 = 5;

/// One client's attempts to get a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Waits since the last answer.
    waits: u32,
    /// It has come back at once since the last answer.
    has_hurried: bool,
}

impl Backoff {
    /// Nothing was tried yet.
    pub const fn new() -> Backoff {
        Backoff { waits: 0, has_hurried: false }
    }

    /// A claim has had its first answer, WAITING or ACQUIRED: the server is there.
    pub fn answered(&mut self) {
        *self = Backoff::new();
    }

    /// How long to stay away after this loss. `None`: for ever, as the server would say the same
    /// again (an error of the client's), or isn't a version 1 server.
    ///
    /// `random` is any number, all of them equally likely.
    ///
    /// Not at all after [`ErrorCode::SHUTTING_DOWN`], for another server may be there. But when
    /// that is the answer to coming back, the other server isn't there yet.
    pub fn after_loss(&mut self, loss: Loss, random: u32) -> Option<Duration> {
        match loss {
            Loss::Refused(code) if code.class() == ErrorClass::ClientError => None,
            Loss::Unintelligible(_) | Loss::Contradiction => None,
            Loss::Refused(ErrorCode::SHUTTING_DOWN) if !self.has_hurried => {
                self.has_hurried = true;
                Some(Duration::ZERO)
            }
            Loss::Refused(_) | Loss::Silence | Loss::EndOfStream | Loss::Disconnected => {
                Some(self.wait(random))
            }
        }
    }

    /// How long to stay away when no connection could be made.
    pub fn after_failed_dial(&mut self, random: u32) -> Duration {
        self.wait(random)
    }

    /// Between the half and the whole of a time that doubles from 200 ms.
    fn wait(&mut self, random: u32) -> Duration {
        let longest = (WAIT_MIN * 2u32.pow(1 + self.waits.min(DOUBLINGS_MAX))).min(WAIT_MAX);
        self.waits = self.waits.saturating_add(1);
        let half_nanos = u64::try_from(longest.as_nanos() / 2).expect("seconds");
        // 2.5 s are less than 2^32 ns, so the product fits.
        Duration::from_nanos(half_nanos + ((half_nanos * u64::from(random)) >> u32::BITS))
    }
}
