//! No admin API on that address, or one that fails in the middle.

use std::net::TcpListener;

use crate::fake_api::{self, json};
use crate::harness::own_port::own_address;
use crate::harness::server::Launch;
use crate::{Ended, ask, monolock};

const COMMANDS: [&[&str]; 7] = [
    &["locks"],
    &["locks", "--json"],
    &["show", "a"],
    &["release", "a"],
    &["release", "a", "--token", "1"],
    &["kick", "a", "10.0.0.5:1"],
    &["info"],
];

#[test]
fn a_port_that_is_off_is_explained() {
    let address = (own_address(249), 7071).into();
    for words in COMMANDS {
        let line = ask(address, words).expect_failure(125);
        let remedy = format!("--admin-listen {address}");
        assert!(line.starts_with("nobody listens on ") && line.contains(&remedy), "{line}");
    }
}

#[test]
fn the_port_for_clients_is_not_taken_for_the_admin_port() {
    let server = Launch::on_loopback().args(["--ops-listen", "127.0.0.1:0"]).start();
    for address in [server.address(), server.ops_address()] {
        for words in COMMANDS {
            let line = ask(address, words).expect_failure(125);
            assert!(line.contains("is not the admin API of a lock server"), "{line}");
            assert!(line.contains(&address.to_string()), "{line}");
        }
    }
}

#[test]
fn answers_that_are_none_are_one_line() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"locks\":[";
    let cut_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"loc\r\n";
    for (answer, said) in [
        (String::new(), "broke off"),
        ("HTTP/1.1 200".into(), "broke off"),
        (cut.into(), "broke off"),
        (cut_chunk.into(), "broke off"),
        ("SSH-2.0-OpenSSH_9.2\r\n".into(), "not the admin API"),
        ("\u{1b}[2J\u{202e}\r\n\r\n".into(), "not the admin API"),
        (json(200, "<html>"), "not the admin API"),
        (json(200, "[]"), "not the admin API"),
        (json(200, "{\"locks\":[]} trailing"), "not the admin API"),
        (json(404, "<html>"), "not the admin API"),
        (json(302, ""), "not the admin API"),
        (json(500, r#"{"error":"\u001b[2J no"}"#), "the server refuses: \\u{1b}[2J no"),
        (json(421, r#"{"error":"not called so"}"#), "not called so"),
    ] {
        let api = fake_api::serve(move |_| answer.clone());
        // The same must hold for each, but for what is passed on unseen.
        for words in [&["locks"][..], &["show", "a"], &["release", "a"]] {
            let line = ask(api.address, words).expect_failure(125);
            assert!(line.contains(said), "{words:?}: {line}");
            assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line:?}");
        }
    }
}

#[test]
fn a_list_that_breaks_off_is_not_taken_for_the_whole() {
    let api = fake_api::serve(|request| {
        if request.contains("after=b") {
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"locks\":[".into()
        } else {
            json(200, r#"{"locks":[{"name":"b","holder":null,"waiters":[]}],"next_after":"b"}"#)
        }
    });
    let ended = ask(api.address, &["locks", "--json"]);
    assert!(serde_json::from_str::<serde_json::Value>(&ended.stdout).is_err(), "{ended:?}");
    ended.expect_failure(125);
    assert_eq!(ask(api.address, &["locks"]).code, Some(125));
}

#[test]
fn a_list_without_end_is_ended() {
    let page = r#"{"locks":[{"name":"b","holder":null,"waiters":[]}],"next_after":"b"}"#;
    let api = fake_api::serve(|_| json(200, page));
    let line = ask(api.address, &["locks"]).expect_failure(125);
    assert!(line.contains("round in a circle"), "{line}");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let line = ask(listener.local_addr().expect("bound"), &["info"]).expect_failure(125);
    assert!(line.starts_with("no answer from "), "{line}");
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_before_anybody_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    for (words, named) in [
        (&["show", ""][..], "LOCK"),
        (&["show"], "LOCK"),
        (&["kick", "a", "nowhere"], "REMOTE_ADDR"),
        (&["release", "a", "--token", "x"], "--token"),
        (&["locks", "--nonsense"], "--nonsense"),
        (&["info", "-a", "nowhere"], "nowhere"),
        (&["info", "-a", "http://127.0.0.1:7071"], "http://127.0.0.1:7071"),
    ] {
        let line = ask(address, words).expect_failure(125);
        assert!(line.contains(named), "{line}");
    }
    listener.set_nonblocking(true).expect("setting non-blocking");
    assert!(listener.accept().is_err(), "somebody has dialled");
    // The server's own flags do not stand before them.
    let mut command = monolock(address, &["--log-level", "info", "locks"]);
    let line = Ended::of(command.output().expect("the binary")).expect_failure(2);
    assert!(line.contains("must be the first word"), "{line}");
}

#[test]
fn a_name_that_is_not_looked_up_is_said() {
    let address = "no-such-host.invalid:7071";
    let mut command = monolock(([127, 0, 0, 1], 1).into(), &["info", "-a", address]);
    let line = Ended::of(command.output().expect("the binary")).expect_failure(125);
    assert!(line.contains(address), "{line}");
}
