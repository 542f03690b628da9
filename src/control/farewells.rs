//! How fast sessions are told of a shutdown: no faster than the kernel has memory for what they are
//! told.
//!
//! A last word that has not been read yet takes a page of what all of the machine's TCP sockets
//! share, however short it is. Where a million clients are told at once that is used up, and then
//! the kernel drops what comes in and resets connections instead of delivering.

use std::rc::Rc;
use std::time::Duration;

use super::running::Running;
use crate::memory;
use crate::shards::Command;

/// How often it is looked how much there is.
const PERIOD: Duration = Duration::from_millis(10);

/// Of the pages that are left, the part that may be used until the next look: there may be two ends
/// of each connection on this machine, and others want some as well.
const PART: u64 = 4;

/// After so many looks at which there was next to nothing left, some are told nevertheless: whoever
/// else uses up the memory may do so for ever.
const LOOKS_MAX: u32 = 50;

/// So many of each event loop are some, and fewer are next to nothing.
const SOME: u32 = 64;

/// Lets the event loops tell their sessions, until they have all ended.
pub(super) async fn pace(running: Rc<Running>) {
    let shards = &running.shards;
    let mut pace = Pace { shards: shards.len() as u64, looks_in_vain: 0 };
    loop {
        if let Some(places_max) = pace.look(memory::tcp_pages_left()) {
            for shard in shards.iter() {
                shard.tell(Command::TellOfShutdown { places_max });
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

struct Pace {
    shards: u64,
    /// In a row, there was next to nothing left.
    looks_in_vain: u32,
}

impl Pace {
    /// How many places of each event loop may be told until the next look: none more, if there
    /// is next to nothing left. All of them, where the kernel doesn't say what is left.
    fn look(&mut self, pages_left: Option<u64>) -> Option<u32> {
        let part = pages_left.map_or(u64::MAX, |pages| pages / PART / self.shards);
        let places_max = u32::try_from(part).unwrap_or(u32::MAX);
        if places_max < SOME && self.looks_in_vain < LOOKS_MAX {
            self.looks_in_vain += 1;
            return None;
        }
        self.looks_in_vain = 0;
        Some(places_max.max(SOME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_is_left_is_shared_out() {
        let mut pace = Pace { shards: 10, looks_in_vain: 0 };
        assert_eq!(pace.look(Some(40_000)), Some(1000));
        assert_eq!(pace.look(Some(u64::MAX)), Some(u32::MAX));
        assert_eq!(pace.look(None), Some(u32::MAX), "the kernel doesn't say");
    }

    #[test]
    fn somebody_else_who_uses_up_everything_holds_nobody_up_for_ever() {
        let mut pace = Pace { shards: 10, looks_in_vain: 0 };
        for _ in 0..3 {
            assert!((0..LOOKS_MAX).all(|_| pace.look(Some(100)).is_none()));
            assert_eq!(pace.look(Some(100)), Some(SOME));
        }
        assert_eq!(pace.look(Some(2560)), Some(SOME), "which is there again");
    }
}
