//! What happens when the table of sessions or the table of open files is full.
//!
//! The servers here run as if on one processor, so that there is one event loop and the arithmetic
//! of its one table is exact.

mod harness;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use harness::client::{Client, Event};
use harness::crowd::raise_open_file_limit;
use harness::patience::{LONG_LEASE_MS, wait_until};
use harness::procfs;
use harness::server::{Launch, Server};
use harness::wire::Frame;

/// The limit of open files, and with it the upper bound of the table.
const OPEN_FILES: usize = 64;

/// How long nothing must change before the server is taken to have done all that it will do.
const SETTLING: Duration = Duration::from_millis(400);

/// A server with a small table.
fn small_server(io_timeout: &str) -> Server {
    Launch::on_loopback()
        .args(["--io-timeout", io_timeout])
        .after_shell(&format!("ulimit -n {OPEN_FILES}"))
        .on_one_cpu()
        .start()
}

/// Claims locks until a claim is not answered. Gives the sessions, and the one that is not.
#[track_caller]
fn fill(server: &Server) -> (Vec<(Client, u64)>, Client) {
    let mut sessions = Vec::new();
    loop {
        assert!(sessions.len() <= OPEN_FILES, "there is no end of the table");
        let mut client = Client::connect(server.address());
        client.acquire(format!("lock {}", sessions.len()), LONG_LEASE_MS);
        match client.next_event(SETTLING) {
            Event::Frame(Frame::Acquired(token)) => sessions.push((client, token)),
            Event::Silence => return (sessions, client),
            other => panic!("{other:?} after {} sessions", sessions.len()),
        }
    }
}

/// How many connections the kernel keeps for the server once it accepts no more of them.
#[track_caller]
fn settled_accept_queue_len(server: &Server) -> usize {
    let queue_len = || procfs::accept_queue_len(server.address());
    let mut last = (queue_len(), Instant::now());
    wait_until("the server has accepted all that it will accept", || {
        let now = queue_len();
        if now != last.0 {
            last = (now, Instant::now());
        }
        last.1.elapsed() >= SETTLING
    });
    last.0
}

#[test]
fn clients_above_the_limit_wait_in_the_kernel_and_are_served_when_others_leave() {
    const ABOVE: usize = 5;
    let mut server = small_server("1s");
    let (mut sessions, first_above) = fill(&server);
    assert!(!sessions.is_empty());
    let mut above = vec![first_above];
    for number in 1..ABOVE {
        let mut client = Client::connect(server.address());
        client.acquire(format!("above {number}"), LONG_LEASE_MS);
        above.push(client);
    }
    assert_eq!(settled_accept_queue_len(&server), ABOVE);
    server.expect_idle();
    // Their time has not begun: no timeout ends them, and nobody else either.
    for client in &mut above {
        client.expect_silence(SETTLING);
    }
    for (owner, token) in &mut sessions {
        owner.expect_held(*token);
    }
    // Each that leaves makes room for one.
    for client in &mut above {
        let (leaver, _) = sessions.remove(0);
        leaver.close();
        client.expect_acquired();
    }
    for (owner, token) in &mut sessions {
        owner.expect_held(*token);
    }
    server.expect_running();
}

#[test]
fn a_full_table_is_full_again_after_everybody_has_left() {
    let server = small_server("5s");
    let (first, above) = fill(&server);
    let sessions_max = first.len();
    drop((first, above));
    // No slot is lost: ends of all kinds, and the same number fits in again.
    for round in 0..3 {
        wait_until("all have left", || procfs::accept_queue_len(server.address()) == 0);
        let (sessions, above) = fill_patiently(&server, round, sessions_max);
        for (number, session) in sessions.into_iter().enumerate() {
            match number % 3 {
                0 => session.close(),
                1 => session.reset(),
                _ => {
                    // An ERROR, and a drain.
                    let mut session = session;
                    session.send(&[0x7f]);
                    session.expect_refusal(harness::wire::code::UNKNOWN_TYPE);
                }
            }
        }
        drop(above);
    }
}

