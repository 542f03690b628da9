//! Force-release, kick, and the maintenance drain.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::client::Client;
use crate::harness::http::{self, Answer};
use crate::harness::patience::{LONG_LEASE_MS, SILENCE, wait_until};
use crate::harness::wire::code;
use crate::{get, launch, refusal};

fn post(server: SocketAddr, path: &str) -> Answer {
    http::request(server, "POST", path, "Content-Length: 0\r\n")
}

fn delete(server: SocketAddr, path: &str) -> Answer {
    http::request(server, "DELETE", path, "")
}

#[test]
fn a_force_release_tells_the_holder_and_promotes_the_next() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    let answer = post(server.admin_address(), "/api/locks/nightly%2Fimport/release");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["released"]["token"], token);
    owner.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    assert!(waiter.expect_acquired() > token);
    let lock = get(&server, "/api/locks/nightly%2Fimport");
    assert_eq!(lock["last_hold"]["reason"], "force");
    let totals = get(&server, "/api/info")["totals"].take();
    assert_eq!((&totals["grants"], &totals["releases"]["force"]), (&json!(2), &json!(1)));
}

#[test]
fn a_force_release_with_a_token_meets_only_the_holder_that_has_it() {
    let server = launch().start();
    let (owner, first) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut next = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    owner.close();
    let second = next.expect_acquired();
    let release =
        |token| post(server.admin_address(), &format!("/api/locks/lock/release?token={token}"));
    let (status, error) = refusal(&release(first));
    assert_eq!(status, 409);
    assert!(error.contains(&second.to_string()), "{error}");
    next.expect_held(second);
    assert_eq!(release(second).status, 200);
    next.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    assert_eq!(refusal(&release(second)).0, 404, "nobody holds it any more");
}

#[test]
fn a_kick_meets_one_waiter_by_its_address() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut first = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let mut second = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let path = |client: &Client| format!("/api/locks/lock/waiters/{}", client.local_address());
    let answer = delete(server.admin_address(), &path(&first));
    assert_eq!(answer.status, 200, "{answer:?}");
    first.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    assert_eq!(refusal(&delete(server.admin_address(), &path(&first))).0, 404);
    let of_holder = delete(server.admin_address(), &path(&owner));
    assert_eq!(refusal(&of_holder).0, 404, "a holder is no waiter");
    owner.expect_held(token);
    second.expect_queued();
}

#[test]
fn the_last_of_a_long_queue_can_be_kicked() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiters: Vec<Client> =
        (0..600).map(|_| Client::waiter(server.address(), "lock", LONG_LEASE_MS)).collect();
    let mut last = waiters.pop().expect("the last");
    let path = format!("/api/locks/lock/waiters/{}", last.local_address());
    assert_eq!(delete(server.admin_address(), &path).status, 200);
    last.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    waiters[0].expect_queued();
}

#[test]
fn a_kicked_peer_sees_its_end_within_50_ms() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    // Of several, because the machine may be busy with something else for one of them.
    let least = (0..5)
        .map(|_| {
            let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
            let path = format!("/api/locks/lock/waiters/{}", waiter.local_address());
            let asked = Instant::now();
            let kicking = std::thread::spawn({
                let admin = server.admin_address();
                move || delete(admin, &path).status
            });
            waiter.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
            let seen = asked.elapsed();
            assert_eq!(kicking.join().expect("the request"), 200);
            seen
        })
        .min()
        .expect("several");
    assert!(least < Duration::from_millis(50), "{least:?}");
}

#[test]
fn a_drained_server_grants_nothing_and_ends_when_the_last_holder_has_finished() {
    let mut server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let (other, _) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let answer = post(server.admin_address(), "/api/drain?limit=10m");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["holders"], 2);
    let info = get(&server, "/api/info");
    assert_eq!(info["draining"], true);
    let left_ms = info["drain_remaining_ms"].as_u64().expect("a number");
    assert!((500_000..=600_000).contains(&left_ms), "{left_ms}");
    let mut late = Client::connect(server.address());
    late.acquire("free", LONG_LEASE_MS);
    late.expect_waiting();
    other.close();
    wait_until("one holder is left", || get(&server, "/api/info")["locks"] == 1);
    owner.expect_held(token);
    waiter.expect_silence(SILENCE);
    owner.close();
    waiter.expect_refusal(code::SHUTTING_DOWN);
    late.expect_refusal(code::SHUTTING_DOWN);
    drop((waiter, late));
    assert!(server.wait_for_exit().success());
}

