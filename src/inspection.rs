//! Questions from outside to an event loop. A question is a closure that the loop runs on its own
//! thread in between; so whoever asks sees a state that is whole, and nothing is locked or copied
//! for the sake of those who may ask.

use std::fmt;

use monolock_core::engine::Engine;
use monolock_core::time::Now;
use tokio::sync::oneshot;

use crate::ended_holds::EndedHolds;

/// What a question has before it.
#[expect(missing_debug_implementations, reason = "it is lent for the time of a question")]
pub struct Inspected<'a> {
    /// Its sessions and locks.
    pub engine: &'a mut Engine,
    /// The present of this turn.
    pub now: Now,
    /// How the last holds of its locks ended.
    pub ended_holds: &'a EndedHolds,
    /// What the loop itself has done so far.
    pub tally: Tally,
}

/// What a loop has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Turns.
    pub turns: u64,
    /// Things that the ring has handed out.
    pub events: u64,
}

/// A question on its way to an event loop.
pub struct Question(Box<dyn FnOnce(Inspected<'_>) + Send>);

impl Question {
    /// A question and where its answer will come. It must be short: for as long as it runs, the
    /// loop serves nobody. It is not run if nobody waits for the answer any more, so that what was
    /// given up is not carried out later.
    pub fn new<A: Send + 'static>(
        ask: impl FnOnce(Inspected<'_>) -> A + Send + 'static,
    ) -> (Question, oneshot::Receiver<A>) {
        let (answer, answered) = oneshot::channel();
        let question = Question(Box::new(move |inspected| {
            if !answer.is_closed() {
                // Who has gone just now does not need it.
                let _ = answer.send(ask(inspected));
            }
        }));
        (question, answered)
    }

    /// Runs it.
    pub fn put_to(self, inspected: Inspected<'_>) {
        (self.0)(inspected);
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").finish_non_exhaustive()
    }
}
