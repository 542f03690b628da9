//! What must hold with as many sessions as one process may have sockets, here twice: the server's
//! and the clients'. One test runs at a time, so that what it measures is its own; the figures go
//! to stdout (`cargo test --test scale -- --nocapture`).

mod harness;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use harness::bystanders::Bystanders;
use harness::client::{Client, Event};
use harness::crowd::{Crowd, Latencies, Sight};
use harness::own_port::own_address;
use harness::patience::{LONG_LEASE_MS, PATIENCE};
use harness::server::{Launch, Server};
use harness::wire::{self, Frame, code};

/// Most of what two processes with 20,000 descriptors each can have.
const MANY: usize = 15_000;

/// Waits until no other test of this file runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server on an address that is no client's, so that no connection can take its port between two
/// servers.
fn launch(last_byte: u8) -> Launch {
    Launch::on(&SocketAddr::from((own_address(last_byte), 0)))
}

/// Two claims on each lock: of the even number, who holds it, and of the odd one, who waits for it.
fn in_pairs(number: usize) -> String {
    format!("lock {}", number / 2)
}

/// Until the moment has come. It must have passed for the test to mean anything; what is then seen
/// does not depend on by how much.
fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

/// Stops the server, and lets it go on when all this is done.
#[track_caller]
fn while_stopped(server: &Server, act: impl FnOnce()) {
    server.pause();
    act();
    server.resume();
}

#[test]
fn nobody_expires_who_sent_a_heartbeat_while_the_server_was_stopped_for_longer_than_the_lease() {
    // Many times as many as the server has receive buffers.
    const SESSIONS: usize = 10_000;
    const LEASE: Duration = Duration::from_secs(5);
    let _alone = alone();
    let server = launch(1).start();
    let mut crowd = Crowd::claim(server.address(), SESSIONS, in_pairs, 5_000);
    let before: Vec<_> = (0..SESSIONS).map(|number| crowd.last_frame(number)).collect();

    while_stopped(&server, || {
        let stopped = Instant::now();
        crowd.heartbeat(0..SESSIONS);
        sleep_until(stopped + LEASE + Duration::from_millis(300));
    });
    let latencies = crowd.expect_answers(0..SESSIONS);
    println!("heartbeats answered after a stop: {latencies}");
    crowd.watch_for(Duration::from_millis(100), |sight| {
        panic!("member {} got {:?}", sight.member, sight.event);
    });
    // Everybody stands where it stood: no holder has lost its lock to who waits for it.
    crowd.heartbeat(0..SESSIONS);
    crowd.expect_answers(0..SESSIONS);
    for (number, frame) in before.iter().enumerate() {
        assert_eq!(crowd.last_frame(number), *frame, "member {number}");
    }
}

#[test]
fn when_the_holder_and_half_of_a_long_queue_leave_at_once_the_rest_is_served_in_order() {
    let _alone = alone();
    // The holder, those right behind it, and five of every ten further on.
    let leaves = |number: &usize| (number / 5).is_multiple_of(2);
    let server = launch(2).start();
    let mut crowd = Crowd::connect(server.address(), 0);
    let start = Instant::now();
    // The holder is number 0; each is certain of its place before the next one comes.
    for number in 0..=MANY {
        crowd.join(server.address());
        crowd.send(number, &wire::acquire("lock", LONG_LEASE_MS));
        crowd.expect_answers(number..number + 1);
    }
    println!("{MANY} waiters have queued one after the other: {:.1?}", start.elapsed());

    while_stopped(&server, || {
        for number in (0..=MANY).filter(leaves) {
            if number % 2 == 0 {
                crowd.leave(number);
            } else {
                crowd.reset(number);
            }
        }
    });
    let start = Instant::now();
    let mut last_token = 0;
    let mut served = 0;
    // Each that is served leaves; nobody asks for anything.
    for number in (0..=MANY).filter(|number| !leaves(number)) {
        crowd.watch_until("the next waiter is served", |Sight { member, event, .. }| {
            let Event::Frame(Frame::Acquired(token)) = event else {
                panic!("member {member} got {event:?}")
            };
            assert_eq!(member, number, "served out of its turn");
            assert!(token > last_token, "{token} after {last_token}");
            last_token = token;
            true
        });
        crowd.leave(number);
        served += 1;
    }
    assert_eq!(served, MANY / 2);
    println!("{served} handovers, each to the next in the queue: {:.1?}", start.elapsed());
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
}

#[test]
fn a_mass_of_leases_that_end_at_once_harms_nobody_else() {
    const LEASE: Duration = Duration::from_secs(8);
    const WAITERS: usize = 2_000;
    let _alone = alone();
    let server = launch(3).start();
    let address = server.address();
    let lock = |number| format!("lock {number}");
    let mut silent = Crowd::claim(address, MANY, lock, 8_000);
    let mut waiters = Crowd::claim(address, WAITERS, lock, LONG_LEASE_MS);
    assert!((0..WAITERS).all(|number| waiters.last_frame(number) == Some(Frame::Waiting)));
    // So that their leases end at one time, they are restarted at one.
    let sent = Instant::now();
    silent.heartbeat(0..MANY);
    let restarted = silent.expect_answers(0..MANY);

    let bystanders = Bystanders::beside(address);
    let ended = silent.expect_ends(0..MANY, None, sent + LEASE);
    let grants = waiters.expect_answers(0..WAITERS);
    println!("leases restarted within {:.1?}", restarted.percentile(100));
    println!("expired peers saw their end this long after the first was due: {ended}");
    println!("bystanders' heartbeats were answered meanwhile: {}", bystanders.finish());
    assert_eq!(grants.len(), WAITERS);
    for number in 0..WAITERS {
        let frame = waiters.last_frame(number);
        assert!(matches!(frame, Some(Frame::Acquired(_))), "waiter {number}: {frame:?}");
    }
}