#[test]
fn a_cancelled_drain_grants_what_was_waited_for_meanwhile() {
    let mut server = launch().start();
    let (owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let (mut other, others_token) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let idle = get(&server, "/api/drain");
    assert_eq!((&idle["draining"], &idle["remaining_ms"]), (&json!(false), &json!(null)));
    assert_eq!(post(server.admin_address(), "/api/drain?limit=10m").status, 200);
    // More than a loop looks at in a turn, and two for each of them.
    let claim = |number| Client::waiter(server.address(), &format!("{number}"), LONG_LEASE_MS);
    let mut first: Vec<Client> = (0..200).map(claim).collect();
    let mut second: Vec<Client> = (0..200).map(claim).collect();
    owner.close();
    wait_until("one holder is left", || get(&server, "/api/drain")["holders"] == 1);
    let progress = get(&server, "/api/drain");
    assert_eq!((&progress["draining"], &progress["waiters"]), (&json!(true), &json!(401)));
    let ms = |field: &str| progress[field].as_u64().expect("a number");
    assert!(ms("remaining_ms") <= 600_000 && ms("elapsed_ms") <= 600_000 - ms("remaining_ms"));

    let cancelled = delete(server.admin_address(), "/api/drain");
    assert_eq!((cancelled.status, &cancelled.json()["draining"]), (200, &json!(false)));
    assert!(waiter.expect_acquired() > token);
    let tokens: BTreeSet<u64> = first.iter_mut().map(Client::expect_acquired).collect();
    assert!(tokens.len() == 200 && tokens.first() > Some(&token));
    second[0].expect_queued();
    Client::owner(server.address(), "fresh", LONG_LEASE_MS);
    other.expect_held(others_token);
    assert_eq!(refusal(&delete(server.admin_address(), "/api/drain")).0, 404);

    // Another one goes its way as if there had been none before.
    assert_eq!(post(server.admin_address(), "/api/drain?limit=10m").status, 200);
    drop((first, other, waiter));
    second[199].expect_refusal(code::SHUTTING_DOWN);
    drop(second);
    assert!(server.wait_for_exit().success());
}

#[test]
fn the_limit_of_a_cancelled_drain_is_of_no_effect() {
    let mut server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    for _ in 0..2 {
        assert_eq!(post(server.admin_address(), "/api/drain?limit=3s").status, 200);
    }
    assert_eq!(delete(server.admin_address(), "/api/drain").status, 200);
    std::thread::sleep(Duration::from_millis(3300));
    owner.expect_held(token);
    server.expect_running();
}

#[test]
fn what_is_shutting_down_already_can_neither_be_drained_nor_be_kept() {
    let server = launch().start();
    let (mut owner, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    assert_eq!(post(server.admin_address(), "/api/drain?limit=0s").status, 200);
    // Until it closes, it holds up the end for a second, in which there is time to ask.
    owner.expect_error(code::SHUTTING_DOWN);
    assert_eq!(refusal(&delete(server.admin_address(), "/api/drain")).0, 409);
    assert_eq!(refusal(&post(server.admin_address(), "/api/drain")).0, 409);
}

#[test]
fn a_drain_that_takes_too_long_ends_at_its_limit() {
    let mut server = launch().start();
    let (mut owner, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    // The first limit is far away; the second one counts.
    assert_eq!(post(server.admin_address(), "/api/drain?limit=10m").status, 200);
    assert_eq!(post(server.admin_address(), "/api/drain?limit=100ms").status, 200);
    owner.expect_refusal(code::SHUTTING_DOWN);
    drop(owner);
    assert!(server.wait_for_exit().success());
}
