//! Each ERROR, at the byte where it is due.

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, SILENCE};
use crate::harness::wire::{self, ACQUIRE, HEARTBEAT, VERSION, code};
use crate::{server, unique_name};

/// Sends the bytes but the last, to which there must be no answer yet, then the last one, with
/// which the refusal must come. Gives its reason.
#[track_caller]
fn expect_refusal_at_last_byte(client: &mut Client, bytes: &[u8], code: u8) -> String {
    let (last, before) = bytes.split_last().expect("at least one byte");
    client.send(before);
    client.expect_silence(SILENCE);
    client.send(&[*last]);
    client.expect_refusal(code)
}

/// A connection that has sent nothing is refused at the last of these bytes, and not before.
#[track_caller]
fn expect_first_frame_refused_at_last_byte(bytes: &[u8], code: u8) {
    let server = server();
    let mut client = Client::connect(server.address);
    let reason = expect_refusal_at_last_byte(&mut client, bytes, code);
    assert!(!reason.is_empty(), "an ERROR says to people what was wrong");
}

/// A connection that sends all of it at once is refused with this code.
#[track_caller]
fn expect_first_frame_refused(bytes: &[u8], code: u8) {
    let server = server();
    let mut client = Client::connect(server.address);
    client.send(bytes);
    client.expect_refusal(code);
}

#[test]
fn another_version_is_refused_as_soon_as_its_byte_is_there() {
    expect_first_frame_refused_at_last_byte(&[ACQUIRE, 2], code::UNSUPPORTED_VERSION);
}

#[test]
fn every_version_but_1_is_refused() {
    for version in (0..=u8::MAX).filter(|version| *version != VERSION) {
        expect_first_frame_refused(&[ACQUIRE, version], code::UNSUPPORTED_VERSION);
    }
}

#[test]
fn an_empty_name_is_refused_with_the_last_byte_of_the_header() {
    let header = wire::acquire_header(VERSION, LONG_LEASE_MS, 0);
    expect_first_frame_refused_at_last_byte(&header, code::EMPTY_NAME);
}

#[test]
fn a_name_longer_than_255_bytes_is_refused_without_the_name() {
    let header = wire::acquire_header(VERSION, LONG_LEASE_MS, 256);
    expect_first_frame_refused_at_last_byte(&header, code::NAME_TOO_LONG);
}

#[test]
fn every_length_beyond_255_is_too_long_whatever_its_low_byte() {
    for name_len in [256, 257, 511, 512, 0x0100, 0x01ff, 0x1000, 0xff00, u16::MAX] {
        let header = wire::acquire_header(VERSION, LONG_LEASE_MS, name_len);
        expect_first_frame_refused(&header, code::NAME_TOO_LONG);
    }
}

#[test]
fn a_name_that_is_not_utf_8_is_refused_with_its_last_byte() {
    let frame = wire::acquire(b"caf\xe9!", LONG_LEASE_MS);
    expect_first_frame_refused_at_last_byte(&frame, code::NAME_NOT_UTF8);
}

#[test]
fn every_way_of_not_being_utf_8_is_refused() {
    let names: [&[u8]; 12] = [
        b"\x80",             // a continuation byte alone
        b"\xff",             // a byte that is never there
        b"\xc3",             // cut short at the end of the name
        b"name\xe2\x82",     // the same after valid bytes
        b"\xc3name",         // cut short by another character
        b"\xc0\x80",         // NUL in two bytes
        b"\xe0\x80\xaf",     // a slash in three bytes
        b"\xed\xa0\x80",     // a surrogate
        b"\xf4\x90\x80\x80", // beyond the last code point
        b"\xf8\x88\x80\x80\x80",
        b"\xe9t\xe9", // Latin-1
        b"\xff\xfen\0",
    ];
    for name in names {
        expect_first_frame_refused(&wire::acquire(name, LONG_LEASE_MS), code::NAME_NOT_UTF8);
    }
}

#[test]
fn a_lease_of_zero_is_refused_with_the_last_byte_of_the_name() {
    // Not before: the name could still be the wrong one, which would come first.
    let frame = wire::acquire(unique_name(), 0);
    expect_first_frame_refused_at_last_byte(&frame, code::ZERO_LEASE);
}

#[test]
fn a_heartbeat_before_the_acquire_is_refused() {
    expect_first_frame_refused_at_last_byte(&[HEARTBEAT], code::FIRST_NOT_ACQUIRE);
}

#[test]
fn a_heartbeat_before_the_acquire_is_refused_also_if_the_acquire_follows() {
    let mut bytes = vec![HEARTBEAT];
    bytes.extend_from_slice(&wire::acquire(unique_name(), LONG_LEASE_MS));
    expect_first_frame_refused(&bytes, code::FIRST_NOT_ACQUIRE);
}

#[test]
fn the_version_is_checked_before_everything_else() {
    // Another version's frame can't be understood, so nothing else in it counts.
    for (lease_ms, name_len) in [(0, 0), (0, 256), (LONG_LEASE_MS, 0), (0, 4)] {
        let mut bytes = wire::acquire_header(9, lease_ms, name_len);
        bytes.extend_from_slice(b"\xff\xff\xff\xff");
        expect_first_frame_refused(&bytes, code::UNSUPPORTED_VERSION);
    }
}

