//! The signals that don't end it.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::crowd::raise_open_file_limit;
use crate::harness::patience::{LONG_LEASE_MS, PATIENCE};
use crate::harness::procfs;
use crate::harness::server::Launch;

#[test]
fn sighup_disturbs_neither_the_server_nor_its_sessions() {
    let mut server = Launch::on_loopback().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    for _ in 0..20 {
        server.signal(Signal::HUP);
        owner.expect_held(token);
        waiter.expect_queued();
    }
    owner.close();
    waiter.expect_acquired();
    server.expect_running();
}

#[test]
fn sighup_does_not_end_it_at_any_moment_of_its_start() {
    // Before the process has set up anything no process can survive the signal. So the signals
    // begin with the moment when the handler stands, and nothing else may have begun before it.
    for _ in 0..5 {
        let mut server = Launch::on_loopback().spawn();
        let start = Instant::now();
        loop {
            let has_said = !server.stderr().is_empty();
            let (threads, is_handled) = procfs::threads_and_handling(server.pid(), Signal::HUP);
            if is_handled {
                break;
            }
            assert_eq!(threads, 1, "a thread runs before SIGHUP is handled");
            assert!(!has_said, "it says something before SIGHUP is handled");
            assert!(start.elapsed() < PATIENCE, "SIGHUP is never handled");
        }
        let mut is_listening = false;
        while !is_listening {
            server.signal(Signal::HUP);
            is_listening = procfs::listening_address(server.pid()).is_some();
            server.expect_running();
            assert!(start.elapsed() < PATIENCE, "it never listens");
        }
        server.wait_for_line("listening on ");
        server.signal(Signal::TERM);
        assert_eq!(server.wait_for_exit().code(), Some(0));
    }
}

#[test]
fn sigpipe_is_harmless() {
    let mut server = Launch::on_loopback().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    server.signal(Signal::PIPE);
    owner.expect_held(token);
    Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    server.expect_running();
}

#[test]
fn a_server_that_was_stopped_for_longer_than_all_leases_expires_nobody_who_sent_a_heartbeat() {
    const SESSIONS: usize = 1500;
    const LEASE_MS: u32 = 4000;
    raise_open_file_limit();
    let server = Launch::on_loopback().start();
    let mut sessions: Vec<(Client, u64)> = (0..SESSIONS)
        .map(|number| Client::owner(server.address(), &format!("lock {number}"), LEASE_MS))
        .collect();
    let mut waiters: Vec<Client> = (0..SESSIONS / 10)
        .map(|number| Client::waiter(server.address(), &format!("lock {number}"), LEASE_MS))
        .collect();
    // The one that does not do its part, and the one that waits for it.
    let (mut silent, silent_token) = Client::owner(server.address(), "silent", LEASE_MS);
    let mut heir = Client::waiter(server.address(), "silent", LONG_LEASE_MS);
    for (owner, token) in &mut sessions {
        owner.expect_held(*token);
    }
    waiters.iter_mut().for_each(Client::expect_queued);
    silent.expect_held(silent_token);

    server.pause();
    let pause = Instant::now();
    for (owner, _) in &mut sessions {
        owner.heartbeat();
    }
    waiters.iter_mut().for_each(Client::heartbeat);
    let rest = Duration::from_millis(u64::from(LEASE_MS) + 500).saturating_sub(pause.elapsed());
    thread::sleep(rest);
    server.resume();

    for (owner, token) in &mut sessions {
        assert_eq!(owner.expect_acquired(), *token);
    }
    waiters.iter_mut().for_each(Client::expect_waiting);
    assert!(heir.expect_acquired() > silent_token);
    silent.expect_eof();
    // The lease of each was restarted when its heartbeat was read.
    for (owner, token) in &mut sessions {
        owner.expect_held(*token);
    }
    waiters.iter_mut().for_each(Client::expect_queued);
}
