//! Flags, environment, defaults; what a bad value leads to.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::{Launch, Server};

/// Addresses that differ from the default and from each other.
const FIRST: &str = "127.0.0.11:0";
const SECOND: &str = "127.0.0.12:0";

/// A setting with its default, as `--help` must show it.
struct Setting {
    flag: &'static str,
    variable: &'static str,
    default: &'static str,
}

const SETTINGS: [Setting; 6] = [
    setting("--listen", "MONOLOCK_LISTEN_ADDRESS", "0.0.0.0:7070"),
    setting("--io-timeout", "MONOLOCK_IO_TIMEOUT", "5s"),
    setting("--log-level", "MONOLOCK_LOG_LEVEL", "info"),
    setting("--log-format", "MONOLOCK_LOG_FORMAT", "text"),
    setting("--max-lease", "MONOLOCK_MAX_LEASE", "off"),
    setting("--max-sessions-per-peer", "MONOLOCK_MAX_SESSIONS_PER_PEER", "off"),
];

const fn setting(flag: &'static str, variable: &'static str, default: &'static str) -> Setting {
    Setting { flag, variable, default }
}

/// Values that no reading of the specification permits.
const BAD_VALUES: [(&str, &[&str]); 6] = [
    (
        "--listen",
        &[
            "nonsense",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:port",
            "127.0.0.1:65536",
            "127.0.0.1:-1",
            "300.0.0.1:0",
            "[::1:0",
        ],
    ),
    (
        "--io-timeout",
        &[
            "5",
            "s",
            "abc",
            "5 parsecs",
            "5x",
            "-5s",
            "5s5",
            "0s",
            "1e3s",
            // More than any number of the kind can hold.
            "99999999999999999999h",
        ],
    ),
    ("--log-level", &["loud", "INFO ", "5", "warn,debug"]),
    ("--log-format", &["xml", "jsonl", "1"]),
    ("--max-lease", &["5", "abc", "-5s"]),
    ("--max-sessions-per-peer", &["abc", "-1", "1.5", "99999999999999999999"]),
];

#[track_caller]
fn expect_ip(server: &Server, address: &str) {
    let expected: SocketAddr = address.parse().expect("an address");
    assert_eq!(server.address().ip(), expected.ip());
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
}

#[test]
fn a_flag_has_one_dash_or_two_and_its_value_behind_a_space_or_an_equals_sign() {
    let equals = |flag: &str| vec![format!("{flag}={FIRST}")];
    let space = |flag: &str| vec![flag.to_owned(), FIRST.to_owned()];
    for args in [space("--listen"), space("-listen"), equals("--listen"), equals("-listen")] {
        expect_ip(&Launch::bare().args(args).start(), FIRST);
    }
}

#[test]
fn every_flag_can_be_written_with_one_dash() {
    let server = Launch::bare()
        .args(["-listen", FIRST, "-io-timeout", "3s", "-log-level=info"])
        .args(["-log-format", "text", "-max-lease=1h", "-max-sessions-per-peer", "9"])
        .start();
    expect_ip(&server, FIRST);
}

#[test]
fn serve_is_what_happens_without_a_subcommand() {
    let server = Launch::bare().args(["serve", "--listen", FIRST]).start();
    expect_ip(&server, FIRST);
    let server = Launch::bare().args(["serve", "-listen", FIRST]).start();
    expect_ip(&server, FIRST);
}

#[test]
fn a_setting_comes_from_its_variable_if_there_is_no_flag() {
    let server = Launch::bare().env("MONOLOCK_LISTEN_ADDRESS", FIRST).start();
    expect_ip(&server, FIRST);
}

#[test]
fn a_flag_beats_its_variable() {
    let server = Launch::on(SECOND).env("MONOLOCK_LISTEN_ADDRESS", FIRST).start();
    expect_ip(&server, SECOND);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let mut launch = Launch::on(FIRST);
    for setting in &SETTINGS {
        launch = launch.env(setting.variable, "");
    }
    expect_ip(&launch.start(), FIRST);
}

#[test]
fn the_io_timeout_is_the_default_the_variable_s_or_the_flag_s() {
    /// How long a connection that says nothing is let be.
    fn patience_of(launch: &Launch) -> Duration {
        let server = launch.start();
        let start = Instant::now();
        Client::connect(server.address()).expect_eof();
        start.elapsed()
    }
    let unset = Launch::on_loopback();
    let by_variable = unset.clone().env("MONOLOCK_IO_TIMEOUT", "300ms");
    let by_flag = by_variable.clone().args(["--io-timeout", "1200ms"]);
    let [unset, by_variable, by_flag] = std::thread::scope(|scope| {
        [&unset, &by_variable, &by_flag]
            .map(|launch| scope.spawn(|| patience_of(launch)))
            .map(|thread| thread.join().expect("a measurement"))
    });
    let (ms300, ms1200) = (Duration::from_millis(300), Duration::from_millis(1200));
    assert!(by_variable >= ms300 && by_variable < ms1200, "{by_variable:?}");
    assert!(by_flag >= ms1200 && by_flag < Duration::from_secs(5), "{by_flag:?}");
    assert!(unset >= Duration::from_secs(5), "{unset:?}");
}

