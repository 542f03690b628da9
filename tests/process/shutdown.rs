//! SIGTERM and SIGINT, once and twice.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::client::{Client, Options};
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, wait_until};
use crate::harness::procfs;
use crate::harness::server::{Launch, Server};
use crate::harness::wire::{self, code};

/// On return the server has accepted every connection that is there.
#[track_caller]
fn wait_for_accepts(server: &Server) {
    wait_until("all connections are accepted", || procfs::accept_queue_len(server.address()) == 0);
}

#[track_caller]
fn expect_everyone_told(signal: Signal) {
    // The silent ones must still be there when the signal comes, however busy the machine is.
    let mut server = Launch::on_loopback().args(["--io-timeout", "1h"]).start();
    let address = server.address();
    let (mut owner, _) = Client::owner(address, "lock", LONG_LEASE_MS);
    let mut waiters: Vec<Client> =
        (0..5).map(|_| Client::waiter(address, "lock", LONG_LEASE_MS)).collect();
    let (mut other, _) = Client::owner(address, "other lock", LONG_LEASE_MS);
    let mut silent = Client::connect(address);
    let mut unfinished = Client::connect(address);
    unfinished.send(&wire::acquire("lock", LONG_LEASE_MS)[..7]);
    wait_for_accepts(&server);

    server.signal(signal);
    for client in &mut waiters {
        // Nothing comes before it, so nobody was promoted.
        client.expect_refusal(code::SHUTTING_DOWN);
    }
    for client in [&mut owner, &mut other, &mut silent, &mut unfinished] {
        client.expect_refusal(code::SHUTTING_DOWN);
    }
    drop((owner, other, silent, unfinished, waiters));
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn sigterm_tells_everyone_promotes_nobody_and_ends_with_status_0() {
    expect_everyone_told(Signal::TERM);
}

#[test]
fn sigint_tells_everyone_promotes_nobody_and_ends_with_status_0() {
    expect_everyone_told(Signal::INT);
}

#[test]
fn a_server_without_clients_ends_at_once() {
    let mut server = Launch::on_loopback().start();
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    // Nothing has to be waited for: the io-timeout of 5 s has no part in it.
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}

#[test]
fn no_waiter_is_promoted_when_the_owner_leaves_as_soon_as_it_is_told() {
    let mut server = Launch::on_loopback().start();
    // Many locks, so that the owners of some leave while others are not yet told.
    let mut claims: Vec<(Client, Client)> = (0..100)
        .map(|number| {
            let name = format!("lock {number}");
            let (owner, _) = Client::owner(server.address(), &name, LONG_LEASE_MS);
            (owner, Client::waiter(server.address(), &name, LONG_LEASE_MS))
        })
        .collect();
    server.signal(Signal::TERM);
    let mut waiters = Vec::new();
    for (mut owner, waiter) in claims.drain(..) {
        owner.expect_error(code::SHUTTING_DOWN);
        owner.reset();
        waiters.push(waiter);
    }
    for waiter in &mut waiters {
        waiter.expect_refusal(code::SHUTTING_DOWN);
    }
    drop(waiters);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn nobody_new_gets_in_once_the_shutdown_has_begun() {
    let mut server = Launch::on_loopback().start();
    let (mut owner, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    server.signal(Signal::TERM);
    // Who is told to reconnect at once must not run into the server that is going.
    owner.expect_refusal(code::SHUTTING_DOWN);
    let connecting = TcpStream::connect_timeout(&server.address(), PATIENCE);
    assert!(connecting.is_err(), "{connecting:?}");
    drop(owner);
    assert_eq!(server.wait_for_exit().code(), Some(0));
}

#[test]
fn clients_that_neither_read_nor_close_do_not_hold_the_end_up_for_longer_than_the_io_timeout() {
    let mut server = Launch::on_loopback().args(["--io-timeout", "1s"]).start();
    let (_deaf, _stuck) = (deaf_client(&server), stuck_client(&server));
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    // One timeout for what was stuck before, one for the farewell, and something for a busy
    // machine.
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(6), "{elapsed:?}");
}

#[test]
fn a_second_sigterm_ends_it_at_once_with_status_143() {
    expect_cut_short(Signal::TERM, Signal::TERM, 128 + 15);
}

#[test]
fn a_second_sigint_ends_it_at_once_with_status_130() {
    expect_cut_short(Signal::INT, Signal::INT, 128 + 2);
}

#[test]
fn the_number_of_the_second_signal_counts() {
    expect_cut_short(Signal::TERM, Signal::INT, 128 + 2);
}

/// The second signal comes while the shutdown waits for clients that neither read nor close.
#[track_caller]
fn expect_cut_short(first: Signal, second: Signal, exit_code: i32) {
    let mut server = Launch::on_loopback().args(["--io-timeout", "1h"]).start();
    let (mut witness, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let (_deaf, _stuck) = (deaf_client(&server), stuck_client(&server));
    server.signal(first);
    witness.expect_error(code::SHUTTING_DOWN);
    server.signal(second);
    assert_eq!(server.wait_for_exit().code(), Some(exit_code));
}

/// A client with an empty connection that doesn't react to anything.
fn deaf_client(server: &Server) -> Client {
    Client::owner(server.address(), "deaf", LONG_LEASE_MS).0
}

/// A client whose answers fill the buffers of both ends, so that nothing reaches it any more.
fn stuck_client(server: &Server) -> Client {
    let mut client = Client::connect_with(
        server.address(),
        Options { receive_buffer_bytes: Some(8 << 10), ..Options::default() },
    );
    client.acquire("stuck", LONG_LEASE_MS);
    client.expect_acquired();
    assert!(client.flood(), "the flood ended the connection");
    client
}