#[test]
fn an_empty_name_is_noticed_before_a_lease_of_zero() {
    let header = wire::acquire_header(VERSION, 0, 0);
    expect_first_frame_refused_at_last_byte(&header, code::EMPTY_NAME);
}

#[test]
fn too_long_a_name_is_noticed_before_a_lease_of_zero() {
    let header = wire::acquire_header(VERSION, 0, 300);
    expect_first_frame_refused_at_last_byte(&header, code::NAME_TOO_LONG);
}

#[test]
fn too_long_a_name_is_noticed_before_its_bytes_that_are_not_utf_8() {
    let name = [0xff; 256];
    expect_first_frame_refused(&wire::acquire(name, LONG_LEASE_MS), code::NAME_TOO_LONG);
}

#[test]
fn a_name_that_is_not_utf_8_is_noticed_before_a_lease_of_zero() {
    expect_first_frame_refused_at_last_byte(&wire::acquire(b"ab\xff", 0), code::NAME_NOT_UTF8);
}

#[test]
fn every_byte_that_is_no_type_is_refused_before_the_acquire_and_named_in_the_reason() {
    let server = server();
    let types = [ACQUIRE, HEARTBEAT];
    for byte in (0..=u8::MAX).filter(|byte| !types.contains(byte)) {
        let mut client = Client::connect(server.address);
        client.send(&[byte]);
        let reason = client.expect_refusal(code::UNKNOWN_TYPE);
        expect_byte_named(&reason, byte);
    }
}

#[test]
fn a_byte_that_is_no_type_is_refused_in_the_queue_and_named_in_the_reason() {
    let server = server();
    let name = unique_name();
    let (_owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    for byte in [0x00, 0x03, 0x11, 0x12, 0x13, 0x7f, 0xab, 0xff] {
        let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
        waiter.send(&[byte]);
        let reason = waiter.expect_refusal(code::UNKNOWN_TYPE);
        expect_byte_named(&reason, byte);
    }
}

#[test]
fn a_byte_that_is_no_type_is_refused_to_an_owner_and_named_in_the_reason() {
    let server = server();
    for byte in [0x00, 0x03, 0x11, 0x12, 0x13, 0x7f, 0xab, 0xff] {
        let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
        owner.send(&[byte]);
        let reason = owner.expect_refusal(code::UNKNOWN_TYPE);
        expect_byte_named(&reason, byte);
    }
}

/// Both `0x0a` and `0xa` are hexadecimal.
#[track_caller]
fn expect_byte_named(reason: &str, byte: u8) {
    let lower = reason.to_lowercase();
    let is_named = lower.contains(&format!("{byte:02x}")) || lower.contains(&format!("{byte:#x}"));
    assert!(is_named, "the reason does not name {byte:#04x}: {reason}");
}

#[test]
fn a_second_acquire_of_an_owner_is_refused_at_its_type_byte() {
    let server = server();
    let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
    expect_refusal_at_last_byte(&mut owner, &[ACQUIRE], code::DUPLICATE_ACQUIRE);
}

#[test]
fn a_second_acquire_of_a_waiter_is_refused_at_its_type_byte() {
    let server = server();
    let name = unique_name();
    let (mut owner, token) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    expect_refusal_at_last_byte(&mut waiter, &[ACQUIRE], code::DUPLICATE_ACQUIRE);
    owner.expect_held(token);
}

#[test]
fn what_follows_the_type_byte_of_a_second_acquire_makes_no_difference() {
    let server = server();
    let tails: [&[u8]; 4] = [
        &[9],
        &wire::acquire_header(VERSION, 0, 0)[1..],
        &wire::acquire("other", LONG_LEASE_MS)[1..],
        &[0xff; 300],
    ];
    for tail in tails {
        let (mut owner, _) = Client::owner(server.address, &unique_name(), LONG_LEASE_MS);
        let mut bytes = vec![ACQUIRE];
        bytes.extend_from_slice(tail);
        owner.send(&bytes);
        owner.expect_refusal(code::DUPLICATE_ACQUIRE);
    }
}

#[test]
fn a_second_acquire_in_the_segment_of_the_first_is_refused_after_the_grant() {
    let server = server();
    let frame = wire::acquire(unique_name(), LONG_LEASE_MS);
    let mut client = Client::connect(server.address);
    client.send(&[frame.as_slice(), frame.as_slice()].concat());
    client.expect_acquired();
    client.expect_refusal(code::DUPLICATE_ACQUIRE);
}

#[test]
fn a_refused_claim_leaves_no_trace_at_the_lock() {
    let server = server();
    let name = unique_name();
    let mut client = Client::connect(server.address);
    client.acquire(&name, 0);
    client.expect_refusal(code::ZERO_LEASE);
    let (owner, _) = Client::owner(server.address, &name, LONG_LEASE_MS);
    let mut refused = Client::connect(server.address);
    refused.acquire(&name, 0);
    refused.expect_refusal(code::ZERO_LEASE);
    let mut waiter = Client::waiter(server.address, &name, LONG_LEASE_MS);
    owner.close();
    waiter.expect_acquired();
}