/// What a peer is told by, beside many others, must come at once: the goal is 50 ms.
const PROMPT: Duration = Duration::from_secs(1);

#[test]
fn an_expired_peer_sees_its_end_promptly() {
    const PEERS: usize = 300;
    const LEASE: Duration = Duration::from_secs(4);
    let _alone = alone();
    let server = launch(4).start();
    let _idle = Crowd::claim(server.address(), MANY / 3, in_pairs, LONG_LEASE_MS);
    let mut peers = Crowd::claim(server.address(), PEERS, |peer| format!("peer {peer}"), 4_000);
    let (mut sent, mut heard) = (Vec::new(), Vec::new());
    for peer in 0..PEERS {
        sent.push(Instant::now());
        peers.heartbeat(peer..peer + 1);
        peers.expect_answers(peer..peer + 1);
        heard.push(Instant::now());
        thread::sleep(Duration::from_millis(2));
    }
    let mut late = Latencies::default();
    peers.watch_until("every peer has seen its end", |Sight { member, event, at }| {
        assert_eq!(event, Event::Eof, "peer {member}");
        assert!(at >= sent[member] + LEASE, "peer {member} lost a part of its lease");
        late.add(at.saturating_duration_since(heard[member] + LEASE));
        late.len() == PEERS
    });
    println!("ends of expired peers, after the end of their leases: {late}");
    assert!(late.percentile(99) < PROMPT, "{late}");
}

#[test]
fn a_refused_peer_is_told_and_sees_its_end_promptly() {
    let _alone = alone();
    let server = launch(5).start();
    let _idle = Crowd::claim(server.address(), MANY / 3, in_pairs, LONG_LEASE_MS);
    let mut ends = Latencies::default();
    for number in 0..300 {
        let mut client = Client::connect(server.address());
        if number % 2 == 0 {
            client.acquire("lock", LONG_LEASE_MS);
            client.expect_acquired();
        }
        let start = Instant::now();
        client.send(&[0x7f]);
        client.expect_refusal(code::UNKNOWN_TYPE);
        ends.add(start.elapsed());
    }
    println!("ends of refused peers, after what they sent: {ends}");
    assert!(ends.percentile(99) < PROMPT, "{ends}");
}

#[test]
fn a_shutdown_tells_everybody_and_promotes_nobody() {
    let _alone = alone();
    let mut server = launch(6).start();
    let mut crowd = Crowd::claim(server.address(), MANY, in_pairs, LONG_LEASE_MS);
    // They have said nothing yet, and are told as well.
    for _ in 0..100 {
        crowd.join(server.address());
    }
    // The server takes them in order: when this one has its answer, they are there too.
    let (last, _) = Client::owner(server.address(), "last", LONG_LEASE_MS);
    last.close();
    let start = Instant::now();
    server.signal(Signal::TERM);
    let all = 0..crowd.len();
    let ends = crowd.expect_ends(all, Some(code::SHUTTING_DOWN), start);
    drop(crowd);
    let status = server.wait_for_exit();
    println!("ends at a shutdown: {ends}; the process ended after {:.1?}", start.elapsed());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn after_a_kill_the_next_server_has_the_address_at_once() {
    let _alone = alone();
    let mut server = launch(7).start();
    let address = server.address();
    let mut crowd = Crowd::claim(address, MANY, in_pairs, LONG_LEASE_MS);
    let newest = (0..MANY).filter_map(|number| match crowd.last_frame(number) {
        Some(Frame::Acquired(token)) => Some(token),
        _ => None,
    });
    let newest = newest.max().expect("half of them hold a lock");
    let killed = Instant::now();
    server.signal(Signal::KILL);
    server.wait_for_exit();
    let (next, failures) = restart(address);
    let bound = killed.elapsed();
    let (_holder, token) = Client::owner(next.address(), "lock 0", LONG_LEASE_MS);
    println!("after a kill: listening again after {bound:.1?}, {failures} starts failed; first");
    println!("  connection answered after {:.1?}", killed.elapsed());
    assert!(token > newest, "{token} after {newest}");
    assert!(bound < Duration::from_secs(2), "{bound:?}");

    let mut ended = Latencies::default();
    crowd.watch_until("every old session has seen its end", |Sight { member, event, at }| {
        assert!(matches!(event, Event::Eof | Event::Reset), "member {member} got {event:?}");
        ended.add(at - killed);
        ended.len() == MANY
    });
    println!("  ends of the old sessions: {ended}");
}

/// Starts a server until one has the address, as a supervisor would; gives it and how many had not.
#[track_caller]
fn restart(address: SocketAddr) -> (Server, usize) {
    let start = Instant::now();
    for failures in 0.. {
        let mut server = Launch::on(&address).spawn();
        while server.exit_status_now().is_none() {
            if server.stderr().iter().any(|line| line.contains("listening on ")) {
                return (server.listening_at(address), failures);
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < PATIENCE, "the address can't be had: {:?}", server.stderr());
    }
    unreachable!("the loop has no end of its own")
}
