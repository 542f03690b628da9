//! SIGKILL, and the next process after it.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;

/// How long the address of a killed server may stay taken, sessions or not.
const REBIND_TIME_MAX: Duration = Duration::from_millis(500);

#[test]
fn after_sigkill_the_address_is_free_at_once_although_there_were_sessions() {
    let mut server = Launch::on_loopback().start();
    let address = server.address();
    let mut sessions: Vec<Client> = (0..300)
        .map(|number| Client::owner(address, &format!("lock {number}"), LONG_LEASE_MS).0)
        .collect();
    sessions.extend((0..50).map(|_| Client::waiter(address, "lock 0", LONG_LEASE_MS)));
    sessions.extend((0..10).map(|_| Client::connect(address)));

    server.signal(Signal::KILL);
    server.wait_for_exit();
    let death = Instant::now();
    // It binds like the server, which lets it take over an address with old connections on it.
    let listener = loop {
        match TcpListener::bind(address) {
            Ok(listener) => break listener,
            Err(error) => assert!(
                death.elapsed() < REBIND_TIME_MAX,
                "{:?} after SIGKILL: {error}",
                death.elapsed()
            ),
        }
        thread::sleep(Duration::from_millis(1));
    };
    drop(listener);

    let next = Launch::on(&address).start();
    assert_eq!(next.address(), address);
    // The old sessions are told, and a new client gets its lock although the old one had it.
    Client::owner(address, "lock 1", LONG_LEASE_MS);
    for session in &mut sessions {
        session.expect_end();
    }
}

#[test]
fn tokens_go_on_growing_over_a_kill_and_a_restart_within_one_second() {
    let mut server = Launch::on_loopback().start();
    let address = server.address();
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..20 {
            let (_, token) = Client::owner(address, &format!("lock {last}"), LONG_LEASE_MS);
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        server.signal(Signal::KILL);
        server.wait_for_exit();
        server = Launch::on(&address).start();
    }
}