/// So many claims, each of which may have to wait for the place of one that is just leaving, and
/// one more that stays without an answer.
#[track_caller]
fn fill_patiently(server: &Server, round: usize, sessions_max: usize) -> (Vec<Client>, Client) {
    let sessions: Vec<Client> = (0..sessions_max)
        .map(|number| {
            let name = format!("round {round}, lock {number}");
            Client::owner(server.address(), &name, LONG_LEASE_MS).0
        })
        .collect();
    let mut above = Client::connect(server.address());
    above.acquire("above", LONG_LEASE_MS);
    above.expect_silence(SETTLING);
    (sessions, above)
}

#[test]
fn silent_connections_never_get_the_last_third_of_an_empty_table() {
    expect_last_third_kept(|_| 0);
}

#[test]
fn silent_connections_never_get_the_last_third_of_what_sessions_leave_of_the_table() {
    expect_last_third_kept(|sessions_max| sessions_max / 2);
}

/// Connections that have not sent their ACQUIRE meet a table of which sessions hold a part.
#[track_caller]
fn expect_last_third_kept(held_of: impl FnOnce(usize) -> usize) {
    let server = small_server("1h");
    let (mut sessions, above) = fill(&server);
    let sessions_max = sessions.len();
    above.close();
    for (mut leaver, _) in sessions.drain(held_of(sessions_max)..) {
        leaver.half_close();
        leaver.expect_eof();
    }
    let free = sessions_max - sessions.len();

    let mut silent = connect_many(server.address(), 2 * sessions_max);
    let accepted = silent.len() - settled_accept_queue_len(&server);
    let accepted_max = (2 * free).div_ceil(3);
    assert!(accepted <= accepted_max, "{accepted} of {free} free slots were taken");
    assert!(accepted > 0, "nobody is accepted with {free} free slots");
    server.expect_idle();

    // When they speak up they are served, and so are those behind them, until the table is full.
    let mut speakers: Vec<Client> = silent.drain(..free).collect();
    for (number, client) in speakers.iter_mut().enumerate() {
        client.acquire(format!("speaker {number}"), LONG_LEASE_MS);
    }
    for client in &mut speakers {
        client.expect_acquired();
    }
    assert_eq!(settled_accept_queue_len(&server), silent.len());
    for (owner, token) in &mut sessions {
        owner.expect_held(*token);
    }
}

#[test]
fn connections_that_say_nothing_make_room_at_the_io_timeout() {
    let server = small_server("500ms");
    let silent: Vec<Client> =
        (0..2 * OPEN_FILES).map(|_| Client::connect(server.address())).collect();
    // It stands behind all of them in the kernel's queue.
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
    for mut client in silent {
        client.expect_eof();
    }
}

#[test]
fn without_descriptors_it_neither_ends_nor_spins_and_goes_on_when_there_are_some_again() {
    let mut server = small_server("1h");
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    // Fewer than it has open already: accept fails with EMFILE.
    let limit = server.limit_open_files(1);
    let mut clients: Vec<Client> = (0..5)
        .map(|number| {
            let mut client = Client::connect(server.address());
            client.acquire(format!("late lock {number}"), LONG_LEASE_MS);
            client
        })
        .collect();
    server.expect_idle();
    server.expect_running();
    assert_eq!(procfs::accept_queue_len(server.address()), clients.len());
    // Those who are in don't notice.
    owner.expect_held(token);
    waiter.expect_queued();
    owner.close();
    waiter.expect_acquired();

    server.limit_open_files(limit);
    for client in &mut clients {
        client.expect_acquired();
    }
}

#[test]
fn a_burst_of_connections_waits_in_the_queue_of_a_server_that_is_busy() {
    // More than the usual sizes of a backlog: 128, 511, 1024.
    let burst = procfs::accept_queue_len_max().min(1500);
    raise_open_file_limit();
    let server = Launch::on_loopback().start();
    server.pause();
    let mut clients = connect_many(server.address(), burst);
    assert_eq!(procfs::accept_queue_len(server.address()), burst);
    server.resume();
    for (number, client) in clients.iter_mut().enumerate() {
        client.acquire(format!("lock {number}"), LONG_LEASE_MS);
    }
    for client in &mut clients {
        client.expect_acquired();
    }
}

fn connect_many(server: SocketAddr, count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::connect(server)).collect()
}
