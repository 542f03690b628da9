//! Watches whether every event loop still turns: each is asked something once a second, and one
//! that leaves it unanswered for long is stuck.
//!
//! Time is counted in the watch's own looks. When the whole process or machine was paused, the
//! watch was paused with the loops, and one look is all that this counts for.

use std::cell::RefCell;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::PERIOD;
use crate::shards::ShardHandle;

/// So many looks in a row without an answer mean that a loop is stuck.
const UNANSWERED_MAX: u32 = 5;
const _: () = assert!(UNANSWERED_MAX as u64 * PERIOD.as_secs() == 5, "five seconds");

/// What is known of the event loops.
#[derive(Debug)]
pub(super) struct LoopWatch {
    loops: RefCell<Vec<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    asked: Option<oneshot::Receiver<()>>,
    /// Looks since then.
    unanswered: u32,
}

impl LoopWatch {
    pub(super) fn new(loops: usize) -> LoopWatch {
        LoopWatch { loops: RefCell::new((0..loops).map(|_| Watched::default()).collect()) }
    }

    /// Looks at all loops. To be called once in a [`PERIOD`](super::PERIOD).
    pub(super) fn look(&self, shards: &[ShardHandle]) {
        for (watched, shard) in self.loops.borrow_mut().iter_mut().zip(shards) {
            watched.look(|| shard.ask(|_| ()));
        }
    }

    /// Which loops are stuck, by their numbers.
    pub(super) fn stuck(&self) -> Vec<usize> {
        let loops = self.loops.borrow();
        (0..loops.len()).filter(|&shard| loops[shard].unanswered >= UNANSWERED_MAX).collect()
    }
}

impl Watched {
    fn look(&mut self, ask: impl FnOnce() -> oneshot::Receiver<()>) {
        let is_pending = (self.asked.as_mut())
            .is_some_and(|asked| matches!(asked.try_recv(), Err(TryRecvError::Empty)));
        if is_pending {
            self.unanswered += 1;
        } else {
            // Answered; or the loop has ended, of which others are told.
            *self = Watched { asked: Some(ask()), unanswered: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_stuck_after_five_looks_without_an_answer_and_alive_after_the_next_one() {
        let mut watched = Watched::default();
        let (answer, asked) = oneshot::channel();
        watched.look(|| asked);
        for looks in 1..=5 {
            watched.look(|| panic!("it has not answered the first question"));
            assert_eq!(watched.unanswered, looks);
        }
        answer.send(()).expect("somebody waits");
        let (_answer, asked) = oneshot::channel();
        watched.look(|| asked);
        assert_eq!(watched.unanswered, 0);
    }

    #[test]
    fn a_loop_that_has_ended_is_not_stuck() {
        let mut watched = Watched::default();
        for _ in 0..10 {
            watched.look(|| oneshot::channel().1);
            assert_eq!(watched.unanswered, 0);
        }
    }
}
