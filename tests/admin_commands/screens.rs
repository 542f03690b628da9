//! Tables, on a terminal that `script` makes.

use std::net::SocketAddr;
use std::process::Command;

use crate::harness::client::Client;
use crate::harness::outside;
use crate::harness::patience::LONG_LEASE_MS;
use crate::start;

/// What a terminal gets of a command; none, which is said, if there is no such program here.
fn screen(api: SocketAddr, words: &str, variables: &[(&str, &str)]) -> Option<String> {
    if !outside::is_installed("script", "util-linux") {
        return None;
    }
    let program = env!("CARGO_BIN_EXE_monolock");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("{program} {words}"), "/dev/null"]);
    command.env("MONOLOCK_ADMIN_ADDRESS", api.to_string()).env("TERM", "xterm");
    command.env_remove("NO_COLOR").envs(variables.iter().copied());
    command.stdin(std::process::Stdio::null());
    let output = command.output().expect("it was there just now");
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("UTF-8").replace("\r\n", "\n"))
}

#[test]
fn a_terminal_gets_a_table() {
    let server = start();
    let name = "名前/\u{1b}[2J\u{202e}";
    let (_holder, token) = Client::owner(server.address(), name, 3_600_000);
    let _other = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let Some(screen) = screen(server.admin_address(), "locks", &[("NO_COLOR", "1")]) else {
        return;
    };
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with("LOCK ") && lines[0].ends_with(" WAITERS"), "{screen}");
    assert!(lines[1].starts_with("a  "), "{screen}");
    assert!(lines[2].starts_with(r"名前/\x1b[2J\u202e  127.0.0.1:"), "{screen}");
    assert!(lines[2].contains(&token.to_string()) && lines[2].contains(" 1h "), "{screen}");
    assert_eq!(lines.len(), 3);
    // Each of the wide characters takes two columns.
    let column = |line: &str, of: &str| line.find(of).expect("a cell");
    let address_at = column(lines[1], "127.0.0.1:");
    assert_eq!(column(lines[0], "HOLDER"), address_at);
    let wide = lines[2].split("127.0.0.1:").next().expect("a part");
    assert_eq!(wide.chars().count() + 2, address_at);
    assert!(!screen.contains(['\u{1b}', '\u{202e}']), "{screen:?}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let server = start();
    let _holder = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let api = server.admin_address();
    let Some(coloured) = screen(api, "show a", &[]) else { return };
    assert!(coloured.contains("\u{1b}[1mADDRESS\u{1b}[0m"), "{coloured:?}");
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let plain = screen(api, "show a", &variables).expect("it was there");
        assert!(plain.contains("ADDRESS") && !plain.contains('\u{1b}'), "{plain:?}");
    }
    // An empty variable counts as none.
    let coloured = screen(api, "show a", &[("NO_COLOR", "")]).expect("it was there");
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
}

#[test]
fn nothing_to_list_is_said_to_people() {
    let server = start();
    let Some(all) = screen(server.admin_address(), "locks", &[]) else { return };
    assert!(all.contains("monolock: no lock is held\n"), "{all}");
    let none = screen(server.admin_address(), "locks -m x", &[]).expect("it was there");
    assert!(none.contains("no lock that is held matches \"x\""), "{none}");
}
