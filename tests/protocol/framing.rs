//! Frames split and glued at every byte.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::client::{Client, Event};
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, SILENCE};
use crate::harness::wire::{self, HEARTBEAT};
use crate::{server, unique_name};

#[test]
fn an_acquire_split_at_any_byte_is_one_acquire() {
    let server = server();
    let frame_len = wire::acquire(unique_name(), LONG_LEASE_MS).len();
    let mut owners = Vec::new();
    for split in 1..frame_len {
        let frame = wire::acquire(unique_name(), LONG_LEASE_MS);
        let (first, second) = frame.split_at(split.min(frame.len() - 1));
        let mut owner = Client::connect(server.address);
        owner.send(first);
        owners.push((owner, second.to_vec()));
    }
    // All first parts are sent before the second ones: the server has read them apart by then, or
    // at least most of them.
    for (owner, _) in &mut owners {
        assert_eq!(owner.next_event(Duration::from_millis(1)), Event::Silence);
    }
    for (owner, second) in &mut owners {
        owner.send(second);
    }
    for (owner, _) in &mut owners {
        let token = owner.expect_acquired();
        owner.expect_held(token);
    }
}

#[test]
fn an_acquire_of_one_byte_a_segment_is_one_acquire() {
    let server = server();
    let name = unique_name();
    let mut owner = Client::connect(server.address);
    owner.send_bytewise(&wire::acquire(&name, LONG_LEASE_MS));
    let token = owner.expect_acquired();
    owner.send_bytewise(&[HEARTBEAT; 20]);
    for _ in 0..20 {
        assert_eq!(owner.expect_acquired(), token);
    }
    let mut waiter = Client::connect(server.address);
    waiter.send_bytewise(&wire::acquire(&name, LONG_LEASE_MS));
    waiter.expect_waiting();
    waiter.expect_silence(SILENCE);
}

#[test]
fn the_longest_acquire_of_one_byte_a_segment_is_one_acquire() {
    let server = server();
    let name = format!("{:x<255}", unique_name());
    let mut owner = Client::connect(server.address);
    owner.send_bytewise(&wire::acquire(&name, LONG_LEASE_MS));
    let token = owner.expect_acquired();
    owner.expect_held(token);
}

#[test]
fn an_acquire_in_three_parts_with_pauses_is_one_acquire() {
    let server = server();
    let frame = wire::acquire(unique_name(), LONG_LEASE_MS);
    let mut owner = Client::connect(server.address);
    for part in [&frame[..1], &frame[1..10], &frame[10..]] {
        owner.expect_silence(Duration::from_millis(50));
        owner.send(part);
    }
    let token = owner.expect_acquired();
    owner.expect_held(token);
}

#[test]
fn a_heartbeat_glued_to_the_last_byte_of_an_acquire_is_answered_after_it() {
    let server = server();
    let frame = wire::acquire(unique_name(), LONG_LEASE_MS);
    let (most, last) = frame.split_at(frame.len() - 1);
    let mut owner = Client::connect(server.address);
    owner.send(most);
    owner.expect_silence(Duration::from_millis(20));
    owner.send(&[last[0], HEARTBEAT, HEARTBEAT]);
    let token = owner.expect_acquired();
    assert_eq!(owner.expect_acquired(), token);
    assert_eq!(owner.expect_acquired(), token);
    owner.expect_silence(SILENCE);
}

#[test]
fn nothing_is_answered_before_an_acquire_is_whole() {
    let server = server();
    let name = unique_name();
    let frame = wire::acquire(&name, LONG_LEASE_MS);
    let mut slow = Client::connect(server.address);
    slow.send(&frame[..frame.len() - 1]);
    slow.expect_silence(SILENCE);
    // And the lock is not claimed before either.
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    slow.send(&frame[frame.len() - 1..]);
    slow.expect_waiting();
    owner.close();
    slow.expect_acquired();
}

#[test]
fn an_unfinished_acquire_at_the_end_of_the_stream_is_closed_without_an_error() {
    let server = server();
    let name = unique_name();
    let frame = wire::acquire(&name, LONG_LEASE_MS);
    for len in 0..frame.len() {
        let mut client = Client::connect(server.address);
        client.send(&frame[..len]);
        client.half_close();
        client.expect_eof();
    }
    Client::owner(server.address, &name, LONG_LEASE_MS);
}

#[test]
fn connections_that_go_without_a_byte_leave_nothing_behind() {
    let server = server();
    for _ in 0..100 {
        Client::connect(server.address).close();
        Client::connect(server.address).reset();
    }
    Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
}

#[test]
fn clients_that_send_their_parts_in_turns_are_not_mixed_up() {
    // Each chunk of each frame goes out before the next chunk of any.
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut frame = wire::acquire(&name, LONG_LEASE_MS);
    frame.push(HEARTBEAT);
    let mut clients: Vec<Client> = (0..30).map(|_| Client::connect(server.address)).collect();
    for chunk in frame.chunks(3) {
        for client in &mut clients {
            client.send(chunk);
        }
        thread::sleep(Duration::from_millis(1));
    }
    for client in &mut clients {
        client.expect_waiting();
        client.expect_waiting();
    }
    owner.close();
    // Which of them was first is not known, but it is one.
    let start = Instant::now();
    let promoted = loop {
        let event_of = |client: &mut Client| client.next_event(Duration::from_millis(1));
        let seen = clients.iter_mut().position(|client| event_of(client) != Event::Silence);
        if let Some(promoted) = seen {
            break promoted;
        }
        assert!(start.elapsed() < PATIENCE, "nobody was promoted");
    };
    let mut promoted = clients.swap_remove(promoted);
    promoted.heartbeat();
    promoted.expect_acquired();
    for client in &mut clients {
        client.expect_queued();
    }
}
