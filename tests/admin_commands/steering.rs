//! Taking a lock away, and a waiter out of a queue.

use serde_json::Value;

use crate::fake_api::{self, json};
use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::wire::code;
use crate::{ask, fields, start};

#[test]
fn a_release_takes_the_lock_from_its_holder() {
    let server = start();
    let (mut holder, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    let address = holder.local_address().to_string();
    let printed = ask(server.admin_address(), &["release", "nightly/import"]).expect_done();
    assert_eq!(fields(&printed), [["nightly/import", &address, "", &token.to_string()]]);
    holder.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    let next = waiter.expect_acquired();

    // The token of one that is no longer there.
    let words = ["release", "nightly/import", "--token", &token.to_string()];
    let line = ask(server.admin_address(), &words).expect_failure(1);
    assert!(line.contains(&next.to_string()), "{line}");
    waiter.expect_held(next);
    let words = ["release", "nightly/import", "--json", "--token", &next.to_string()];
    let json: Value =
        serde_json::from_str(&ask(server.admin_address(), &words).expect_done()).expect("JSON");
    assert_eq!(json["released"]["token"], next);
    waiter.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    ask(server.admin_address(), &["release", "nightly/import"]).expect_failure(1);
}

/// Between the look at the holder and the release the lock has passed on.
#[test]
fn a_slow_operator_does_not_hit_the_next_holder() {
    let api = fake_api::serve(|request| {
        if request.starts_with("GET ") {
            let holder = r#"{"identity":"","remote_addr":"10.0.0.5:1","since":"","lease_ms":1,
                "token":7}"#;
            json(200, &format!(r#"{{"name":"a","holder":{holder},"waiters":[]}}"#))
        } else {
            assert!(request.starts_with("POST /api/locks/a%2Fb/release?token=7 "), "{request}");
            json(409, r#"{"error":"the holder's token is 8"}"#)
        }
    });
    let line = ask(api.address, &["release", "a/b"]).expect_failure(1);
    assert_eq!(line, "the holder's token is 8");
    assert_eq!(api.requests().len(), 2);
}

#[test]
fn a_queue_without_a_holder_has_nothing_to_release() {
    let api = fake_api::serve(|_| json(200, r#"{"name":"a","holder":null,"waiters":[]}"#));
    let line = ask(api.address, &["release", "a"]).expect_failure(1);
    assert_eq!(line, "nobody holds this lock");
}

#[test]
fn servers_that_only_say_that_it_is_done_are_understood() {
    let api = fake_api::serve(|request| {
        let is_get = request.starts_with("GET ");
        let holder = r#"{"identity":"x","remote_addr":"10.0.0.5:1","since":"","lease_ms":1,
            "token":7}"#;
        if is_get {
            json(200, &format!(r#"{{"name":"a","holder":{holder},"waiters":[]}}"#))
        } else {
            "HTTP/1.1 204 No Content\r\n\r\n".into()
        }
    });
    assert_eq!(ask(api.address, &["release", "a"]).expect_done(), "a\t10.0.0.5:1\tx\t7\n");
    assert_eq!(ask(api.address, &["release", "a", "--token=9"]).expect_done(), "a\t\t\t9\n");
    assert_eq!(ask(api.address, &["kick", "a", "[::1]:2"]).expect_done(), "a\t[::1]:2\n");
    assert_eq!(ask(api.address, &["kick", "a", "[::1]:2", "--json"]).expect_done(), "");
}

#[test]
fn a_kick_meets_one_waiter() {
    let server = start();
    let (mut holder, token) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    let mut first = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let mut second = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let address = first.local_address().to_string();
    let printed = ask(server.admin_address(), &["kick", "a", &address]).expect_done();
    assert_eq!(fields(&printed), [["a", &address]]);
    first.expect_refusal(code::CLOSED_BY_ADMINISTRATOR);
    let line = ask(server.admin_address(), &["kick", "a", &address]).expect_failure(1);
    assert!(line.contains(&address), "{line}");
    let of_holder = holder.local_address().to_string();
    ask(server.admin_address(), &["kick", "a", &of_holder]).expect_failure(1);
    holder.expect_held(token);
    second.expect_queued();
}
