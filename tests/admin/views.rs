//! What the API shows of the server, of locks and of sessions.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Launch;
use crate::{get, launch, names};

#[test]
fn the_server_is_shown_with_its_settings_and_counts() {
    let server = launch()
        .args(["--ops-listen", "127.0.0.1:0", "--io-timeout", "7s", "--max-lease", "1h"])
        .args(["--admin-host", "locks.example"])
        .start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let _waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let info = get(&server, "/api/info");
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["uptime_ms"].as_u64().expect("a number") < 60_000);
    assert_eq!((&info["locks"], &info["sessions"]), (&json!(1), &json!(2)));
    assert_eq!((&info["waiters"], &info["totals"]["grants"]), (&json!(1), &json!(1)));
    assert_eq!((&info["draining"], &info["drain_remaining_ms"]), (&json!(false), &Value::Null));
    assert_eq!(info["shutting_down"], false);
    let config = &info["config"];
    assert_eq!(config["listen"], server.address().to_string());
    assert_eq!(config["ops_listen"], server.ops_address().to_string());
    assert_eq!(config["admin_listen"], server.admin_address().to_string());
    assert_eq!(config["admin_hosts"], json!(["locks.example"]));
    assert_eq!((&config["tls"], &config["mtls"]), (&json!(false), &json!(false)));
    assert_eq!((&config["acl_file"], &config["audit_log"]), (&json!(""), &json!("")));
    assert_eq!(config["io_timeout_ms"], 7000);
    assert_eq!(config["max_lease_ms"], 3_600_000);
}

#[test]
fn a_lock_is_shown_with_its_holder_and_its_queue_in_order() {
    let server = launch().start();
    let (owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let waiters: Vec<Client> = (0..5)
        .map(|_| Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS + 1))
        .collect();
    thread::sleep(Duration::from_millis(20));
    let lock = get(&server, "/api/locks/nightly%2Fimport");
    assert_eq!(lock["name"], "nightly/import");
    let holder = &lock["holder"];
    assert_eq!(holder["identity"], "");
    assert_eq!(holder["remote_addr"], owner.local_address().to_string());
    assert_eq!(holder["lease_ms"], LONG_LEASE_MS);
    assert_eq!(holder["token"], token);
    assert!(holder["held_ms"].as_u64().expect("a number") >= 20);
    assert!(holder["last_heard_ms"].as_u64().expect("a number") >= 20);
    let since = holder["since"].as_str().expect("a time");
    assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    assert_eq!(lock["waiters_count"], waiters.len());
    let queue = lock["waiters"].as_array().expect("a list");
    let addresses: Vec<&Value> = queue.iter().map(|waiter| &waiter["remote_addr"]).collect();
    let expected: Vec<Value> =
        waiters.iter().map(|waiter| json!(waiter.local_address().to_string())).collect();
    assert_eq!(addresses, expected.iter().collect::<Vec<_>>());
    for waiter in queue {
        assert_eq!(waiter["identity"], "");
        assert_eq!(waiter["lease_ms"], LONG_LEASE_MS + 1);
        assert!(waiter["queued_at"].as_str().expect("a time") >= since);
        assert!(waiter["wait_ms"].as_u64().expect("a number") >= 20);
    }
    let listed = &get(&server, "/api/locks")["locks"][0];
    assert_eq!((&listed["name"], &listed["holder"]["token"]), (&lock["name"], &holder["token"]));
    assert_eq!(listed["waiters"].as_array().expect("a list").len(), queue.len());
}

