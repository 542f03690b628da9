//! The heap of deadlines against a list that is searched.

use monolock_core::lease_heap::{HeapPositions, LeaseHeap};
use monolock_core::time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;

const SESSIONS: u32 = 24;

/// What a session that is not in the heap has for a position.
const ABSENT: u32 = u32::MAX;

struct Positions(Vec<u32>);

impl HeapPositions for Positions {
    fn heap_position(&mut self, index: u32) -> &mut u32 {
        &mut self.0[index as usize]
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A deadline for the session: its first, or another one.
    Set(u32, u64),
    Remove(u32),
    RemoveFirst,
}

/// Few different deadlines, so that many are equal.
fn step() -> impl Strategy<Value = Step> {
    let deadline = prop_oneof![8 => 0..30u64, 1 => Just(u64::MAX)];
    prop_oneof![
        6 => (0..SESSIONS, deadline).prop_map(|(index, deadline)| Step::Set(index, deadline)),
        2 => (0..SESSIONS).prop_map(Step::Remove),
        1 => Just(Step::RemoveFirst),
    ]
}

struct Pair {
    heap: LeaseHeap,
    positions: Positions,
    /// The deadline of each session that has one.
    model: Vec<Option<Instant>>,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            heap: LeaseHeap::with_capacity(0),
            positions: Positions(vec![ABSENT; SESSIONS as usize]),
            model: vec![None; SESSIONS as usize],
        }
    }

    fn take(&mut self, step: Step) {
        let Pair { heap, positions, model } = self;
        match step {
            Step::Set(index, nanos) => {
                let deadline = Instant::from_nanos(nanos);
                match model[index as usize].replace(deadline) {
                    None => heap.insert(positions, index, deadline),
                    Some(_) => heap.change(positions, index, deadline),
                }
            }
            Step::Remove(index) => {
                heap.remove(positions, index);
                model[index as usize] = None;
            }
            Step::RemoveFirst => {
                if let Some((_, index)) = heap.first() {
                    self.take(Step::Remove(index));
                }
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let Pair { heap, positions, model } = self;
        let earliest = model.iter().flatten().min().copied();
        prop_assert_eq!(heap.first().map(|(deadline, _)| deadline), earliest);
        if let Some((deadline, index)) = heap.first() {
            prop_assert_eq!(model[index as usize], Some(deadline), "it is that session's own");
        }
        let present = model.iter().flatten().count();
        prop_assert_eq!((heap.len(), heap.is_empty()), (present, present == 0));
        let mut taken: Vec<u32> = positions.0.clone();
        taken.retain(|&position| position != ABSENT);
        taken.sort_unstable();
        prop_assert!(taken.into_iter().eq(0..u32::try_from(present).expect("few")));
        for (position, deadline) in positions.0.iter().zip(model) {
            prop_assert_eq!(*position == ABSENT, deadline.is_none());
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_first_is_always_the_earliest_and_positions_stay_true(steps in vec(step(), 0..200)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.take(step);
            pair.check()?;
        }
    }

    #[test]
    fn taken_from_the_top_deadlines_come_in_order(steps in vec(step(), 0..200)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.take(step);
        }
        let mut expected: Vec<Instant> = pair.model.iter().flatten().copied().collect();
        expected.sort_unstable();
        let taken: Vec<Instant> = std::iter::from_fn(|| {
            let first = pair.heap.first().map(|(deadline, _)| deadline);
            pair.take(Step::RemoveFirst);
            first
        })
        .collect();
        prop_assert_eq!(taken, expected);
    }
}

#[test]
fn removing_what_is_not_in_the_heap_changes_nothing() {
    let mut pair = Pair::new();
    pair.take(Step::Set(3, 7));
    pair.take(Step::Remove(4));
    pair.take(Step::Remove(4));
    assert_eq!(pair.heap.first(), Some((Instant::from_nanos(7), 3)));
}
