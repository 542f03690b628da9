//! One server in several event loops: how many there are, and that nobody outside can tell.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::{Launch, Server};
use crate::harness::wire::{self, HEARTBEAT, code};

/// More than the machine has processors, and enough that most claims move.
const SHARDS: usize = 6;

#[test]
fn numbers_of_event_loops_that_make_no_sense_are_refused_in_one_line() {
    for value in ["0", "1025", "4294967296", "-1", "1.5", "two", "cores", ""] {
        let finished = Launch::on_loopback().args(["--shards", value]).run();
        let line = finished.expect_one_line(2);
        assert!(line.contains("--shards") && line.contains("from 1 to 1024"), "{line}");
    }
    let finished = Launch::on_loopback().env("MONOLOCK_SHARDS", "0").run();
    let line = finished.expect_one_line(2);
    assert!(line.contains("MONOLOCK_SHARDS") && line.contains("from 1 to 1024"), "{line}");
}

#[test]
fn there_is_an_event_loop_for_each_processor_unless_told_otherwise() {
    let one = Launch::on_loopback().on_one_cpu().start();
    assert_eq!(procfs::threads_named(one.pid(), "shard-"), 1);
    let processors = thread::available_parallelism().expect("a number").get();
    for launch in [Launch::on_loopback(), Launch::on_loopback().args(["--shards", "auto"])] {
        assert_eq!(procfs::threads_named(launch.start().pid(), "shard-"), processors);
    }
    for count in [1, SHARDS] {
        let server = Launch::on_loopback().shards(count).start();
        assert_eq!(procfs::threads_named(server.pid(), "shard-"), count);
    }
}

#[test]
fn too_few_descriptors_for_the_event_loops_are_told_in_one_line() {
    let finished = Launch::on_loopback().shards(100).after_shell("ulimit -n 64").run();
    let line = finished.expect_one_line(1);
    for part in ["100 event loops", "RLIMIT_NOFILE is 64", "ulimit -n", "--shards"] {
        assert!(line.contains(part), "no {part} in: {line}");
    }
}

#[test]
fn too_little_locked_memory_for_the_event_loops_is_told_in_one_line() {
    // One needs about 150 KiB; there is none left for the second, or not even for the first.
    for (kib, remedy) in [(64, "LimitMEMLOCK"), (400, "enough for --shards")] {
        let limit = format!("ulimit -l {kib}");
        let launch = Launch::on_loopback().without_locking_memory().after_shell(&limit);
        let line = launch.shards(200).run();
        let line = line.expect_one_line(1);
        assert!(line.contains("locked memory") && line.contains("ulimit -l"), "{line}");
        assert!(line.contains(remedy), "no {remedy} in: {line}");
    }
}

#[test]
fn tokens_rise_over_all_locks_wherever_they_are() {
    let server = Launch::on_loopback().shards(SHARDS).start();
    let mut last = 0;
    for number in 0..100 {
        let (client, token) =
            Client::owner(server.address(), &format!("lock {number}"), LONG_LEASE_MS);
        assert!(token > last, "{token} after {last}");
        last = token;
        client.close();
    }
}

#[test]
fn clients_of_one_lock_meet_whichever_event_loop_has_accepted_them() {
    let server = Launch::on_loopback().shards(SHARDS).start();
    for number in 0..10 {
        let name = format!("lock {number}");
        let (owner, mut last) = Client::owner(server.address(), &name, LONG_LEASE_MS);
        let waiters: Vec<Client> = (0..2 * SHARDS)
            .map(|_| Client::waiter(server.address(), &name, LONG_LEASE_MS))
            .collect();
        owner.close();
        for mut waiter in waiters {
            let token = waiter.expect_acquired();
            assert!(token > last, "{token} after {last}");
            last = token;
            waiter.close();
        }
    }
}

#[test]
fn nothing_that_is_sent_before_during_and_after_the_move_is_lost() {
    let server = Launch::on_loopback().shards(SHARDS).start();
    for number in 0..300_usize {
        let mut client = Client::connect(server.address());
        let heartbeats = number % 7;
        let mut bytes = wire::acquire(format!("lock {number}"), LONG_LEASE_MS);
        bytes.extend(vec![HEARTBEAT; heartbeats]);
        // In two segments, of which the second may come at any point of the move.
        let (first, second) = bytes.split_at(bytes.len() - heartbeats / 2);
        client.send(first);
        if number % 3 == 0 {
            thread::sleep(Duration::from_micros(number as u64));
        }
        client.send(second);
        let token = client.expect_acquired();
        for _ in 0..heartbeats {
            assert_eq!(client.expect_acquired(), token);
        }
        client.half_close();
        client.expect_eof();
    }
}

#[test]
fn peers_that_leave_while_they_move_leave_nothing_behind() {
    let server = Launch::on_loopback().shards(SHARDS).start();
    let descriptors = procfs::open_files(server.pid()).len();
    for number in 0..300 {
        let mut client = Client::connect(server.address());
        client.send(&wire::acquire(format!("lock {}", number % 5), LONG_LEASE_MS));
        match number % 3 {
            0 => client.close(),
            1 => client.reset(),
            _ => {
                client.half_close();
                client.close();
            }
        }
    }
    for lock in 0..5 {
        Client::owner_patiently(server.address(), &format!("lock {lock}"));
    }
    wait_until("no connection is on its way", || {
        procfs::open_files(server.pid()).len() == descriptors
    });
}

#[test]
fn the_limit_of_a_peer_is_one_over_all_event_loops_and_moves_with_its_connections() {
    let server =
        Launch::on_loopback().shards(SHARDS).args(["--max-sessions-per-peer", "20"]).start();
    for round in 0..3 {
        let mut clients: Vec<Client> = Vec::new();
        wait_until("those of the round before are gone", || {
            let mut client = Client::connect(server.address());
            let name = format!("lock {round} {}", clients.len());
            // A server that refuses at once may have closed before this arrives.
            let _ = client.try_send(&wire::acquire(name, LONG_LEASE_MS));
            if matches!(client.read_frame(), wire::Frame::Acquired(_)) {
                clients.push(client);
            }
            clients.len() == 20
        });
        let mut refused = Client::connect(server.address());
        refused.expect_refusal(code::TOO_MANY_SESSIONS);
    }
}

#[test]
fn a_shutdown_loses_nobody_who_is_just_moving() {
    for _ in 0..5 {
        let mut server = Launch::on_loopback().shards(SHARDS).start();
        let mut clients = moving_clients(&server);
        let start = Instant::now();
        server.signal(Signal::TERM);
        for client in &mut clients {
            expect_told(client);
        }
        drop(clients);
        assert_eq!(server.wait_for_exit().code(), Some(0));
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    }
}

/// Clients whose claims have just been sent, and that the server has accepted.
#[track_caller]
fn moving_clients(server: &Server) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(server.address())).collect();
    wait_until("all are accepted", || procfs::accept_queue_len(server.address()) == 0);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&wire::acquire(format!("lock {}", number / 2), LONG_LEASE_MS));
    }
    clients
}

/// What it was told before does not matter, but it must be told of the shutdown as the last thing.
#[track_caller]
fn expect_told(client: &mut Client) {
    loop {
        match client.read_frame() {
            wire::Frame::Error { code: code::SHUTTING_DOWN, .. } => return client.expect_eof(),
            wire::Frame::Error { code, .. } => panic!("told {code:#04x}"),
            wire::Frame::Acquired(_) | wire::Frame::Waiting => {}
        }
    }
}
