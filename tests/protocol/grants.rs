//! Who gets a lock, and with which token.

use std::thread;

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::{server, unique_name};

#[test]
fn the_first_claim_on_a_free_lock_is_granted_at_once() {
    let server = server();
    let mut client = Client::connect(server.address);
    client.acquire(unique_name(), LONG_LEASE_MS);
    client.expect_acquired();
}

#[test]
fn a_second_claim_waits_and_is_told_so() {
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    waiter.expect_queued();
    owner.expect_held(token);
}

#[test]
fn locks_of_different_names_have_nothing_to_do_with_each_other() {
    let server = server();
    let claims: Vec<_> =
        (0..20).map(|_| Client::owner(server.address, &unique_name(), LONG_LEASE_MS)).collect();
    for (mut owner, token) in claims {
        owner.expect_held(token);
    }
}

#[test]
fn a_lock_that_was_released_is_free_again_for_a_first_claim() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.close();
    waiter.expect_acquired();
    waiter.half_close();
    // The server ends its side after the release, so the lock is idle when this is seen.
    waiter.expect_eof();
    Client::owner(server.address, &name, LONG_LEASE_MS);
}

#[test]
fn one_name_can_be_claimed_twice_by_one_peer_and_the_second_claim_waits() {
    // One connection is one claim, whoever makes it: there is no re-entrance.
    let server = server();
    let name = unique_name();
    let (owner, first) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.close();
    assert!(waiter.expect_acquired() > first);
}

#[test]
fn tokens_grow_from_grant_to_grant_of_one_lock() {
    let server = server();
    let name = unique_name();
    let (mut owner, mut last) = Client::owner(server.address, &name, LONG_LEASE_MS);
    for _ in 0..50 {
        let mut next = Client::waiter(server.address, &name, LONG_LEASE_MS);
        owner.close();
        let token = next.expect_acquired();
        assert!(token > last, "{token} after {last}");
        (owner, last) = (next, token);
    }
}

#[test]
fn tokens_grow_from_grant_to_grant_over_all_locks() {
    let server = server();
    let mut last = 0;
    let mut owners = Vec::new();
    for _ in 0..200 {
        let (owner, token) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
        assert!(token > last, "{token} after {last}");
        last = token;
        owners.push(owner);
    }
}

#[test]
fn no_token_is_given_twice_to_clients_that_come_at_the_same_time() {
    const THREADS: usize = 8;
    const GRANTS_EACH: usize = 50;
    let server = server();
    let address = server.address;
    let mut tokens: Vec<u64> = thread::scope(|scope| {
        let claimants: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(move || grants_in_a_row(address, GRANTS_EACH)))
            .collect();
        claimants.into_iter().flat_map(|claimant| claimant.join().expect("a claimant")).collect()
    });
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), THREADS * GRANTS_EACH, "a token was given twice");
}

/// The tokens of grants of different locks, each asked for after the one before was given.
fn grants_in_a_row(server: std::net::SocketAddr, count: usize) -> Vec<u64> {
    let tokens: Vec<u64> =
        (0..count).map(|_| Client::owner(server, &unique_name(), LONG_LEASE_MS).1).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    tokens
}
