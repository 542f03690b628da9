//! The queue that is linked through the sessions, against the standard library's.

use std::collections::VecDeque;

use monolock_core::waiter_queue::{Links, QueueLinks, WaiterQueue};
use proptest::collection::vec;
use proptest::prelude::*;

const SESSIONS: u32 = 12;
const QUEUES: usize = 3;

struct Sessions(Vec<Links>);

impl QueueLinks for Sessions {
    fn links(&mut self, index: u32) -> &mut Links {
        &mut self.0[index as usize]
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// To the end of a queue, if the session stands in none.
    Push {
        queue: usize,
        index: u32,
    },
    /// Out of whichever queue the session stands in.
    Leave(u32),
    Pop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..QUEUES, 0..SESSIONS).prop_map(|(queue, index)| Step::Push { queue, index }),
        2 => (0..SESSIONS).prop_map(Step::Leave),
        1 => (0..QUEUES).prop_map(Step::Pop),
    ]
}

/// Some queues over the same sessions: the links of one must never lead into another.
struct Queues {
    sessions: Sessions,
    queues: [WaiterQueue; QUEUES],
    model: [VecDeque<u32>; QUEUES],
}

impl Queues {
    fn new() -> Queues {
        Queues {
            sessions: Sessions(vec![Links::UNLINKED; SESSIONS as usize]),
            queues: [WaiterQueue::new(); QUEUES],
            model: Default::default(),
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Push { queue, index } => {
                if self.queue_of(index).is_none() {
                    self.queues[queue].push_back(&mut self.sessions, index);
                    self.model[queue].push_back(index);
                }
            }
            Step::Leave(index) => {
                if let Some(queue) = self.queue_of(index) {
                    self.queues[queue].remove(&mut self.sessions, index);
                    self.model[queue].retain(|&other| other != index);
                }
            }
            Step::Pop(queue) => {
                let popped = self.queues[queue].pop_front(&mut self.sessions);
                prop_assert_eq!(popped, self.model[queue].pop_front());
            }
        }
        Ok(())
    }

    fn queue_of(&self, index: u32) -> Option<usize> {
        self.model.iter().position(|queue| queue.contains(&index))
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (queue, model) in self.queues.iter().zip(&self.model) {
            let behind = |&index: &u32| WaiterQueue::behind(self.sessions.0[index as usize]);
            let walk = std::iter::successors(queue.front(), behind);
            prop_assert_eq!(&walk.collect::<VecDeque<u32>>(), model);
            prop_assert_eq!(queue.len() as usize, model.len());
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
        for (index, links) in (0..SESSIONS).zip(&self.sessions.0) {
            if self.queue_of(index).is_none() {
                prop_assert_eq!(*links, Links::UNLINKED);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn who_came_first_goes_first_whoever_leaves_from_the_middle(steps in vec(step(), 0..200)) {
        let mut queues = Queues::new();
        for step in steps {
            queues.take(step)?;
            queues.check()?;
        }
    }
}
