//! What is a name, and which names are the same.

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::wire::Frame;
use crate::{server, unique_name};

/// Names that differ in any byte are different locks: each can be owned while the others are.
/// And each is one lock: a second claim on it waits.
#[track_caller]
fn expect_different(names: &[String]) {
    let server = server();
    let mut owners: Vec<(Client, u64)> =
        names.iter().map(|name| Client::owner(server.address, name, LONG_LEASE_MS)).collect();
    for name in names {
        Client::waiter(server.address, name, LONG_LEASE_MS);
    }
    for (owner, token) in &mut owners {
        owner.expect_held(*token);
    }
}

#[test]
fn a_name_of_one_byte_is_a_name() {
    // It can't be unique, so on a foreign server somebody may have it.
    let server = server();
    let mut client = Client::connect(server.address);
    client.acquire("m", LONG_LEASE_MS);
    let frame = client.read_frame();
    assert!(matches!(frame, Frame::Acquired(_) | Frame::Waiting), "{frame:?}");
}

#[test]
fn a_name_of_255_bytes_is_a_name_down_to_its_last_byte() {
    let name = format!("{:x<255}", unique_name());
    let other = format!("{}y", &name[..254]);
    let shorter = name[..254].to_owned();
    expect_different(&[name, other, shorter]);
}

#[test]
fn the_length_of_a_name_is_counted_in_bytes() {
    // 255 bytes of characters of three bytes each, but for the unique part.
    let unique = unique_name();
    let mut name = unique.clone();
    while name.len() + 3 <= 255 {
        name.push('€');
    }
    name.push_str(&"x".repeat(255 - name.len()));
    assert_eq!(name.len(), 255);
    expect_different(&[name, unique]);
}

#[test]
fn characters_of_two_three_and_four_bytes_are_kept() {
    let unique = unique_name();
    let endings = ["é", "ß", "€", "日本語", "🔒", "🔓", "\u{10ffff}", "\u{fffd}"];
    let names: Vec<String> = endings.iter().map(|end| format!("{unique}{end}")).collect();
    expect_different(&names);
}

#[test]
fn a_nul_byte_is_a_character_like_any_other() {
    let unique = unique_name();
    expect_different(&[
        unique.clone(),
        format!("{unique}\0"),
        format!("{unique}\0\0"),
        format!("{unique}\0a"),
        format!("{unique}\0b"),
        format!("\0{unique}"),
    ]);
}

#[test]
fn names_are_case_sensitive() {
    let unique = unique_name();
    expect_different(&[
        format!("{unique}/name"),
        format!("{unique}/Name"),
        format!("{unique}/NAME"),
        format!("{unique}/é"),
        format!("{unique}/É"),
    ]);
}

#[test]
fn names_are_not_trimmed() {
    let unique = unique_name();
    expect_different(&[
        unique.clone(),
        format!(" {unique}"),
        format!("{unique} "),
        format!("{unique}\t"),
        format!("{unique}\n"),
        format!("{unique}\r\n"),
        format!("{unique}\u{a0}"),
        format!("{unique}\u{200b}"),
        format!("\u{feff}{unique}"),
    ]);
}

#[test]
fn names_are_not_normalised() {
    let unique = unique_name();
    expect_different(&[
        format!("{unique}/\u{e9}"),
        format!("{unique}/e\u{301}"),
        format!("{unique}/\u{fb01}"),
        format!("{unique}/fi"),
        format!("{unique}/\u{212b}"),
        format!("{unique}/\u{c5}"),
    ]);
}

#[test]
fn names_are_not_paths_and_not_patterns() {
    let unique = unique_name();
    expect_different(&[
        format!("{unique}/a"),
        format!("{unique}//a"),
        format!("{unique}/./a"),
        format!("{unique}/b/../a"),
        format!("{unique}/a/"),
        format!("{unique}/*"),
        format!("{unique}/?"),
        format!("{unique}/%61"),
    ]);
}

#[test]
fn every_length_of_a_name_works() {
    let server = server();
    let unique = unique_name();
    let mut owners = Vec::new();
    for len in unique.len()..=255 {
        let name = format!("{unique:-<len$}");
        assert_eq!(name.len(), len);
        owners.push(Client::owner(server.address, &name, LONG_LEASE_MS));
    }
    for (mut owner, token) in owners {
        owner.expect_held(token);
    }
}
