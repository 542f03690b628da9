//! An ERROR reaches its client; what an erring client can't do.

use std::time::{Duration, Instant};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, SILENCE, wait_until};
use crate::harness::wire::{self, ACQUIRE, Frame, HEARTBEAT, code};
use crate::{impatient_server, server, unique_name};

/// What the server must at least take from a client after the ERROR.
const DRAIN_BYTES: usize = 1 << 20;

/// The server must take all of it, and the client must see the ERROR and a clean end, though it
/// begins to read only after everything was sent.
#[track_caller]
fn expect_refusal_despite_sending(client: &mut Client, bytes: Vec<u8>, code: u8) {
    let len = bytes.len();
    let sending = client.send_meanwhile(bytes);
    let sent = sending.join().expect("the sender");
    assert_eq!(sent, len, "the server took only {sent} bytes");
    client.expect_refusal(code);
}

#[test]
fn an_error_reaches_a_client_that_is_still_sending_a_mebibyte() {
    let server = server();
    let mut bytes = vec![0x7f];
    bytes.resize(DRAIN_BYTES, 0x7f);
    let mut client = Client::connect(server.address);
    expect_refusal_despite_sending(&mut client, bytes, code::UNKNOWN_TYPE);
}

#[test]
fn an_error_reaches_an_owner_that_is_still_sending_a_mebibyte() {
    let server = server();
    let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    let bytes = vec![ACQUIRE; DRAIN_BYTES];
    expect_refusal_despite_sending(&mut owner, bytes, code::DUPLICATE_ACQUIRE);
}

#[test]
fn an_error_from_the_header_reaches_a_client_that_is_still_sending_the_name() {
    let server = server();
    let mut bytes = wire::acquire(vec![b'n'; usize::from(u16::MAX)], LONG_LEASE_MS);
    bytes.resize(DRAIN_BYTES, HEARTBEAT);
    let mut client = Client::connect(server.address);
    expect_refusal_despite_sending(&mut client, bytes, code::NAME_TOO_LONG);
}

#[test]
fn an_error_reaches_many_clients_that_all_are_still_sending() {
    const CLIENTS: usize = 8;
    let server = server();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(server.address)).collect();
    let sending: Vec<_> =
        clients.iter().map(|client| client.send_meanwhile(vec![0x7f; DRAIN_BYTES / 2])).collect();
    for sender in sending {
        assert_eq!(sender.join().expect("the sender"), DRAIN_BYTES / 2);
    }
    for client in &mut clients {
        client.expect_refusal(code::UNKNOWN_TYPE);
    }
}

#[test]
fn an_error_reaches_a_client_that_has_already_ended_its_stream() {
    let server = server();
    let mut client = Client::connect(server.address);
    client.send(&[HEARTBEAT]);
    client.half_close();
    client.expect_refusal(code::FIRST_NOT_ACQUIRE);
}

#[test]
fn the_answers_that_are_owed_come_before_the_error() {
    const HEARTBEATS: usize = 1000;
    let server = server();
    let name = unique_name();
    let mut bytes = wire::acquire(&name, LONG_LEASE_MS);
    bytes.extend_from_slice(&[HEARTBEAT; HEARTBEATS]);
    bytes.push(0x7f);

    let mut owner = Client::connect(server.address);
    owner.send(&bytes);
    let token = owner.expect_acquired();
    for _ in 0..HEARTBEATS {
        assert_eq!(owner.expect_acquired(), token);
    }
    owner.expect_refusal(code::UNKNOWN_TYPE);

    let (_owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::connect(server.address);
    waiter.send(&bytes);
    for _ in 0..=HEARTBEATS {
        waiter.expect_waiting();
    }
    waiter.expect_refusal(code::UNKNOWN_TYPE);
}

#[test]
fn nothing_is_answered_after_an_error() {
    let server = server();
    let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    owner.send(&[0x7f, HEARTBEAT, HEARTBEAT, ACQUIRE, 0x7e]);
    // One ERROR and, next to it, the end.
    owner.expect_refusal(code::UNKNOWN_TYPE);
}

#[test]
fn an_owner_that_errs_releases_the_lock_at_once() {
    let server = server();
    let name = unique_name();
    let (mut owner, first) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.send(&[0x7f]);
    // The owner has neither read its ERROR nor closed.
    assert!(waiter.expect_acquired() > first);
    owner.expect_refusal(code::UNKNOWN_TYPE);
}

#[test]
fn an_owner_that_errs_and_goes_on_sending_releases_the_lock_at_once() {
    let server = server();
    let name = unique_name();
    let (owner, first) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let sending = owner.send_meanwhile(vec![0x7f; 4 * DRAIN_BYTES]);
    assert!(waiter.expect_acquired() > first);
    sending.join().expect("the sender");
}

#[test]
fn a_waiter_that_errs_leaves_the_queue_at_once() {
    let server = server();
    let name = unique_name();
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut erring = Client::waiter(server.address, &name, LONG_LEASE_MS);
    let mut next = Client::waiter(server.address, &name, LONG_LEASE_MS);
    erring.send(&[0x7f]);
    erring.expect_error(code::UNKNOWN_TYPE);
    owner.close();
    next.expect_acquired();
}

#[test]
fn an_erring_client_that_never_hangs_up_is_cut_off() {
    // The end of the server's side is seen at once; that the whole connection is gone shows in that
    // the kernel refuses what the client sends.
    let server = impatient_server();
    let mut client = Client::connect(server.address);
    client.send(&[0x7f]);
    client.expect_refusal(code::UNKNOWN_TYPE);
    wait_until("the server has closed the connection", || client.try_send(&[0]).is_err());
}

#[test]
fn an_erring_client_that_sends_for_ever_is_cut_off() {
    let server = impatient_server();
    let mut client = Client::connect(server.address);
    let bytes = vec![0x7f; 64 << 10];
    let start = Instant::now();
    while client.try_send(&bytes).is_ok() {
        // The limit of a drain and, for a busy machine, some seconds more.
        let limit = server.io_timeout + Duration::from_secs(5);
        assert!(start.elapsed() < limit, "it still takes bytes after its ERROR");
    }
}

#[test]
fn sessions_of_other_locks_and_of_the_same_lock_are_not_disturbed_by_errors() {
    let server = server();
    let name = unique_name();
    let (mut bystander, other_token) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    for bytes in [
        wire::acquire(&name, 0),
        wire::acquire(b"\xff", LONG_LEASE_MS),
        vec![HEARTBEAT],
        vec![0x7f; 100],
        vec![ACQUIRE, 7],
    ] {
        let mut erring = Client::connect(server.address);
        erring.send(&bytes);
        let frame = erring.read_frame();
        assert!(matches!(frame, Frame::Error { .. }), "{frame:?}");
        erring.expect_eof();
    }
    bystander.expect_held(other_token);
    owner.expect_held(token);
    waiter.expect_queued();
    waiter.expect_silence(SILENCE);
}
