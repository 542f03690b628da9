//! Who gets the places of an event loop's table, and that locks are spread evenly over loops.

use std::num::NonZeroU32;
use std::thread;

use monolock_core::places::{PlaceQueue, Places};
use monolock_core::shard_map::ShardMap;

#[test]
fn unclaimed_connections_get_two_thirds_of_what_no_claim_has() {
    let places = Places::new(9);
    for _ in 0..6 {
        assert!(places.has_room());
        places.take_for_new();
    }
    assert!(!places.has_room(), "the last third is for claims");
    places.publish(0, 6);
    for claimed in 6..9 {
        assert!(places.has_room(), "with {claimed} claims");
        places.take_for_new();
        places.publish(0, claimed + 1);
    }
    assert!(!places.has_room(), "every place is taken");
    places.publish(1, 8);
    assert!(places.has_room());
}

#[test]
fn the_last_third_is_for_connections_that_come_from_other_loops() {
    let places = Places::new(9);
    while places.has_room() {
        places.take_for_new();
    }
    assert_eq!(places.left_for_moves(), 2, "all but the one that the acceptor may have seen");
    assert!(places.take_for_move() && places.take_for_move() && !places.take_for_move());
    assert_eq!((places.taken(), places.left_for_moves()), (8, 0));
    places.publish(1, 2);
    assert!(places.take_for_move());
}

#[test]
fn a_place_that_the_acceptor_has_seen_is_still_there_whoever_else_takes_places() {
    for _ in 0..200 {
        let places = Places::new(8);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| while places.take_for_move() {});
            }
            while places.has_room() {
                places.take_for_new();
                assert!(places.taken() <= 8);
            }
        });
        assert!((7..=8).contains(&places.taken()), "{places:?}");
    }
}

#[test]
fn a_publication_without_news_is_none() {
    let places = Places::new(8);
    places.take_for_new();
    assert!(!places.publish(0, 0));
    assert!(places.publish(0, 1));
    assert!(!places.publish(0, 1));
    assert!(places.publish(1, 1), "one has left and another one has claimed");
}

#[test]
fn freed_places_go_round_the_loops_that_want_them() {
    let mut queue = PlaceQueue::new(4);
    assert!(queue.is_empty() && queue.pop().is_none());
    queue.set_waiting(1, 3);
    queue.set_waiting(3, 1);
    queue.set_waiting(2, 5);
    queue.set_waiting(2, 2);
    let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 1]);
    queue.set_waiting(0, 7);
    queue.set_waiting(0, 0);
    assert!(queue.is_empty() && queue.pop().is_none(), "who has ended is not waited for");
}

#[test]
fn locks_are_spread_evenly_by_a_hash_that_the_key_decides() {
    const NAMES: usize = 60_000;
    let names: Vec<String> = (0..NAMES).map(|number| format!("shard-test/{number}")).collect();
    for shards in [1, 2, 3, 6, 32] {
        let map = |key| ShardMap::new(NonZeroU32::new(shards).expect("not zero"), [key; 16]);
        let mut counts = vec![0; shards as usize];
        names.iter().for_each(|name| counts[map(1).owner(name) as usize] += 1);
        let even = NAMES / shards as usize;
        // Six standard deviations.
        let bound = 6 * even.isqrt();
        assert!(counts.iter().all(|count| even.abs_diff(*count) <= bound), "{counts:?}");
        let stay = names.iter().filter(|name| map(1).owner(name) == map(2).owner(name)).count();
        assert!(stay.abs_diff(even) <= bound, "{stay} of {NAMES} stay under another key");
    }
}
