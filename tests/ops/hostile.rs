//! Clients of the ops port that are silent, slow or many.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::client::Client;
use crate::harness::http::{self, get};
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE, wait_until};
use crate::harness::procfs;
use crate::launch;

/// More than the port takes at a time.
const MANY: usize = 40;

#[test]
fn silent_connections_make_room_for_a_probe() {
    let server = launch().start();
    let silent = connect_many(server.ops_address(), "");
    assert_eq!(get(server.ops_address(), "/healthz").status, 200);
    drop(silent);
}

#[test]
fn connections_with_half_a_request_make_room_for_a_probe() {
    let server = launch().start();
    let slow = connect_many(server.ops_address(), "GET /healthz HTTP/1.1\r\nHost: ");
    assert_eq!(get(server.ops_address(), "/healthz").status, 200);
    drop(slow);
}

#[test]
fn connections_that_do_not_read_make_room_for_a_probe() {
    let server = launch().start();
    let ops = server.ops_address();
    let greedy: Vec<_> = connect_many(ops, "")
        .into_iter()
        .map(|mut stream| {
            stream.set_write_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            let requests = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2000);
            // As much as is taken; many of them have been closed already.
            let _ = stream.write_all(requests.as_bytes());
            stream
        })
        .collect();
    assert_eq!(get(ops, "/healthz").status, 200);
    drop(greedy);
}

#[test]
fn connections_that_ask_without_end_make_room_for_a_probe() {
    let server = launch().start();
    let ops = server.ops_address();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..MANY / 2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    ask_until_closed(ops, &is_over);
                }
            });
        }
        let probe = || std::panic::catch_unwind(|| get(ops, "/healthz").status);
        let answers: Vec<_> = (0..3).map_while(|_| probe().ok()).collect();
        // Before it is judged, or a failed test would go on without end.
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(answers, [200; 3]);
    });
}

/// Is always many questions ahead of the answers, for as long as the connection stays open.
fn ask_until_closed(ops: SocketAddr, is_over: &AtomicBool) {
    const QUESTION: &str = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut stream = TcpStream::connect(ops).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
    let (questions, mut answers) = (QUESTION.repeat(100), vec![0; 64 << 10]);
    let (mut answer_len, mut owed) = (0, 0);
    while !is_over.load(Ordering::SeqCst) {
        // Closed or reset, it is over for this connection either way.
        if owed <= 100 * answer_len {
            let asked = if answer_len == 0 { QUESTION } else { &questions };
            if stream.write_all(asked.as_bytes()).is_err() {
                return;
            }
            owed += 100 * answer_len;
        }
        match stream.read(&mut answers) {
            Ok(len @ 1..) if answer_len == 0 => answer_len = len,
            Ok(len @ 1..) => owed = owed.saturating_sub(len),
            Ok(0) | Err(_) => return,
        }
    }
}

#[test]
fn who_closes_its_side_behind_the_request_gets_the_answer() {
    let server = launch().args(["--admin-listen", "127.0.0.1:0"]).start();
    for (port, path) in [
        (server.ops_address(), "/metrics"),
        (server.ops_address(), "/healthz"),
        (server.admin_address(), "/api/info"),
        (server.admin_address(), "/api/locks"),
    ] {
        let mut stream = TcpStream::connect(port).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sending");
        stream.shutdown(Shutdown::Write).expect("closing one side");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer:?}");
    }
}

#[test]
fn only_a_few_connections_are_taken_at_a_time() {
    let server = launch().start();
    let before = procfs::open_files(server.pid()).len();
    let _silent = connect_many(server.ops_address(), "");
    for _ in 0..20 {
        assert!(procfs::open_files(server.pid()).len() <= before + 8 + 1);
    }
}

#[test]
fn a_connection_without_a_request_is_closed_within_15_seconds() {
    let server = launch().start();
    let mut stream = TcpStream::connect(server.ops_address()).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
    assert_eq!(stream.read(&mut [0]).expect("the end of the stream"), 0);
}

#[test]
fn nonsense_is_refused_and_does_no_harm() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    for request in [
        "nonsense\r\n\r\n".to_owned(),
        "GET /metrics HTTP/9.9\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "Key: value\r\n".repeat(10_000)),
    ] {
        let answer = http::raw(server.ops_address(), &request);
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    assert_eq!(get(server.ops_address(), "/healthz").status, 200);
    owner.expect_held(token);
}

#[test]
fn connections_to_the_ops_port_are_not_counted() {
    let server = launch().start();
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    for _ in 0..3 {
        get(server.ops_address(), "/healthz");
    }
    wait_until("the one connection is counted", || {
        let metrics = get(server.ops_address(), "/metrics").body;
        metrics.contains("\nmonolock_connections_accepted_total 1\n")
            && metrics.contains("\nmonolock_connections_active 1\n")
    });
}

fn connect_many(address: SocketAddr, first_bytes: &str) -> Vec<TcpStream> {
    (0..MANY)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("somebody listens");
            stream.write_all(first_bytes.as_bytes()).expect("the kernel takes a few bytes");
            stream
        })
        .collect()
}
