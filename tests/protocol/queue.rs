//! First in, first out; promotion as a push; leaving the queue.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::client::{Client, Event};
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, SILENCE};
use crate::harness::wire::Frame;
use crate::{server, unique_name};

/// An owner and, behind it in this order, so many waiters.
fn line_up(server: SocketAddr, name: &str, waiters: usize) -> (Client, Vec<Client>) {
    let (owner, _) = Client::owner(server, name, LONG_LEASE_MS);
    let waiters = (0..waiters).map(|_| Client::waiter(server, name, LONG_LEASE_MS)).collect();
    (owner, waiters)
}

/// Ends the owner and then each next one, and checks that they follow each other in this order.
#[track_caller]
fn expect_order(owner: Client, waiters: Vec<Client>) {
    let mut owner = owner;
    let mut last = 0;
    for mut next in waiters {
        owner.close();
        let token = next.expect_acquired();
        assert!(token > last, "{token} after {last}");
        (owner, last) = (next, token);
    }
}

#[test]
fn a_hundred_waiters_get_the_lock_in_the_order_in_which_they_came() {
    let server = server();
    let (owner, waiters) = line_up(server.address, &unique_name(), 100);
    expect_order(owner, waiters);
}

#[test]
fn only_the_head_of_the_queue_is_promoted() {
    let server = server();
    let (owner, mut waiters) = line_up(server.address, &unique_name(), 3);
    owner.close();
    let token = waiters[0].expect_acquired();
    // The others' answers come after whatever the release might have sent to them.
    waiters[1].expect_queued();
    waiters[2].expect_queued();
    waiters[0].expect_held(token);
}

#[test]
fn a_promotion_comes_without_having_been_asked_for() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    waiter.expect_silence(SILENCE);
    owner.close();
    let token = waiter.expect_acquired();
    waiter.expect_silence(SILENCE);
    waiter.expect_held(token);
}

#[test]
fn a_waiter_leaves_from_the_head() {
    leave(0, Client::close);
}

#[test]
fn a_waiter_leaves_from_the_middle() {
    leave(2, Client::close);
}

#[test]
fn a_waiter_leaves_from_the_tail() {
    leave(4, Client::close);
}

#[test]
fn a_waiter_leaves_by_a_half_close_and_gets_the_end_of_its_stream() {
    leave(2, |mut waiter| {
        waiter.half_close();
        waiter.expect_eof();
    });
}

#[test]
fn a_waiter_leaves_by_a_reset() {
    leave(2, Client::reset);
}

/// Of five waiters the one at this place leaves; the others keep their order and nobody is lost.
#[track_caller]
fn leave(place: usize, how: impl FnOnce(Client)) {
    let server = server();
    let name = unique_name();
    let (owner, mut waiters) = line_up(server.address, &name, 5);
    how(waiters.remove(place));
    // One that comes after the leave is behind all others, not at the place that was left.
    waiters.push(Client::waiter(server.address, &name, LONG_LEASE_MS));
    expect_order(owner, waiters);
}

#[test]
fn a_queue_from_which_all_waiters_left_leaves_the_lock_to_a_newcomer() {
    let server = server();
    let name = unique_name();
    let (owner, waiters) = line_up(server.address, &name, 5);
    for mut waiter in waiters {
        waiter.half_close();
        waiter.expect_eof();
    }
    let newcomer = Client::waiter(server.address, &name, LONG_LEASE_MS);
    expect_order(owner, vec![newcomer]);
}

#[test]
fn many_waiters_that_leave_at_random_places_don_t_disturb_the_order_of_the_rest() {
    let server = server();
    let (owner, waiters) = line_up(server.address, &unique_name(), 60);
    let mut staying = Vec::new();
    for (place, waiter) in waiters.into_iter().enumerate() {
        // A fixed pattern with runs of one, two and three leavers.
        match place % 10 {
            0 | 3 | 4 | 7 => waiter.close(),
            8 => waiter.reset(),
            _ => staying.push(waiter),
        }
    }
    expect_order(owner, staying);
}

#[test]
fn a_holder_that_closes_hands_over_at_once() {
    hand_over(Client::close);
}

#[test]
fn a_holder_that_half_closes_hands_over_at_once() {
    hand_over(|mut owner| {
        owner.half_close();
        owner.expect_eof();
    });
}

#[test]
fn a_holder_that_resets_hands_over_at_once() {
    hand_over(Client::reset);
}

/// At once means not with the lease: that one is longer than the test would wait.
#[track_caller]
fn hand_over(how: impl FnOnce(Client)) {
    assert!(Duration::from_millis(LONG_LEASE_MS.into()) > PATIENCE);
    let server = server();
    let name = unique_name();
    let (owner, first) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    how(owner);
    assert!(waiter.expect_acquired() > first);
}

#[test]
fn a_half_closed_holder_that_stays_connected_does_not_hold_the_lock_up() {
    let server = server();
    let name = unique_name();
    let (mut owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.half_close();
    waiter.expect_acquired();
    owner.expect_eof();
}

#[test]
fn a_claim_whose_stream_ends_right_after_it_is_answered_and_released() {
    let server = server();
    let name = unique_name();
    let mut client = Client::connect(server.address);
    client.acquire(&name, LONG_LEASE_MS);
    client.half_close();
    client.expect_acquired();
    client.expect_eof();
    Client::owner(server.address, &name, LONG_LEASE_MS);
}

#[test]
fn a_claim_in_the_queue_whose_stream_ends_right_after_it_is_answered_and_forgotten() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut passer_by = Client::connect(server.address);
    passer_by.acquire(&name, LONG_LEASE_MS);
    passer_by.half_close();
    passer_by.expect_waiting();
    passer_by.expect_eof();
    let waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    expect_order(owner, vec![waiter]);
}

#[test]
fn a_claim_that_is_reset_right_after_it_leaves_the_lock_free() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    for _ in 0..20 {
        let mut passer_by = Client::connect(server.address);
        passer_by.acquire(&name, LONG_LEASE_MS);
        passer_by.reset();
    }
    let waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    expect_order(owner, vec![waiter]);
}

#[test]
fn heartbeats_around_a_promotion_are_each_answered_and_acquired_never_returns_to_waiting() {
    const HEARTBEATS: usize = 400;
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut owner = Some(owner);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    for count in 0..HEARTBEATS {
        waiter.heartbeat();
        if count == HEARTBEATS / 2 {
            owner.take().expect("the owner leaves once").close();
        }
    }
    // An answer for each heartbeat, and one more that the promotion pushes.
    let frames: Vec<Frame> = (0..=HEARTBEATS).map(|_| waiter.read_frame()).collect();
    assert_eq!(waiter.next_event(SILENCE), Event::Silence);
    let queued = frames.iter().take_while(|frame| **frame == Frame::Waiting);
    let (_, held) = frames.split_at(queued.count());
    assert!(matches!(held[0], Frame::Acquired(_)), "{:?}", held[0]);
    assert!(held.iter().all(|frame| *frame == held[0]), "{held:?}");
}
