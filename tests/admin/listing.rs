//! Lists of many locks and long queues.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Server;
use crate::{get, launch, names};

fn hold_many(server: &Server, count: usize) -> Vec<Client> {
    (0..count)
        .map(|number| {
            let name = format!("lock/{number:04}");
            Client::owner(server.address(), &name, LONG_LEASE_MS).0
        })
        .collect()
}

#[test]
fn pages_are_in_bytewise_order_and_together_are_everything() {
    let server = launch().start();
    let _owners = hold_many(&server, 300);
    let whole = get(&server, "/api/locks");
    assert_eq!(names(&whole).len(), 300);
    assert!(names(&whole).is_sorted());
    assert_eq!(whole.get("next_after"), None);
    let mut seen = Vec::new();
    let mut path = "/api/locks?limit=70".to_owned();
    loop {
        let page = get(&server, &path);
        seen.extend(names(&page).iter().map(ToString::to_string));
        let Some(last) = page.get("next_after") else { break };
        assert_eq!(names(&page).len(), 70);
        assert_eq!(Some(last.as_str().expect("a name")), names(&page).last().copied());
        let last = last.as_str().expect("a name").replace('/', "%2F");
        path = format!("/api/locks?limit=70&after={last}");
    }
    assert_eq!(seen, names(&whole));
    let exact = get(&server, "/api/locks?limit=300");
    assert_eq!(exact.get("next_after"), None, "there is nothing behind it");
}

#[test]
fn a_pattern_chooses_before_pages_are_cut() {
    let server = launch().start();
    let _owners = hold_many(&server, 120);
    let page = get(&server, "/api/locks?match=lock/??5*&limit=3");
    assert_eq!(names(&page), ["lock/0050", "lock/0051", "lock/0052"]);
    assert_eq!(page["next_after"], "lock/0052");
    let page = get(&server, "/api/locks?match=lock/*5&after=lock/0100");
    assert_eq!(names(&page), ["lock/0105", "lock/0115"]);
    assert_eq!(get(&server, "/api/locks?match=LOCK*"), json!({ "locks": [] }));
}

#[test]
fn a_queue_longer_than_a_slice_is_whole_and_in_order() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let waiters: Vec<Client> =
        (0..700).map(|_| Client::waiter(server.address(), "lock", LONG_LEASE_MS)).collect();
    let expected: Vec<String> =
        waiters.iter().map(|waiter| waiter.local_address().to_string()).collect();
    for path in ["/api/locks/lock", "/api/locks"] {
        let mut answer = get(&server, path);
        let lock = if path.ends_with("locks") { answer["locks"][0].take() } else { answer };
        let queue = lock["waiters"].as_array().expect("a list");
        let addresses: Vec<&str> =
            queue.iter().map(|waiter| waiter["remote_addr"].as_str().expect("text")).collect();
        assert_eq!(addresses, expected, "{path}");
    }
}

#[test]
fn as_many_waiters_of_each_lock_are_shown_as_are_wanted() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let waiters: Vec<Client> =
        (0..600).map(|_| Client::waiter(server.address(), "lock", LONG_LEASE_MS)).collect();
    let first = waiters[0].local_address().to_string();
    // Up to and beyond slices of 256, and beyond what there is.
    for wanted in [0, 1, 256, 257, 512, 600, 1000] {
        let list = get(&server, &format!("/api/locks?waiters={wanted}"));
        let one = get(&server, &format!("/api/locks/lock?waiters={wanted}"));
        for lock in [&list["locks"][0], &one] {
            assert_eq!(lock["waiters_count"], 600);
            let queue = lock["waiters"].as_array().expect("a list");
            assert_eq!(queue.len(), wanted.min(600));
            assert!(queue.first().is_none_or(|waiter| waiter["remote_addr"] == first));
        }
    }
}

#[test]
fn what_is_there_all_the_time_is_listed_once_while_others_come_and_go() {
    let server = launch().start();
    let _owners = hold_many(&server, 200);
    let expected: BTreeSet<String> = (0..200).map(|number| format!("lock/{number:04}")).collect();
    for round in 0..20 {
        let _guests: Vec<_> = (0..10)
            .map(|guest| {
                let name = format!("lock/guest/{round}/{guest}");
                Client::owner(server.address(), &name, LONG_LEASE_MS)
            })
            .collect();
        let list = get(&server, "/api/locks");
        let staying: Vec<&str> =
            names(&list).into_iter().filter(|name| !name.contains("guest")).collect();
        assert_eq!(staying.len(), expected.len());
        assert!(staying.iter().all(|name| expected.contains(*name)));
    }
}

#[test]
fn a_reader_that_is_slow_or_gone_holds_up_nobody() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let _waiters: Vec<Client> =
        (0..600).map(|_| Client::waiter(server.address(), "lock", LONG_LEASE_MS)).collect();
    let request = "GET /api/locks HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut slow: Vec<TcpStream> = (0..6)
        .map(|_| {
            let mut stream = TcpStream::connect(server.admin_address()).expect("connecting");
            stream.write_all(request.repeat(50).as_bytes()).expect("sending");
            stream
        })
        .collect();
    slow[0].read_exact(&mut [0; 100]).expect("the beginning of an answer");
    slow.truncate(3);
    owner.expect_held(token);
    let list: Value = get(&server, "/api/locks");
    assert_eq!(list["locks"][0]["waiters"].as_array().expect("a list").len(), 600);
    let head = http::request(server.admin_address(), "HEAD", "/api/locks", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}