#[test]
fn an_idle_lock_is_not_there_but_it_is_known_how_its_last_hold_ended() {
    let server = launch().start();
    let path = "/api/locks/lock";
    let answer = http::get(server.admin_address(), path);
    assert_eq!((answer.status, &answer.json()["last_hold"]), (404, &Value::Null));

    let mut expiring = Client::connect(server.address());
    expiring.acquire("lock", 30);
    let token = expiring.expect_acquired();
    let address = expiring.local_address().to_string();
    expiring.expect_eof();
    let answer = http::get(server.admin_address(), path);
    assert_eq!(answer.status, 404);
    let last = &answer.json()["last_hold"];
    assert_eq!((&last["reason"], &last["token"]), (&json!("expired"), &json!(token)));
    assert_eq!(last["remote_addr"], address);
    assert!(last["held_ms"].as_u64().expect("a number") >= 30);

    // Held by the next one, it is still known.
    let (_next, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let lock = get(&server, path);
    assert_eq!(lock["last_hold"]["token"], token);
}

#[test]
fn an_address_is_spelled_the_same_on_a_dual_stack_socket() {
    let server = Launch::on("[::]:0").args(["--admin-listen", "[::1]:0", "--shards", "1"]).start();
    let port = server.address().port();
    let v4 = Client::owner(([127, 0, 0, 1], port).into(), "v4", LONG_LEASE_MS).0;
    let v6 = Client::owner((std::net::Ipv6Addr::LOCALHOST, port).into(), "v6", LONG_LEASE_MS).0;
    let holder =
        |name: &str| get(&server, &format!("/api/locks/{name}"))["holder"]["remote_addr"].clone();
    assert_eq!(holder("v4"), format!("127.0.0.1:{}", v4.local_address().port()));
    assert_eq!(holder("v6"), format!("[::1]:{}", v6.local_address().port()));
}

#[test]
fn names_are_shown_as_they_are_and_can_forge_nothing() {
    let server = launch().start();
    let odd = ["a\"b\\c", "line\nbreak", "\u{202e}turned", "<script>", "é🔒", " ", "%2F", "a+b"];
    let _owners: Vec<_> =
        odd.iter().map(|name| Client::owner(server.address(), name, LONG_LEASE_MS)).collect();
    let list = get(&server, "/api/locks");
    let mut expected = odd.to_vec();
    expected.sort_unstable();
    assert_eq!(names(&list), expected);
    for name in odd {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(get(&server, &format!("/api/locks/{encoded}"))["name"], name);
    }
}

#[test]
fn sessions_are_found_by_their_address() {
    let server = launch().start();
    let (owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiter = Client::connect_from(server.address(), [127, 0, 0, 9]);
    waiter.acquire("lock", LONG_LEASE_MS);
    waiter.expect_waiting();
    let silent = Client::connect_from(server.address(), [127, 0, 0, 9]);
    wait_until("all three are there", || {
        get(&server, "/api/sessions")["sessions"].as_array().expect("a list").len() == 3
    });
    let one = get(&server, &format!("/api/sessions?address={}", owner.local_address()));
    let [session] = one["sessions"].as_array().expect("a list").as_slice() else { panic!("{one}") };
    assert_eq!((&session["state"], &session["lock"]), (&json!("acquired"), &json!("lock")));
    assert_eq!(session["token"], token);
    let others = get(&server, "/api/sessions?address=127.0.0.9");
    let states: Vec<&Value> =
        others["sessions"].as_array().expect("a list").iter().map(|s| &s["state"]).collect();
    assert!(states.len() == 2 && states.contains(&&json!("waiting")), "{others}");
    assert!(states.contains(&&json!("connected")), "{others}");
    assert_eq!(get(&server, "/api/sessions?address=127.0.0.77"), json!({ "sessions": [] }));
    assert_eq!(get(&server, "/api/sessions?identity=x"), json!({ "sessions": [] }));
    drop(silent);
}

#[test]
fn locks_that_stand_out_come_first() {
    let server = launch().start();
    let mut clients = Vec::new();
    for (name, waiters) in [("long", 3), ("longer", 5), ("alone", 0)] {
        clients.push(Client::owner(server.address(), name, LONG_LEASE_MS).0);
        for _ in 0..waiters {
            clients.push(Client::waiter(server.address(), name, LONG_LEASE_MS));
        }
        thread::sleep(Duration::from_millis(10));
    }
    let list = get(&server, "/api/top?by=waiters");
    assert_eq!(names(&list), ["longer", "long"]);
    assert_eq!(list["locks"][0]["waiters"], 5);
    assert_eq!(names(&get(&server, "/api/top?by=oldest_wait")), ["long", "longer"]);
    let list = get(&server, "/api/top?by=oldest_hold&limit=2");
    assert_eq!(names(&list), ["long", "longer"]);
    assert!(list["locks"][0]["held_ms"].as_u64() > list["locks"][1]["held_ms"].as_u64());
}
