//! Peers that don't finish a frame or don't read.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::client::{Client, Event, Options};
use crate::harness::patience::{LONG_LEASE_MS, SILENCE, wait_until};
use crate::harness::wire::{self, ACQUIRE, HEARTBEAT};
use crate::{impatient_server, unique_name};

/// How much later than its limit a busy machine may end something.
const LATENESS_MAX: Duration = Duration::from_secs(8);

/// Checks a time that began before the server can have begun to count.
#[track_caller]
fn check_end(start: Instant, limit: Duration) {
    let elapsed = start.elapsed();
    assert!(elapsed >= limit, "{limit:?} were over after {elapsed:?}");
    assert!(elapsed < limit + LATENESS_MAX, "{limit:?} were over after {elapsed:?}");
}

/// A client whose receive buffer is small, so that answers block after a few thousand.
fn connect_slow_reader(server: SocketAddr) -> Client {
    Client::connect_with(
        server,
        Options { receive_buffer_bytes: Some(8 << 10), ..Options::default() },
    )
}

#[test]
fn a_connection_that_sends_nothing_is_closed_at_the_io_timeout_without_an_error() {
    let server = impatient_server();
    let start = Instant::now();
    let mut client = Client::connect(server.address);
    client.expect_eof();
    check_end(start, server.io_timeout);
}

#[test]
fn an_acquire_that_stops_at_any_byte_is_closed_at_the_io_timeout_without_an_error() {
    let server = impatient_server();
    let frame = wire::acquire(unique_name(), LONG_LEASE_MS);
    let start = Instant::now();
    let clients: Vec<Client> = (1..frame.len())
        .map(|len| {
            let mut client = Client::connect(server.address);
            client.send(&frame[..len]);
            client
        })
        .collect();
    for mut client in clients {
        client.expect_eof();
        check_end(start, server.io_timeout);
    }
}

#[test]
fn bytes_that_trickle_in_do_not_extend_the_time_for_the_first_frame() {
    let server = impatient_server();
    let name = format!("{:x<255}", unique_name());
    let frame = wire::acquire(name, LONG_LEASE_MS);
    let start = Instant::now();
    let mut client = Client::connect(server.address);
    let mut rest = frame.iter();
    // At this pace the frame would take 20 times as long as it may.
    let pause = server.io_timeout / 13;
    let end = loop {
        let byte = rest.next().expect("the server waits for the whole frame");
        if client.try_send(&[*byte]).is_err() {
            break Event::Reset;
        }
        match client.next_event(pause) {
            Event::Silence => {}
            end => break end,
        }
    };
    assert!(!matches!(end, Event::Frame(_)), "{end:?}");
    let elapsed = start.elapsed();
    assert!(elapsed >= server.io_timeout, "{elapsed:?}");
    // Whether the time runs from the connect or from the frame's first byte, it is over by now.
    assert!(elapsed < server.io_timeout + LATENESS_MAX, "{elapsed:?}");
}

#[test]
fn a_session_is_not_under_the_timeout_of_the_first_frame() {
    let server = impatient_server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.expect_silence(server.io_timeout + SILENCE);
    waiter.expect_silence(SILENCE);
    owner.expect_held(token);
    waiter.expect_queued();
}

#[test]
fn an_owner_that_reads_nothing_loses_the_lock_at_the_io_timeout() {
    let server = impatient_server();
    let name = unique_name();
    let mut slow = connect_slow_reader(server.address);
    slow.acquire(&name, LONG_LEASE_MS);
    let first = slow.expect_acquired();
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let start = Instant::now();
    slow.flood();
    assert!(waiter.expect_acquired() > first);
    check_end(start, server.io_timeout);
    slow.expect_end();
}

#[test]
fn an_owner_that_reads_nothing_loses_the_lock_at_its_lease_if_that_is_sooner() {
    let server = impatient_server();
    let name = unique_name();
    let lease = server.io_timeout / 4;
    let lease_ms = u32::try_from(lease.as_millis()).expect("a short time");
    let mut slow = connect_slow_reader(server.address);
    slow.acquire(&name, lease_ms);
    slow.expect_acquired();
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let start = Instant::now();
    slow.flood();
    waiter.expect_acquired();
    // The io-timeout, which began with the flood or later, can't have done it.
    let elapsed = start.elapsed();
    assert!(elapsed < server.io_timeout, "{elapsed:?}");
    slow.expect_end();
}

#[test]
fn a_waiter_that_reads_nothing_is_ended_at_the_io_timeout() {
    let server = impatient_server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut slow = connect_slow_reader(server.address);
    slow.acquire(&name, LONG_LEASE_MS);
    slow.expect_waiting();
    let mut next = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let start = Instant::now();
    slow.flood();
    // It reads nothing, so it can only see its end in that the kernel refuses what it sends.
    wait_until("the waiter is ended", || slow.is_refused_by_kernel());
    let elapsed = start.elapsed();
    assert!(elapsed >= server.io_timeout, "{elapsed:?}");
    owner.close();
    next.expect_acquired();
}

#[test]
fn others_are_served_while_some_do_not_read() {
    const SLOW: usize = 8;
    let server = impatient_server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    thread::scope(|scope| {
        let slow_readers: Vec<_> = (0..SLOW)
            .map(|_| {
                scope.spawn(|| {
                    let mut slow = connect_slow_reader(server.address);
                    slow.acquire(unique_name(), LONG_LEASE_MS);
                    slow.flood();
                    slow
                })
            })
            .collect();
        // From before the floods until after the end of all.
        let start = Instant::now();
        let mut slowest = Duration::ZERO;
        while start.elapsed() < server.io_timeout + Duration::from_secs(2) {
            let sent = Instant::now();
            owner.expect_held(token);
            waiter.expect_queued();
            slowest = slowest.max(sent.elapsed());
            thread::sleep(Duration::from_millis(5));
        }
        // A server that waits for a slow reader would wait for its whole io-timeout.
        assert!(slowest < server.io_timeout / 2, "{slowest:?}");
        for slow in slow_readers {
            slow.join().expect("a slow reader").expect_end();
        }
    });
    owner.close();
    waiter.expect_acquired();
}

#[test]
fn a_slow_reader_that_takes_its_answers_in_time_lives_on() {
    const HEARTBEATS: usize = 20_000;
    let server = impatient_server();
    let mut slow = connect_slow_reader(server.address);
    slow.acquire(unique_name(), LONG_LEASE_MS);
    let token = slow.expect_acquired();
    let sending = slow.send_meanwhile(vec![HEARTBEAT; HEARTBEATS]);
    // Stuck for a part of the io-timeout again and again, but never for the whole of it.
    for _ in 0..4 {
        thread::sleep(server.io_timeout / 4);
        for _ in 0..HEARTBEATS / 4 {
            assert_eq!(slow.expect_acquired(), token);
        }
    }
    assert_eq!(sending.join().expect("the sender"), HEARTBEATS);
    slow.expect_held(token);
}

#[test]
fn an_erring_client_that_reads_nothing_does_not_hold_its_lock() {
    let server = impatient_server();
    let name = unique_name();
    let mut slow = connect_slow_reader(server.address);
    slow.acquire(&name, LONG_LEASE_MS);
    slow.expect_acquired();
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let mut bytes = vec![HEARTBEAT; 10_000];
    bytes.push(ACQUIRE);
    slow.send(&bytes);
    // Its ERROR may be stuck behind its answers; the lock is not.
    waiter.expect_acquired();
    slow.expect_end();
}
