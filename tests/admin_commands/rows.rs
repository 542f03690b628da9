//! What comes out in a pipe, and as JSON.

use std::process::Stdio;

use serde_json::Value;

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::LONG_LEASE_MS;
use crate::{Ended, ask, fields, monolock, start};

/// What would act on a terminal, or look like another field or line.
const HOSTILE: &str = "a\tb\nc\u{1b}[31m\u{202e}\u{9b}\\";
const HOSTILE_SHOWN: &str = r"a\tb\nc\x1b[31m\u202e\u009b\\";

/// What is another number whenever it is asked for.
const AGES: [&str; 4] = ["held_ms", "last_heard_ms", "uptime_ms", "wait_ms"];

#[test]
fn every_lock_is_a_line_with_tabs() {
    let server = start();
    let (holder, token) = Client::owner(server.address(), "nightly/import", 2_000);
    let _waiters = [(); 3].map(|()| Client::waiter(server.address(), "nightly/import", 60_000));
    let _other = Client::owner(server.address(), HOSTILE, LONG_LEASE_MS);
    let printed = ask(server.admin_address(), &["locks"]).expect_done();
    let rows = fields(&printed);
    assert_eq!(rows.len(), 2, "{printed}");
    assert_eq!(rows[0][0], HOSTILE_SHOWN);
    let [name, address, identity, shown, since, lease_ms, heard_ms, waiters] = rows[1][..] else {
        panic!("{printed}")
    };
    assert_eq!((name, identity, lease_ms, waiters), ("nightly/import", "", "2000", "3"));
    assert_eq!(address, holder.local_address().to_string());
    assert_eq!(shown, token.to_string());
    assert!(since.ends_with('Z') && heard_ms.parse::<u64>().is_ok(), "{printed}");
    let matching = ask(server.admin_address(), &["locks", "--match", "nightly/*"]).expect_done();
    assert_eq!(fields(&matching).len(), 1, "{matching}");
    assert_eq!(ask(server.admin_address(), &["locks", "-m", "x"]).expect_done(), "");
}

#[test]
fn a_lock_is_shown_with_its_queue_in_order() {
    let server = start();
    let (holder, token) = Client::owner(server.address(), HOSTILE, 2_000);
    let waiters = [(); 3].map(|()| Client::waiter(server.address(), HOSTILE, 60_000));
    let printed = ask(server.admin_address(), &["show", HOSTILE]).expect_done();
    let rows = fields(&printed);
    let places: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(places, ["0", "1", "2", "3"]);
    let addresses: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    let expected: Vec<String> = std::iter::once(&holder)
        .chain(&waiters)
        .map(|client| client.local_address().to_string())
        .collect();
    assert_eq!(addresses, expected);
    assert_eq!(rows[0][3], token.to_string());
    assert_eq!((rows[1][3], rows[1][5]), ("", "60000"));
}

#[test]
fn a_lock_that_is_nobodys_is_1_and_tells_of_its_last_hold() {
    let server = start();
    let never = ask(server.admin_address(), &["show", "a"]).expect_failure(1);
    assert_eq!(never, "nobody holds this lock or waits for it");
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let address = holder.local_address().to_string();
    holder.close();
    crate::harness::patience::wait_until("the lock is free", || {
        let ended = ask(server.admin_address(), &["show", "a"]);
        ended.code == Some(1)
            && ended.stderr.contains(&format!("its last holder was {address}, until "))
            && ended.stderr.contains("(graceful)")
    });
}

#[test]
fn json_is_the_apis_own() {
    let server = start();
    let _owners =
        ["a", "b", HOSTILE].map(|name| Client::owner(server.address(), name, LONG_LEASE_MS).0);
    let _waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let api = server.admin_address();
    let without_ages = |mut json: Value| {
        fn strip(json: &mut Value) {
            match json {
                Value::Object(fields) => {
                    fields.retain(|name, _| !AGES.contains(&name.as_str()));
                    fields.values_mut().for_each(strip);
                }
                Value::Array(values) => values.iter_mut().for_each(strip),
                _ => {}
            }
        }
        strip(&mut json);
        json
    };
    for (words, path) in [
        (&["locks", "--json"][..], "/api/locks"),
        (&["locks", "--json", "-m", "?"], "/api/locks?match=?"),
        (&["locks", "--json", "-m", "x"], "/api/locks?match=x"),
        (&["show", "--json", "a"], "/api/locks/a"),
        (&["info", "--json"], "/api/info"),
    ] {
        let printed = ask(api, words).expect_done();
        assert!(printed.ends_with('\n') && printed.lines().count() == 1, "{printed}");
        assert!(!printed.contains(['\u{202e}', '\u{9b}', '\u{1b}']), "{printed}");
        let ours = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(without_ages(ours), without_ages(http::get(api, path).json()), "{words:?}");
    }
}

#[test]
fn info_is_names_and_values() {
    let server = start();
    let printed = ask(server.admin_address(), &["info"]).expect_done();
    let rows = fields(&printed);
    let value = |name: &str| rows.iter().find(|row| row[0] == name).expect("a row")[1];
    assert_eq!(value("config.listen"), server.address().to_string());
    assert_eq!(value("config.io_timeout_ms"), "5000");
    assert_eq!((value("locks"), value("config.tls")), ("0", "false"));
    assert!(!value("version").is_empty());
}

#[test]
fn who_has_read_enough_ends_it_quietly() {
    let server = start();
    let _owners: Vec<_> = (0..50)
        .map(|number| Client::owner(server.address(), &format!("{number}"), LONG_LEASE_MS))
        .collect();
    for words in [&["locks"][..], &["locks", "--json"], &["info"], &["help", "exit-codes"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // Nobody reads at all, which is sooner than `head` would be.
        drop(reader);
        let mut command = monolock(server.admin_address(), words);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("the binary");
        Ended::of(output).expect_done();
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let mut command = monolock(server.admin_address(), &["locks"]);
    let output = command.stdout(full).stderr(Stdio::piped()).output().expect("the binary");
    let line = Ended::of(output).expect_failure(125);
    assert!(line.starts_with("cannot write: "), "{line}");
}
