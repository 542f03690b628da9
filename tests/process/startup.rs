//! What can go wrong at start, and what a start must set up.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::Launch;

#[test]
fn a_second_server_on_one_address_fails_with_one_line_and_status_1() {
    let first = Launch::on_loopback().start();
    let (mut owner, token) = Client::owner(first.address(), "lock", LONG_LEASE_MS);
    let second = Launch::on(&first.address()).run();
    let line = second.expect_one_line(1);
    assert!(line.contains(&first.address().to_string()), "{line}");
    // The first one has not noticed.
    owner.expect_held(token);
    Client::waiter(first.address(), "lock", LONG_LEASE_MS);
}

#[test]
fn an_address_of_another_machine_fails_with_one_line_and_status_1() {
    // One of those that are kept for documentation.
    let finished = Launch::on("192.0.2.1:0").run();
    let line = finished.expect_one_line(1);
    assert!(line.contains("192.0.2.1"), "{line}");
}

#[test]
fn without_io_uring_it_says_in_one_line_what_to_do_and_ends_with_status_1() {
    let finished = Launch::on_loopback().without_io_uring().run();
    let line = finished.expect_one_line(1);
    assert!(line.contains("io_uring"), "{line}");
    let remedies = ["seccomp", "kernel.io_uring_disabled"];
    assert!(remedies.iter().any(|remedy| line.contains(remedy)), "{line}");
}

#[test]
fn a_dual_stack_address_takes_ipv4_and_ipv6_to_the_same_locks() {
    let server = Launch::on("[::]:0").start();
    assert_eq!(server.address().ip(), Ipv6Addr::UNSPECIFIED);
    let port = server.address().port();
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let (owner, first) = Client::owner(v4, "lock", LONG_LEASE_MS);
    let mut waiter = Client::waiter(v6, "lock", LONG_LEASE_MS);
    owner.close();
    assert!(waiter.expect_acquired() > first);
    let mut last = Client::waiter(v4, "lock", LONG_LEASE_MS);
    waiter.close();
    last.expect_acquired();
}

#[test]
fn an_ipv6_address_takes_ipv6() {
    let server = Launch::on("[::1]:0").start();
    assert_eq!(server.address().ip(), Ipv6Addr::LOCALHOST);
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let server = Launch::on_loopback().after_shell("ulimit -Sn 50 && ulimit -Hn 200").start();
    assert_eq!(procfs::open_file_limits(server.pid()), (200, 200));
}

#[test]
fn no_open_file_would_be_inherited_by_another_program() {
    let server = Launch::on_loopback().start();
    let _session = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let _silent = Client::connect(server.address());
    // What we inherited ourselves from whoever runs the tests is not the server's doing.
    let ours = procfs::open_files(rustix::process::getpid());
    let inherited: Vec<_> = procfs::open_files(server.pid())
        .into_iter()
        .filter(|(number, _)| *number > 2)
        .filter(|file| !ours.contains(file))
        .filter(|(number, _)| procfs::is_close_on_exec(server.pid(), *number) == Some(false))
        .collect();
    assert!(inherited.is_empty(), "{inherited:?}");
}

#[test]
fn a_silent_peer_is_probed_by_keepalive() {
    let server = Launch::on_loopback().start();
    let (client, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    wait_until("the keepalive timer runs", || {
        procfs::has_keepalive(server.address(), client.local_address())
    });
}

#[test]
fn a_token_tells_the_second_of_its_grant_and_its_fraction() {
    let server = Launch::on_loopback().start();
    // Long enough apart that no collision of grants moves the sequence away from the clock.
    for number in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(3));
        let before = clock_as_token();
        let (_, token) = Client::owner(server.address(), &format!("{number}"), LONG_LEASE_MS);
        let after = clock_as_token();
        assert!((before..=after).contains(&token), "{before} <= {token} <= {after}");
    }
}

/// What the specification makes of the wall clock: seconds above bit 20, the fraction below.
fn clock_as_token() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    (now.as_secs() << 20) | ((u64::from(now.subsec_nanos()) << 20) / 1_000_000_000)
}
