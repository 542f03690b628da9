//! What becomes of claims on locks of an event loop that has no place left.
//!
//! Which loop owns which lock can't be known from outside. So one lock is queued for until nobody
//! more is answered: its loop is full then, and a lock whose claim is answered nevertheless belongs
//! to the other one.

mod harness;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use harness::client::{Client, Event};
use harness::patience::{LONG_LEASE_MS, PATIENCE, SILENCE, wait_until};
use harness::procfs;
use harness::server::{Launch, Server};
use harness::wire::{self, Frame, code};

/// The limit of open files, and with it the size of each of the two tables.
const OPEN_FILES: usize = 64;

/// How long nothing must come before a claim is taken to have no place.
const SETTLING: Duration = Duration::from_millis(400);

/// A server with two event loops, of which one is full of claims on the lock `full`.
struct Full {
    server: Server,
    holder: Client,
    waiters: Vec<Client>,
}

impl Full {
    #[track_caller]
    fn start() -> Full {
        // Nobody is to be ended by the io-timeout but by leases.
        let server = Launch::on_loopback()
            .shards(2)
            .args(["--io-timeout", "1h"])
            .after_shell(&format!("ulimit -n {OPEN_FILES}"))
            .start();
        let (holder, _) = Client::owner(server.address(), "full", LONG_LEASE_MS);
        let mut waiters = Vec::new();
        let mut unanswered = 0;
        // The last place of a loop goes only to who is dealt to it, and connections are dealt in
        // turn: it is taken when two in a row have no answer.
        while unanswered < 2 {
            let mut client = claim(server.address(), "full", LONG_LEASE_MS);
            match client.next_event(SETTLING) {
                Event::Frame(Frame::Waiting) => {
                    waiters.push(client);
                    unanswered = 0;
                }
                Event::Silence => unanswered += 1,
                other => panic!("{other:?} after {} waiters", waiters.len()),
            }
            assert!(waiters.len() < 2 * OPEN_FILES, "there is no end of the table");
        }
        Full { server, holder, waiters }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A claim for which there is no place.
    #[track_caller]
    fn held_up(&self, lease_ms: u32) -> Client {
        let mut client = claim(self.address(), "full", lease_ms);
        client.expect_silence(SILENCE);
        client
    }

    /// Makes room for one, and gives who has left.
    fn one_leaves(&mut self) {
        self.waiters.pop().expect("the table is full of them").close();
    }

    /// A lock of the loop that has places, claimed.
    #[track_caller]
    fn elsewhere(&self, of: &str) -> (Client, u64, String) {
        for number in 0..100 {
            let name = format!("{of} {number}");
            let mut client = claim(self.address(), &name, LONG_LEASE_MS);
            match client.next_event(SETTLING) {
                Event::Frame(Frame::Acquired(token)) => return (client, token, name),
                Event::Silence => {}
                other => panic!("{other:?}"),
            }
        }
        panic!("every lock belongs to the full loop");
    }
}

#[track_caller]
fn claim(server: SocketAddr, name: &str, lease_ms: u32) -> Client {
    let mut client = Client::connect(server);
    client.acquire(name, lease_ms);
    client
}

#[test]
fn a_claim_without_a_place_ends_at_its_lease_without_a_word() {
    const LEASE: Duration = Duration::from_millis(700);
    let full = Full::start();
    let start = Instant::now();
    let mut client = claim(full.address(), "full", 700);
    assert_eq!(client.next_event(PATIENCE), Event::Eof);
    assert!(start.elapsed() >= LEASE, "{:?}", start.elapsed());
}

#[test]
fn heartbeats_keep_a_claim_without_a_place_and_are_answered_when_it_has_one() {
    let mut full = Full::start();
    let mut client = claim(full.address(), "full", 1_000);
    let mut asked = 1;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2_500) {
        client.expect_silence(Duration::from_millis(200));
        client.heartbeat();
        asked += 1;
    }
    full.one_leaves();
    for _ in 0..asked {
        client.expect_waiting();
    }
    client.expect_queued();
}

