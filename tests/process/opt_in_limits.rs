//! `--max-lease` and `--max-sessions-per-peer`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE};
use crate::harness::server::{Launch, Server};
use crate::harness::wire::{self, Frame, code};

/// Addresses of this machine that are different peers to the server.
const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 21), Ipv4Addr::new(127, 0, 0, 22)];

#[test]
fn a_lease_longer_than_the_limit_is_refused_and_others_are_not() {
    let server = Launch::on_loopback().args(["--max-lease", "10s"]).start();
    let (mut owner, token) = Client::owner(server.address(), "lock", 10_000);
    for lease_ms in [10_001, 60_000, u32::MAX] {
        let mut refused = Client::connect(server.address());
        refused.acquire("another lock", lease_ms);
        let reason = refused.expect_refusal(code::LEASE_TOO_LONG);
        assert!(!reason.is_empty(), "an ERROR says to people what was wrong");
    }
    Client::owner(server.address(), "another lock", 9_999);
    owner.expect_held(token);
}

#[test]
fn the_limit_of_the_lease_is_checked_after_all_that_is_wrong_on_any_server() {
    let server = Launch::on_loopback().args(["--max-lease", "10s"]).start();
    for (frame, code) in [
        (wire::acquire("", u32::MAX), code::EMPTY_NAME),
        (wire::acquire([b'x'; 256], u32::MAX), code::NAME_TOO_LONG),
        (wire::acquire(b"\xff", u32::MAX), code::NAME_NOT_UTF8),
        (wire::acquire("lock", 0), code::ZERO_LEASE),
        (wire::acquire("lock", u32::MAX), code::LEASE_TOO_LONG),
    ] {
        let mut client = Client::connect(server.address());
        client.send(&frame);
        client.expect_refusal(code);
    }
}

#[test]
fn without_the_option_there_is_no_limit_of_the_lease() {
    let server = Launch::on_loopback().start();
    Client::owner(server.address(), "lock", u32::MAX);
}

/// Connects from this peer and claims the lock.
#[track_caller]
fn claim(server: &Server, peer: Ipv4Addr, name: &str) -> Client {
    let mut client = Client::connect_from(server.address(), peer);
    // A server that refuses at once may have closed before this arrives.
    let _ = client.try_send(&wire::acquire(name, LONG_LEASE_MS));
    client
}

#[test]
fn a_peer_has_no_more_sessions_than_the_limit_and_others_are_not_disturbed() {
    let server = limited_server();
    let mut owner = claim(&server, PEERS[0], "lock");
    let token = owner.expect_acquired();
    let mut waiter = claim(&server, PEERS[0], "lock");
    waiter.expect_waiting();
    for _ in 0..3 {
        let mut refused = claim(&server, PEERS[0], "another lock");
        refused.expect_refusal(code::TOO_MANY_SESSIONS);
    }
    // Another address has its own count.
    let mut other = claim(&server, PEERS[1], "another lock");
    let other_token = other.expect_acquired();
    owner.expect_held(token);
    waiter.expect_queued();
    other.expect_held(other_token);
}

#[test]
fn a_session_that_ends_makes_room_for_another_one_of_its_peer() {
    let server = limited_server();
    let mut first = claim(&server, PEERS[0], "lock");
    first.expect_acquired();
    let mut second = claim(&server, PEERS[0], "lock");
    second.expect_waiting();
    for leave in [Client::close, Client::reset] {
        leave(first);
        second.expect_acquired();
        let third = claim_patiently(&server, "lock");
        claim(&server, PEERS[0], "lock").expect_refusal(code::TOO_MANY_SESSIONS);
        (first, second) = (second, third);
    }
}

#[test]
fn a_refused_connection_does_not_count_itself() {
    let server = limited_server();
    let mut owner = claim(&server, PEERS[0], "lock");
    owner.expect_acquired();
    let mut waiter = claim(&server, PEERS[0], "lock");
    waiter.expect_waiting();
    for _ in 0..20 {
        claim(&server, PEERS[0], "lock").expect_refusal(code::TOO_MANY_SESSIONS);
    }
    waiter.close();
    claim_patiently(&server, "lock");
}

#[test]
fn without_the_option_there_is_no_limit_of_sessions() {
    let server = Launch::on_loopback().start();
    let sessions: Vec<(Client, u64)> = (0..100)
        .map(|number| Client::owner(server.address(), &format!("lock {number}"), LONG_LEASE_MS))
        .collect();
    for (mut owner, token) in sessions {
        owner.expect_held(token);
    }
}

fn limited_server() -> Server {
    Launch::on_loopback().args(["--max-sessions-per-peer", "2"]).start()
}

/// Claims a lock that is taken, again and again for as long as the server still counts a session
/// that has just ended: that is a condition of the server, so a client may try again.
#[track_caller]
fn claim_patiently(server: &Server, name: &str) -> Client {
    let start = Instant::now();
    loop {
        let mut client = claim(server, PEERS[0], name);
        match client.read_frame() {
            Frame::Waiting => return client,
            Frame::Error { code, .. } if code == code::TOO_MANY_SESSIONS => {}
            frame => panic!("{frame:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "the ended session is counted for ever");
    }
}

#[test]
fn the_peer_of_an_ipv4_client_on_a_dual_stack_socket_is_its_ipv4_address() {
    let server = Launch::on("[::]:0").args(["--max-sessions-per-peer", "1"]).start();
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, server.address().port()));
    let mut sessions: Vec<Client> =
        PEERS.iter().map(|peer| Client::connect_from(v4, *peer)).collect();
    for (number, client) in sessions.iter_mut().enumerate() {
        client.acquire(format!("lock {number}"), LONG_LEASE_MS);
        client.expect_acquired();
    }
    let mut refused = Client::connect_from(v4, PEERS[0]);
    let _ = refused.try_send(&wire::acquire("lock", LONG_LEASE_MS));
    refused.expect_refusal(code::TOO_MANY_SESSIONS);
}
