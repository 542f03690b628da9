//! Silence ends a session, and nothing else of the kind does.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, SILENCE};
use crate::harness::wire::Frame;
use crate::{server, unique_name};

/// Leases of which several could end within one turn of an event loop, or one in each.
const LEASES_MS: [u32; 8] = [1, 2, 7, 20, 50, 120, 300, 700];

/// How much later than the lease's end a busy machine may tell us of it.
const LATENESS_MAX: Duration = Duration::from_secs(8);

/// Checks a time that began before the server can have begun to count.
#[track_caller]
fn check_expiry(start: Instant, lease_ms: u32) {
    let elapsed = start.elapsed();
    let lease = Duration::from_millis(lease_ms.into());
    assert!(elapsed >= lease, "a lease of {lease:?} ended after {elapsed:?}");
    let limit = lease + LATENESS_MAX;
    assert!(elapsed < limit, "a lease of {lease:?} ended after {elapsed:?}");
}

/// Runs the check for each lease in a thread of its own, so that no measurement waits for another.
fn for_each_lease(check: impl Fn(SocketAddr, u32) + Sync) {
    let server = server();
    let (address, check) = (server.address, &check);
    thread::scope(|scope| {
        for lease_ms in LEASES_MS {
            scope.spawn(move || check(address, lease_ms));
        }
    });
}

#[test]
fn a_silent_owner_is_ended_at_its_lease_and_never_before() {
    for_each_lease(|address, lease_ms| {
        let mut owner = Client::connect(address);
        let start = Instant::now();
        owner.acquire(unique_name(), lease_ms);
        owner.expect_acquired();
        owner.expect_eof();
        check_expiry(start, lease_ms);
    });
}

#[test]
fn a_silent_waiter_is_ended_at_its_lease_and_never_before() {
    for_each_lease(|address, lease_ms| {
        let name = unique_name();
        let (mut owner, token) = Client::owner(address, &name, LONG_LEASE_MS);
        let mut waiter = Client::connect(address);
        let start = Instant::now();
        waiter.acquire(&name, lease_ms);
        waiter.expect_waiting();
        waiter.expect_eof();
        check_expiry(start, lease_ms);
        owner.expect_held(token);
    });
}

#[test]
fn the_lock_of_a_silent_owner_goes_to_the_next_at_the_lease_s_end_and_never_before() {
    for_each_lease(|address, lease_ms| {
        let name = unique_name();
        let mut owner = Client::connect(address);
        let start = Instant::now();
        owner.acquire(&name, lease_ms);
        let first = owner.expect_acquired();
        let mut next = Client::connect(address);
        next.acquire(&name, LONG_LEASE_MS);
        // With the shortest leases the owner may be gone before the next one comes.
        let second = match next.read_frame() {
            Frame::Waiting => next.expect_acquired(),
            Frame::Acquired(token) => token,
            other => panic!("{other:?}"),
        };
        check_expiry(start, lease_ms);
        assert!(second > first, "{second} after {first}");
        owner.expect_eof();
    });
}

#[test]
fn the_lease_counts_from_the_last_heartbeat() {
    for_each_lease(|address, lease_ms| {
        // Not the shortest ones: a busy machine could be too late with the heartbeat.
        let lease_ms = lease_ms + 400;
        let (mut owner, token) = Client::owner(address, &unique_name(), lease_ms);
        thread::sleep(Duration::from_millis(u64::from(lease_ms) / 3));
        let start = Instant::now();
        owner.expect_held(token);
        owner.expect_eof();
        check_expiry(start, lease_ms);
    });
}

#[test]
fn heartbeats_keep_owner_and_waiter_alive_far_beyond_their_leases() {
    const LEASE_MS: u32 = 1200;
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LEASE_MS);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3 * u64::from(LEASE_MS)) {
        thread::sleep(Duration::from_millis(100));
        owner.expect_held(token);
        waiter.expect_queued();
    }
    owner.close();
    assert!(waiter.expect_acquired() > token);
}

#[test]
fn a_waiter_that_expires_does_not_disturb_those_around_it() {
    const LEASE_MS: u32 = 100;
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut before = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let mut silent = Client::waiter(server.address, &name, LEASE_MS);
    let mut behind = Client::waiter(server.address, &name, LONG_LEASE_MS);
    silent.expect_eof();
    owner.expect_held(token);
    before.expect_queued();
    behind.expect_queued();
    owner.close();
    before.expect_acquired();
    before.close();
    behind.expect_acquired();
}

#[test]
fn each_session_has_the_lease_that_it_chose_itself() {
    // The longest come first, so that no order of arrival explains the order of the ends.
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let waiters: Vec<(Client, Instant, u32)> = [900, 500, 100]
        .into_iter()
        .map(|lease_ms| {
            let start = Instant::now();
            let waiter = Client::waiter(server.address, &name, lease_ms);
            (waiter, start, lease_ms)
        })
        .collect();
    for (mut waiter, start, lease_ms) in waiters.into_iter().rev() {
        waiter.expect_eof();
        check_expiry(start, lease_ms);
    }
    owner.expect_held(token);
}

#[test]
fn a_promotion_does_not_restart_the_lease() {
    const LEASE_MS: u32 = 2000;
    let lease = Duration::from_millis(LEASE_MS.into());
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::connect(server.address);
    let start = Instant::now();
    waiter.acquire(&name, LEASE_MS);
    waiter.expect_waiting();
    thread::sleep(lease / 2);
    let promotion = Instant::now();
    owner.close();
    waiter.expect_acquired();
    waiter.expect_eof();
    check_expiry(start, LEASE_MS);
    let since = promotion.elapsed();
    assert!(since < lease, "ended {since:?} after the promotion");
}

#[test]
fn a_lease_of_one_millisecond_is_granted_and_handed_on() {
    let server = server();
    let name = unique_name();
    let mut last = 0;
    for _ in 0..20 {
        let (mut owner, token) = Client::owner(server.address, &name, 1);
        assert!(token > last, "{token} after {last}");
        last = token;
        owner.expect_eof();
    }
}

#[test]
fn the_longest_lease_is_granted_and_kept() {
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, u32::MAX);
    let mut waiter = Client::waiter(server.address, &name, u32::MAX);
    owner.expect_silence(SILENCE);
    waiter.expect_silence(SILENCE);
    owner.expect_held(token);
    waiter.expect_queued();
    owner.close();
    waiter.expect_acquired();
}

#[test]
fn the_bytes_of_the_lease_are_read_in_network_order() {
    // 0x0100 ms read the other way round is a lease of 65,536 s, beyond the patience of the test.
    let server = server();
    let mut owner = Client::connect(server.address);
    let start = Instant::now();
    owner.acquire(unique_name(), 0x0000_0100);
    owner.expect_acquired();
    owner.expect_eof();
    check_expiry(start, 0x0000_0100);
    assert!(Duration::from_millis(0x0001_0000) > PATIENCE);
}

#[test]
fn many_leases_that_end_together_all_end() {
    const LEASE_MS: u32 = 700;
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let start = Instant::now();
    let silent: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.acquire(&name, LEASE_MS);
            client
        })
        .collect();
    for mut client in silent {
        client.expect_waiting();
        client.expect_eof();
    }
    check_expiry(start, LEASE_MS);
    owner.expect_held(token);
}
