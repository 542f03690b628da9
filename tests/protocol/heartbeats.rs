//! One answer each, in order.

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, SILENCE};
use crate::harness::wire::{self, HEARTBEAT};
use crate::{server, unique_name};

#[test]
fn an_owner_s_heartbeat_is_answered_with_the_token_of_its_grant() {
    let server = server();
    let (mut owner, token) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    // Grants in between don't change it.
    for _ in 0..5 {
        Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
        owner.expect_held(token);
    }
}

#[test]
fn a_waiter_s_heartbeat_is_answered_with_waiting_and_after_its_promotion_with_its_token() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    waiter.expect_queued();
    waiter.expect_queued();
    owner.close();
    let token = waiter.expect_acquired();
    waiter.expect_held(token);
    waiter.expect_held(token);
}

#[test]
fn without_a_heartbeat_there_is_no_answer() {
    let server = server();
    let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    owner.expect_silence(SILENCE);
}

#[test]
fn thousands_of_heartbeats_in_one_piece_get_an_answer_each() {
    const HEARTBEATS: usize = 5000;
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.send(&[HEARTBEAT; HEARTBEATS]);
    waiter.send(&[HEARTBEAT; HEARTBEATS]);
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
        waiter.expect_waiting();
    }
    owner.expect_silence(SILENCE);
    waiter.expect_silence(SILENCE);
}

#[test]
fn an_acquire_and_its_heartbeats_may_share_a_segment() {
    const HEARTBEATS: usize = 10;
    let server = server();
    let name = unique_name();
    let mut bytes = wire::acquire(&name, LONG_LEASE_MS);
    bytes.extend_from_slice(&[HEARTBEAT; HEARTBEATS]);

    let mut owner = Client::connect(server.address);
    owner.send(&bytes);
    let token = owner.expect_acquired();
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
    }
    owner.expect_silence(SILENCE);

    let mut waiter = Client::connect(server.address);
    waiter.send(&bytes);
    for _ in 0..=HEARTBEATS {
        waiter.expect_waiting();
    }
    waiter.expect_silence(SILENCE);
}

#[test]
fn an_acquire_and_thousands_of_heartbeats_in_one_piece_are_all_answered() {
    const HEARTBEATS: usize = 3000;
    let server = server();
    let mut owner = Client::connect(server.address);
    let mut bytes = wire::acquire(unique_name(), LONG_LEASE_MS);
    bytes.extend_from_slice(&[HEARTBEAT; HEARTBEATS]);
    owner.send(&bytes);
    let token = owner.expect_acquired();
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
    }
    owner.expect_silence(SILENCE);
}

#[test]
fn heartbeats_before_the_end_of_the_stream_are_answered_before_it_ends() {
    const HEARTBEATS: usize = 1000;
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    owner.send(&[HEARTBEAT; HEARTBEATS]);
    owner.half_close();
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
    }
    owner.expect_eof();
    Client::owner(server.address, &name, LONG_LEASE_MS);
}

#[test]
fn a_client_that_reads_late_gets_every_answer_that_it_is_owed() {
    // More answers than the small buffers of both ends hold, so the server has to hold back.
    const HEARTBEATS: usize = 300_000;
    let server = server();
    let (mut owner, token) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    let sending = owner.send_meanwhile(vec![HEARTBEAT; HEARTBEATS]);
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
    }
    owner.expect_silence(SILENCE);
    assert_eq!(sending.join().expect("the sender"), HEARTBEATS);
}
