//! What goes to stderr, and that nobody must read it.

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::{Launch, Server};
use crate::harness::wire::{self, HEARTBEAT, code};

/// Something of all that could be logged: grants, errors of clients, a signal.
#[track_caller]
fn make_things_happen(server: &Server) {
    let address = server.address();
    let name = "a \"name\" with \\ and \n 2026-01-01T00:00:00Z INFO forged\u{1b}[31m";
    let (owner, _) = Client::owner(address, name, LONG_LEASE_MS);
    let mut waiter = Client::waiter(address, name, LONG_LEASE_MS);
    owner.close();
    waiter.expect_acquired();
    let (mut expiring, _) = Client::owner(address, "expiring", 1);
    expiring.expect_eof();
    for (bytes, code) in [
        (vec![HEARTBEAT], code::FIRST_NOT_ACQUIRE),
        (vec![0x7f], code::UNKNOWN_TYPE),
        (wire::acquire(name, 0), code::ZERO_LEASE),
        (wire::acquire(b"\xff\n", 1), code::NAME_NOT_UTF8),
    ] {
        let mut erring = Client::connect(address);
        erring.send(&bytes);
        erring.expect_refusal(code);
    }
    Client::connect(address).reset();
    server.signal(Signal::HUP);
    waiter.heartbeat();
    waiter.expect_acquired();
}

/// All lines of a server that was kept busy and then ended in good order.
#[track_caller]
fn lines_of(mut server: Server) -> Vec<String> {
    make_things_happen(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_exit().code(), Some(0));
    server.stderr_to_end()
}

#[test]
fn in_json_every_line_is_an_object_of_its_own() {
    let json = Launch::on_loopback().args(["--log-format", "json"]);
    for launch in [
        json.clone(),
        json.args(["--log-level", "debug"]),
        Launch::on_loopback().env("MONOLOCK_LOG_FORMAT", "json"),
    ] {
        let lines = lines_of(launch.start());
        for line in &lines {
            let value: serde_json::Value = serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("not JSON: {error}: {line}"));
            let fields = value.as_object().unwrap_or_else(|| panic!("no object: {line}"));
            for (name, value) in fields.iter().filter(|(name, _)| name.ends_with("_ms")) {
                assert!(value.is_u64(), "{name} is no number: {line}");
            }
        }
        assert!(lines.iter().any(|line| line.contains("listening on ")), "{lines:#?}");
    }
}

#[test]
fn in_text_a_line_has_its_time_and_level_and_no_name_forges_another_one() {
    let lines = lines_of(Launch::on_loopback().args(["--log-level", "debug"]).start());
    for line in &lines {
        let mut words = line.split_whitespace();
        let time = words.next().expect("a time");
        assert!(time.ends_with('Z') && time.contains('T'), "not in UTC, RFC 3339: {line}");
        let level = words.next().expect("a level");
        assert!(["DEBUG", "INFO", "WARN", "ERROR"].contains(&level), "{line}");
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        assert!(!time.starts_with("2026-01-01T00:00:00Z"), "forged: {line}");
    }
}

#[test]
fn the_level_says_how_much_is_logged() {
    let lines_at = |level| {
        let launch = Launch::on_loopback().args(["--log-level", level]);
        lines_of(launch.start_mute())
    };
    let count = |lines: &[String], level| lines.iter().filter(|l| l.contains(level)).count();
    let [debug, info, warn, error] = ["debug", "info", "warn", "error"].map(lines_at);
    assert!(count(&debug, "DEBUG") > 0 && count(&debug, "INFO") > 0, "{debug:#?}");
    assert!(count(&info, "DEBUG") == 0 && count(&info, "INFO") > 0, "{info:#?}");
    assert!(count(&warn, "DEBUG") + count(&warn, "INFO") == 0, "{warn:#?}");
    // Nothing that happened was an error of the server.
    assert!(error.is_empty(), "{error:#?}");
}

#[test]
fn a_peer_that_connects_and_leaves_without_a_byte_is_no_news() {
    let server = Launch::on_loopback().start();
    let before = server.stderr();
    for _ in 0..20 {
        Client::connect(server.address()).close();
        Client::connect(server.address()).reset();
    }
    // All of them are accepted before this one.
    Client::owner(server.address(), "last", LONG_LEASE_MS);
    assert_eq!(server.stderr(), before);
}

#[test]
fn a_stderr_that_is_closed_from_the_start_is_harmless() {
    let launch = Launch::on_loopback().args(["--log-level", "debug"]);
    let server = launch.after_shell("exec 2>&-").start_mute();
    let lines = lines_of(server);
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn a_stderr_whose_reader_goes_away_is_harmless() {
    let server =
        Launch::on_loopback().args(["--log-level", "debug"]).unread_after("listening on ").start();
    let lines = lines_of(server);
    let last = lines.last().expect("the lines up to the listening one");
    assert!(last.contains("listening on "), "{lines:#?}");
}