#[test]
fn durations_are_written_with_units_also_several_of_them() {
    for duration in ["250ms", "5s", "1m", "1h", "1m30s", "1h2m3s4ms"] {
        let server = Launch::on_loopback().args(["--io-timeout", duration]).start();
        Client::owner(server.address(), "lock", LONG_LEASE_MS);
    }
}

#[test]
fn a_bad_value_of_a_flag_is_one_line_that_names_the_flag_and_status_2() {
    for (flag, values) in BAD_VALUES {
        // An empty variable is no value at all; an empty flag is one, and a bad one.
        for value in values.iter().chain(&[""]) {
            for args in [
                vec![flag.to_owned(), (*value).to_owned()],
                vec![format!("{}={value}", &flag[1..])],
            ] {
                // clap and others take a value that begins with a dash for a flag.
                if args.len() == 2 && value.starts_with('-') {
                    continue;
                }
                let finished = Launch::bare().args(args).run();
                let line = finished.expect_one_line(2);
                assert!(line.contains(&flag[2..]), "{value:?}: {line}");
            }
        }
    }
}

#[test]
fn a_bad_value_of_a_variable_is_one_line_that_names_the_variable_and_status_2() {
    for (flag, values) in BAD_VALUES {
        let setting = SETTINGS.iter().find(|setting| setting.flag == flag);
        let variable = setting.expect("every flag has a variable").variable;
        for value in values {
            let finished = Launch::bare().env(variable, value).run();
            let line = finished.expect_one_line(2);
            assert!(line.contains(variable), "{value:?}: {line}");
        }
    }
}

#[test]
fn a_value_that_would_forge_a_second_line_is_shown_in_one() {
    let finished = Launch::bare().args(["--io-timeout", "5x\nall is well"]).run();
    finished.expect_one_line(2);
    let finished = Launch::bare().env("MONOLOCK_LOG_LEVEL", "loud\nall is well").run();
    finished.expect_one_line(2);
}

#[test]
fn an_unknown_flag_is_one_line_that_names_it_and_status_2() {
    for flag in ["--lease", "-lease", "--listn", "--frobnicate=1", "-x"] {
        let finished = Launch::bare().args([flag]).run();
        let line = finished.expect_one_line(2);
        let name = flag.trim_start_matches('-');
        let name = name.split('=').next().expect("a first part");
        assert!(line.contains(name), "{flag}: {line}");
    }
}

#[test]
fn a_flag_without_its_value_is_one_line_that_names_it_and_status_2() {
    for setting in &SETTINGS {
        let finished = Launch::bare().args([setting.flag]).run();
        let line = finished.expect_one_line(2);
        assert!(line.contains(setting.flag), "{line}");
    }
}

#[test]
fn an_unknown_word_is_one_line_that_names_it_and_status_2() {
    for args in [vec!["frobnicate"], vec!["serve", "frobnicate"]] {
        let finished = Launch::bare().args(args).run();
        let line = finished.expect_one_line(2);
        assert!(line.contains("frobnicate"), "{line}");
    }
}

#[test]
fn the_help_shows_every_flag_with_its_variable_and_default() {
    for args in [vec!["--help"], vec!["-h"], vec!["-help"], vec!["serve", "--help"]] {
        // The values of variables have no business in it.
        let finished = Launch::bare().args(args).env("MONOLOCK_IO_TIMEOUT", "987ms").run();
        assert_eq!(finished.status.code(), Some(0), "{finished:?}");
        assert!(finished.stderr.is_empty(), "{finished:?}");
        for setting in &SETTINGS {
            for text in [setting.flag, setting.variable, setting.default] {
                assert!(finished.stdout.contains(text), "no {text} in {}", finished.stdout);
            }
        }
        assert!(!finished.stdout.contains("987ms"), "{}", finished.stdout);
    }
}

#[test]
fn the_version_names_program_version_and_protocol() {
    for args in [["--version"], ["-version"]] {
        let finished = Launch::bare().args(args).run();
        assert_eq!(finished.status.code(), Some(0), "{finished:?}");
        assert!(finished.stderr.is_empty(), "{finished:?}");
        let stdout = finished.stdout.to_lowercase();
        let (_, protocol) = stdout.split_once("protocol").expect("the protocol's version");
        assert!(stdout.contains("monolock"), "{stdout}");
        assert!(stdout.contains(env!("CARGO_PKG_VERSION")), "{stdout}");
        assert!(protocol.contains('1'), "{stdout}");
    }
}

#[test]
fn an_ipv4_address_listens_on_that_address_only() {
    let server = Launch::on(FIRST).start();
    let port = server.address().port();
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Somebody else may have the same port there; then it is not our server that answers.
    if let Ok(stream) = std::net::TcpStream::connect(elsewhere) {
        let local = stream.peer_addr().expect("a peer");
        assert_ne!(local, server.address());
    }
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
}