#[test]
fn whoever_leaves_makes_room_for_one_who_waits_in_their_order() {
    let mut full = Full::start();
    let mut held_up: Vec<Client> = (0..5).map(|_| full.held_up(LONG_LEASE_MS)).collect();
    // Who has got a place keeps it, or its end would make room too.
    let mut waiting = Vec::new();
    while !held_up.is_empty() {
        full.one_leaves();
        let mut first = held_up.remove(0);
        first.expect_waiting();
        waiting.push(first);
        for client in &mut held_up {
            client.expect_silence(Duration::from_millis(20));
        }
    }
    // A newcomer has no place before them either, and none when they have got theirs.
    full.held_up(LONG_LEASE_MS);
}

#[test]
fn the_lock_goes_to_those_who_had_no_place_when_their_turn_comes() {
    let mut full = Full::start();
    let mut held_up: Vec<Client> = (0..3).map(|_| full.held_up(LONG_LEASE_MS)).collect();
    for waiter in full.waiters.drain(..) {
        waiter.close();
    }
    for client in &mut held_up {
        client.expect_waiting();
    }
    full.holder.close();
    for mut client in held_up {
        client.expect_acquired();
        client.close();
    }
}

#[test]
fn nobody_else_is_held_up() {
    let full = Full::start();
    let (mut other, token, name) = full.elsewhere("other");
    let _held_up: Vec<Client> = (0..10).map(|_| full.held_up(LONG_LEASE_MS)).collect();
    other.expect_held(token);
    let mut waiter = Client::waiter(full.address(), &name, LONG_LEASE_MS);
    other.close();
    waiter.expect_acquired();
    full.server.expect_idle();
}

#[test]
fn who_has_no_place_leaves_in_any_way_and_is_forgotten() {
    let mut full = Full::start();
    // More than there are places in both tables.
    for number in 0..6 * OPEN_FILES {
        let client = claim(full.address(), "full", LONG_LEASE_MS);
        match number % 3 {
            0 => client.close(),
            1 => client.reset(),
            _ => {
                let mut client = client;
                client.half_close();
                client.expect_eof();
            }
        }
    }
    wait_until("everybody is seen to have left", || procfs::accept_queue_len(full.address()) == 0);
    let mut last = full.held_up(LONG_LEASE_MS);
    full.one_leaves();
    last.expect_waiting();
}

#[test]
fn a_client_error_without_a_place_is_told_at_once() {
    let full = Full::start();
    let mut at_once = Client::connect(full.address());
    let mut bytes = wire::acquire("full", LONG_LEASE_MS);
    bytes.extend([wire::HEARTBEAT, 0x7f]);
    at_once.send(&bytes);
    at_once.expect_refusal(code::UNKNOWN_TYPE);
    let mut later = full.held_up(LONG_LEASE_MS);
    later.send(&[wire::HEARTBEAT, wire::ACQUIRE]);
    later.expect_refusal(code::DUPLICATE_ACQUIRE);
}

#[test]
fn those_who_have_no_place_never_have_every_place_of_the_loop_that_accepted_them() {
    let full = Full::start();
    let mut held_up = Vec::new();
    // Until no more of them are accepted.
    while procfs::accept_queue_len(full.address()) == 0 {
        held_up.push(full.held_up(LONG_LEASE_MS));
        assert!(held_up.len() < OPEN_FILES, "they have every place");
    }
    // All but the last one, which is in the kernel's queue.
    let places = held_up.len() - 1;
    assert!(places <= (OPEN_FILES * 2).div_ceil(3), "they have {places} places");
    full.server.expect_idle();
    // When they are gone, whoever comes is served.
    drop(held_up);
    full.elsewhere("other");
}

#[test]
fn a_shutdown_tells_those_who_have_no_place() {
    let mut full = Full::start();
    let mut held_up: Vec<Client> = (0..10).map(|_| full.held_up(LONG_LEASE_MS)).collect();
    let start = Instant::now();
    full.server.signal(Signal::TERM);
    for client in &mut held_up {
        client.expect_refusal(code::SHUTTING_DOWN);
    }
    for client in full.waiters.iter_mut().chain([&mut full.holder]) {
        client.expect_refusal(code::SHUTTING_DOWN);
    }
    println!("everybody was told within {:.1?}", start.elapsed());
    drop((held_up, std::mem::take(&mut full.waiters)));
    thread::spawn(move || drop(full.holder));
    assert_eq!(full.server.wait_for_exit().code(), Some(0));
}
