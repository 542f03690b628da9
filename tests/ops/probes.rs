//! When the probes say what.

use std::fs;
use std::net::TcpListener;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::harness::client::{Client, Event};
use crate::harness::http::{self, get};
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::{Launch, Server};
use crate::harness::wire::{Frame, code};
use crate::launch;

#[test]
fn a_server_that_serves_is_healthy_and_ready() {
    let server = launch().start();
    for path in ["/healthz", "/readyz"] {
        let answer = get(server.ops_address(), path);
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let head = http::request(server.ops_address(), "HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
    }
}

#[test]
fn other_paths_and_other_methods_are_refused() {
    let server = launch().start();
    for path in ["/", "/metrics/", "/healthz/x", "/api/info"] {
        assert_eq!(get(server.ops_address(), path).status, 404, "{path}");
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        let answer = http::request(server.ops_address(), "POST", path, "Content-Length: 0\r\n");
        assert_eq!(answer.status, 405, "{path}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{path}");
    }
}

#[test]
fn from_the_first_moment_of_the_shutdown_on_both_probes_say_so() {
    let mut server = launch().start();
    let (mut owner, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    server.signal(Signal::TERM);
    // Until it closes, it holds up the end for a second, in which there is time to ask.
    owner.expect_error(code::SHUTTING_DOWN);
    for path in ["/healthz", "/readyz"] {
        let answer = get(server.ops_address(), path);
        assert_eq!((answer.status, answer.body.as_str()), (503, "shutting down\n"), "{path}");
    }
    let metrics = get(server.ops_address(), "/metrics");
    assert_eq!(metrics.status, 200, "they can be scraped to the end");
    assert!(metrics.body.contains("monolock_releases_total{reason=\"shutdown\"} 1\n"));
    owner.close();
    assert!(server.wait_for_exit().success());
}

#[test]
fn probes_are_answered_while_every_place_is_taken() {
    let server = launch().after_shell("ulimit -n 64").on_one_cpu().start();
    let mut sessions = Vec::new();
    let waiting = loop {
        let mut client = Client::connect(server.address());
        client.acquire(format!("lock {}", sessions.len()), LONG_LEASE_MS);
        let settling = std::time::Duration::from_millis(400);
        match client.next_event(settling) {
            Event::Frame(Frame::Acquired(token)) => sessions.push((client, token)),
            Event::Silence => break client,
            other => panic!("{other:?} after {} sessions", sessions.len()),
        }
    };
    for _ in 0..20 {
        assert_eq!(get(server.ops_address(), "/healthz").status, 200);
    }
    let metrics = get(server.ops_address(), "/metrics").body;
    let used = format!("monolock_session_slots{{state=\"used\"}} {}\n", sessions.len());
    assert!(metrics.contains(&used), "{metrics}");
    assert!(metrics.contains("monolock_session_slots{state=\"max\"} 64\n"), "{metrics}");
    for (client, token) in &mut sessions {
        client.expect_held(*token);
    }
    drop(waiting);
}

#[test]
fn probes_are_answered_again_after_the_process_was_out_of_descriptors() {
    let server = launch().start();
    let soft = server.limit_open_files(1);
    // It waits in the kernel's queue, and the server neither ends nor spins over it.
    let probe = std::thread::spawn({
        let address = server.ops_address();
        move || get(address, "/healthz").status
    });
    let mut server = server;
    server.wait_for_line("cannot accept a connection to an HTTP port");
    server.expect_idle();
    server.limit_open_files(soft);
    assert_eq!(probe.join().expect("the probe"), 200);
}

#[test]
fn a_loop_that_does_not_turn_is_told_of_until_it_turns_again() {
    let server = launch().start();
    let ops = server.ops_address();
    let health = || get(ops, "/healthz").status;
    assert_eq!(health(), 200);
    let stopped = stop_loop(&server);
    wait_until("the loop is known to be stuck", || health() == 503);
    assert_eq!(get(ops, "/healthz").body, "event loops that do not turn: 0\n");
    assert_eq!(get(ops, "/readyz").status, 200);
    let metrics = get(ops, "/metrics");
    assert_eq!(metrics.status, 200, "what is known of it is shown all the same");
    assert!(metrics.body.contains("monolock_loop_responsive{shard=\"0\"} 0\n"));
    ptrace::detach(stopped, None).expect("letting the thread go on");
    wait_until("the loop is known to turn", || health() == 200);
}

/// Stops the first event loop's thread, and it alone. It goes on when the calling thread ends.
fn stop_loop(server: &Server) -> Pid {
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    let thread = fs::read_dir(tasks)
        .expect("the server's threads")
        .map(|entry| entry.expect("a thread").path())
        .find(|path| {
            fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "shard-0")
        })
        .expect("the thread of an event loop");
    let number = thread.file_name().expect("a number").to_str().expect("a number");
    let thread = Pid::from_raw(number.parse().expect("a number"));
    ptrace::seize(thread, ptrace::Options::empty()).expect("tracing a child's thread");
    ptrace::interrupt(thread).expect("stopping a thread");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("waiting for it to stop");
    thread
}

#[test]
fn a_pause_of_the_whole_process_is_no_fault_of_a_loop() {
    let server = launch().start();
    server.pause();
    std::thread::sleep(std::time::Duration::from_secs(6));
    server.resume();
    for _ in 0..50 {
        assert_eq!(get(server.ops_address(), "/healthz").status, 200);
    }
}

#[test]
fn an_address_that_is_taken_is_one_line_that_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let finished = Launch::on_loopback().args(["--ops-listen", &address]).run();
    let line = finished.expect_one_line(1);
    assert!(line.contains(&address) && line.contains("--ops-listen"), "{line}");
}

#[test]
fn without_the_flag_there_is_one_listener_only() {
    let server = Launch::on_loopback().start();
    assert_eq!(procfs::listening_addresses(server.pid()), [server.address()]);
}
