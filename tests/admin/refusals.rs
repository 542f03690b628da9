//! Requests that are not carried out.

use std::net::TcpListener;

use monolock::control::ADMIN_ENDPOINTS;

use crate::harness::client::Client;
use crate::harness::http::{self, request};
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::{Launch, Server};
use crate::{launch, refusal};

#[test]
fn what_is_wrong_with_a_request_is_said_in_json() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let long = "x".repeat(256);
    for (method, path, status) in [
        ("GET", "/api", 404),
        ("GET", "/api/locks/lock/holder", 404),
        ("GET", "/api/locks/", 400),
        ("GET", "/api/locks/idle", 404),
        ("GET", "/api/locks/%ff", 400),
        ("GET", &format!("/api/locks/{long}"), 400),
        ("GET", "/api/locks?limit=0", 400),
        ("GET", "/api/locks?limit=ten", 400),
        ("GET", "/api/locks?waiters=-1", 400),
        ("GET", "/api/locks/lock?waiter=1", 400),
        ("GET", "/?page=1", 400),
        ("GET", "/api/locks?limit=1&limit=2", 400),
        ("GET", "/api/locks?offset=1", 400),
        ("GET", &format!("/api/locks?match={}", "x".repeat(1025)), 400),
        ("GET", "/api/top?by=name", 400),
        ("GET", "/api/top?limit=1001", 400),
        ("GET", "/api/sessions?address=nowhere", 400),
        ("POST", "/api/locks", 405),
        ("DELETE", "/api/locks/lock", 405),
        ("GET", "/api/locks/lock/release", 405),
        ("GET", "/api/locks/lock/waiters/127.0.0.1:1", 405),
        ("PUT", "/api/drain", 405),
        ("GET", "/api/drain?limit=1m", 400),
        ("DELETE", "/api/drain?limit=1m", 400),
        ("DELETE", "/api/drain", 404),
        ("POST", "/api/locks/idle/release", 404),
        ("POST", "/api/locks/lock/release?token=0", 400),
        ("POST", "/api/locks/lock/release?token=-1", 400),
        ("POST", "/api/locks/lock/release?token=", 400),
        ("POST", "/api/locks/lock/release?tokne=1", 400),
        ("POST", "/api/drain?limit=soon", 400),
        ("DELETE", "/api/locks/lock/waiters/127.0.0.1:1", 404),
        ("DELETE", "/api/locks/lock/waiters/somebody", 400),
    ] {
        let answer = request(server.admin_address(), method, path, "");
        assert_eq!(refusal(&answer).0, status, "{method} {path}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{method} {path}");
    }
    owner.expect_held(token);
}

#[test]
fn what_is_listed_is_there_with_those_methods_and_no_others() {
    let server = launch().start();
    let (owner, waiters) = queue_of(&server, "nightly/import", 2);
    let path_of = |path: &str| {
        let waiter = waiters[1].local_address().to_string();
        path.replace("{name}", "nightly%2Fimport").replace("{remote_addr}", &waiter)
    };
    for (_, path) in ADMIN_ENDPOINTS {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            if !ADMIN_ENDPOINTS.contains(&(method, path)) {
                let answer = request(server.admin_address(), method, &path_of(path), "");
                assert_eq!(refusal(&answer).0, 405, "{method} {path}");
            }
        }
    }
    for (method, path) in ADMIN_ENDPOINTS {
        let answer = request(server.admin_address(), method, &path_of(path), "");
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
    }
    let (_, error) = refusal(&http::get(server.admin_address(), "/api"));
    assert!(error.contains("GET /api/locks/{name}, POST /api/locks/{name}/release"), "{error}");
    drop(owner);
}

fn queue_of(server: &Server, name: &str, waiters: usize) -> (Client, Vec<Client>) {
    let owner = Client::owner(server.address(), name, LONG_LEASE_MS).0;
    let waiter = |_| Client::waiter(server.address(), name, LONG_LEASE_MS);
    (owner, (0..waiters).map(waiter).collect())
}

#[test]
fn a_page_from_elsewhere_can_neither_read_nor_change_anything() {
    let server = launch().args(["--admin-host", "locks.example,other.example"]).start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let ask = |method: &str, path: &str, headers: &str| {
        let text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        http::raw(server.admin_address(), &text).status
    };
    for (headers, status) in [
        ("", 400),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
        ("Host: evil.example\r\n", 421),
        ("Host: localhost\r\n", 200),
        ("Host: 127.0.0.1:1\r\n", 200),
        ("Host: other.example:80\r\n", 200),
    ] {
        assert_eq!(ask("GET", "/api/locks", headers), status, "{headers:?}");
    }
    for (headers, status) in [
        ("Host: evil.example\r\nOrigin: http://evil.example\r\n", 421),
        ("Host: localhost:1\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: localhost:1\r\nOrigin: http://localhost:2\r\n", 403),
        ("Host: localhost:1\r\nOrigin: null\r\n", 403),
    ] {
        assert_eq!(ask("POST", "/api/locks/lock/release", headers), status, "{headers:?}");
        assert_eq!(ask("DELETE", "/api/locks/lock/waiters/1.1.1.1:1", headers), status);
    }
    owner.expect_held(token);
    // As through `kubectl port-forward`: another port than the one that is bound.
    let headers = "Host: localhost:8001\r\nOrigin: http://localhost:8001\r\n";
    assert_eq!(ask("POST", "/api/locks/lock/release", headers), 200);
}

#[test]
fn who_listens_beyond_loopback_is_warned() {
    let warning = "has no authentication";
    let mut server = Launch::on_loopback().args(["--admin-listen", "0.0.0.0:0"]).start();
    server.wait_for_line(warning);
    let server = launch().start();
    assert!(server.stderr().iter().all(|line| !line.contains(warning)));
}

#[test]
fn an_address_that_is_taken_is_one_line_that_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let finished = Launch::on_loopback().args(["--admin-listen", &address]).run();
    let line = finished.expect_one_line(1);
    assert!(line.contains(&address) && line.contains("--admin-listen"), "{line}");
}
