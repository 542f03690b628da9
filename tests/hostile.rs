//! Peers that mean harm, or behave as if they did: none of them disturbs the others, and what they
//! make the server keep is bounded and is given back.

mod harness;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::SockRef;

use harness::bystanders::Bystanders;
use harness::client::Client;
use harness::crowd::raise_open_file_limit;
use harness::own_port;
use harness::patience::{LONG_LEASE_MS, PATIENCE, wait_until};
use harness::procfs;
use harness::server::{Launch, Server};
use harness::wire::{self, code};

/// What the server may have in use beyond what it had before it was attacked for the first time:
/// tables that were touched and buffers that it keeps.
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// What it may have in use beyond that while it is being attacked.
const BURST_BYTES_MAX: u64 = 24 << 20;

/// What a second attack may leave beyond what the first one left. A leak would leave as much again.
const LEAK_BYTES_MAX: u64 = 512 << 10;

/// Attacks a server twice, with well-behaved sessions beside.
#[track_caller]
fn endure(attack: impl Fn(SocketAddr)) {
    raise_open_file_limit();
    let mut server = Launch::on_loopback().args(["--io-timeout", "1s"]).start();
    let bystanders = Bystanders::beside(server.address());
    let before = resident_bytes(&server);
    let peak = Peak::watch(&server);
    attack(server.address());
    let first = settled_bytes(&server, before + KEPT_BYTES_MAX);
    attack(server.address());
    let second = settled_bytes(&server, first + LEAK_BYTES_MAX);
    let peak = peak.finish();
    println!(
        "resident: {} KiB before, {} and {} after the attacks, {} at most; bystanders: {}",
        before >> 10,
        first >> 10,
        second >> 10,
        peak >> 10,
        bystanders.finish()
    );
    assert!(peak <= before + BURST_BYTES_MAX, "{peak} bytes at the worst, {before} before");
    server.expect_running();
    // Peers can't fill the log, and none of them is taken for a fault of the machine's.
    assert_eq!(server.stderr().len(), 1, "{:#?}", server.stderr());
    server.expect_idle();
    Client::owner(server.address(), "after all", LONG_LEASE_MS);
}

fn resident_bytes(server: &Server) -> u64 {
    procfs::resident_bytes(server.pid())
}

/// The most memory that a server has had in use at any time that was looked at.
struct Peak {
    thread: JoinHandle<u64>,
    is_over: Arc<AtomicBool>,
}

impl Peak {
    fn watch(server: &Server) -> Peak {
        let is_over = Arc::new(AtomicBool::new(false));
        let (pid, is_over_too) = (server.pid(), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut peak = 0;
            while !is_over_too.load(Ordering::SeqCst) {
                peak = procfs::resident_bytes(pid).max(peak);
                thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        Peak { thread, is_over }
    }

    fn finish(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("the process runs")
    }
}

/// Waits until the server has no more than this in use, and not less a moment later.
#[track_caller]
fn settled_bytes(server: &Server, bytes_max: u64) -> u64 {
    let mut last = (0, Instant::now());
    wait_until("the server's memory is back to normal", || {
        let now = resident_bytes(server);
        if now != last.0 {
            last = (now, Instant::now());
        }
        now <= bytes_max && last.1.elapsed() > Duration::from_millis(300)
    });
    last.0
}

/// Bytes that look random and are the same in every run.
fn random_bytes_of(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}

/// A plain socket, for peers that are not watched frame by frame.
#[track_caller]
fn connect(server: SocketAddr) -> TcpStream {
    let stream = own_port::connect(server);
    stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
    stream
}

/// Closes with an RST.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("setting SO_LINGER");
    drop(stream);
}

/// Reads to the end of the connection, which must come; a reset is one too.
#[track_caller]
fn expect_end(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the end does not come");
    }
    answer
}

#[test]
fn random_bytes() {
    endure(|server| {
        let mut random = fastrand::Rng::with_seed(1);
        let streams: Vec<TcpStream> = (0..1_000)
            .map(|_| {
                let mut stream = connect(server);
                let len = random.usize(1..=2_000);
                // The server may have ended it before all is sent.
                let _ = stream.write_all(&random_bytes_of(&mut random, len));
                stream
            })
            .collect();
        streams.into_iter().for_each(|stream| drop(expect_end(stream)));
    });
}

#[test]
fn random_bytes_behind_an_acquire() {
    endure(|server| {
        let mut random = fastrand::Rng::with_seed(2);
        for number in 0..1_000 {
            let mut stream = connect(server);
            let len = random.usize(300..1_300);
            let claim = wire::acquire(format!("lock {}", number % 7), LONG_LEASE_MS);
            // None of so many bytes but a heartbeat could stand there.
            let bytes = [claim, random_bytes_of(&mut random, len)].concat();
            let _ = stream.write_all(&bytes);
            let answer = expect_end(stream);
            assert!(!answer.is_empty(), "it was told something");
        }
    });
}

#[test]
fn frames_that_come_byte_by_byte_and_never_end() {
    endure(|server| {
        let start = Instant::now();
        let mut streams: Vec<TcpStream> = (0..300).map(|_| connect(server)).collect();
        let frame = wire::acquire([b'x'; 255], LONG_LEASE_MS);
        // A byte now and then, for longer than the io-timeout, which counts from the first.
        for byte in frame.iter().take(12) {
            for stream in &mut streams {
                let _ = stream.write_all(&[*byte]);
            }
            thread::sleep(Duration::from_millis(150));
        }
        assert!(start.elapsed() > Duration::from_secs(1));
        for stream in streams {
            assert_eq!(expect_end(stream), b"", "an unfinished frame is closed without a word");
        }
    });
}

#[test]
fn heartbeats_as_fast_as_possible_from_peers_that_read_nothing() {
    endure(|server| {
        thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    let mut client = Client::connect(server);
                    client.acquire(format!("lock {number}"), LONG_LEASE_MS);
                    client.flood();
                    // It is ended for it, whatever it has sent.
                    wait_until("the server gives up", || client.is_refused_by_kernel());
                });
            }
        });
    });
}

#[test]
fn names_that_are_said_to_be_endless() {
    endure(|server| {
        for name_len in [256, 0x7fff, 0xffff] {
            for _ in 0..100 {
                let mut client = Client::connect(server);
                client.send(&wire::acquire_header(wire::VERSION, LONG_LEASE_MS, name_len));
                client.expect_error(code::NAME_TOO_LONG);
                // What follows is read away within bounds, and has no meaning.
                let _ = client.try_send(&[b'x'; 20_000]);
                client.expect_end();
            }
        }
    });
}

#[test]
fn heartbeats_glued_by_the_thousand() {
    const HEARTBEATS: usize = 200_000;
    endure(|server| {
        let (client, _) = Client::owner(server, "lock", LONG_LEASE_MS);
        let sending = client.send_meanwhile(vec![wire::HEARTBEAT; HEARTBEATS]);
        let mut client = client;
        for _ in 0..HEARTBEATS {
            client.expect_acquired();
        }
        assert_eq!(sending.join().expect("the sender"), HEARTBEATS);
        client.expect_silence(Duration::from_millis(50));
    });
}

#[test]
fn a_hundred_thousand_chosen_names() {
    const NAMES: usize = 50_000;
    const AT_A_TIME: usize = 5_000;
    // The longest names there are, all equal but for the end; at the second half, for the start.
    let name = |number: usize| {
        let digits = format!("{number:05}");
        let rest = "a".repeat(255 - digits.len());
        if number.is_multiple_of(2) { rest + &digits } else { digits + &rest }
    };
    endure(|server| {
        for start in (0..NAMES).step_by(AT_A_TIME) {
            let mut streams: Vec<TcpStream> = (start..start + AT_A_TIME)
                .map(|number| {
                    let mut stream = connect(server);
                    stream.write_all(&wire::acquire(name(number), LONG_LEASE_MS)).expect("sending");
                    stream
                })
                .collect();
            for stream in &mut streams {
                let mut answer = [0; 9];
                stream.read_exact(&mut answer).expect("an answer");
                assert_eq!(answer[0], 0x12, "each name is a lock of its own");
            }
            streams.into_iter().for_each(reset);
        }
    });
}

#[test]
fn connections_that_are_closed_at_once() {
    endure(|server| {
        for number in 0..10_000 {
            let mut stream = connect(server);
            if number % 4 >= 2 {
                stream.write_all(&wire::acquire("lock", LONG_LEASE_MS)).expect("sending");
            }
            // Not in good order, half of them: that would leave more in TIME_WAIT than there are
            // ports.
            if number % 2 == 0 { reset(stream) } else { drop(stream) }
        }
        // The claims of all of them have ended.
        Client::owner_patiently(server, "lock");
    });
}

#[test]
fn connections_that_say_nothing() {
    endure(|server| {
        let streams: Vec<TcpStream> = (0..3_000).map(|_| connect(server)).collect();
        for stream in streams {
            assert_eq!(expect_end(stream), b"");
        }
    });
}

#[test]
fn claims_cut_at_every_byte() {
    let frame = wire::acquire("lock with a name", LONG_LEASE_MS);
    endure(|server| {
        for len in 0..=frame.len() {
            for ending in 0..12 {
                let mut stream = connect(server);
                stream.write_all(&frame[..len]).expect("sending");
                match ending % 4 {
                    // In the middle of a frame: in good order, by half, and with an RST.
                    0 => drop(stream),
                    1 => {
                        stream.shutdown(Shutdown::Write).expect("shutting down");
                        let answer = expect_end(stream);
                        assert_eq!(answer.is_empty(), len < frame.len(), "{len} bytes");
                    }
                    2 => reset(stream),
                    // Not all of what it was sent is read.
                    _ => {
                        stream.write_all(&[0xff; 100]).expect("sending");
                        reset(stream);
                    }
                }
            }
        }
        Client::owner_patiently(server, "lock with a name");
    });
}

#[test]
fn an_error_that_nobody_reads() {
    endure(|server| {
        let streams: Vec<TcpStream> = (0..1_000)
            .map(|_| {
                let mut stream = connect(server);
                // Refused at its first byte, and it goes on sending.
                let _ = stream.write_all(&[0xee; 4_000]);
                stream
            })
            .collect();
        streams.into_iter().for_each(reset);
    });
}

#[test]
fn a_lease_ends_in_time_though_others_never_pause() {
    let server = Launch::on_loopback().start();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let (address, is_over) = (server.address(), &is_over);
            scope.spawn(move || chatter(address, number, is_over));
        }
        let over = EndOfTest(&is_over);
        let mut slowest = Duration::ZERO;
        for round in 0..5 {
            let name = format!("lock {round}");
            let (holder, _) = Client::owner(server.address(), &name, 300);
            let start = Instant::now();
            let mut waiter = Client::waiter(server.address(), &name, LONG_LEASE_MS);
            waiter.expect_acquired();
            let late = start.elapsed().saturating_sub(Duration::from_millis(300));
            slowest = slowest.max(late);
            drop((holder, waiter));
        }
        drop(over);
        println!("at most {slowest:.1?} after the lease's end");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    });
}

/// Ends those who wait for the end of the test, also if it fails.
struct EndOfTest<'a>(&'a AtomicBool);

impl Drop for EndOfTest<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Heartbeats by the hundred, as fast as they are answered.
fn chatter(server: SocketAddr, number: usize, is_over: &AtomicBool) {
    let (mut client, token) = Client::owner(server, &format!("chatter {number}"), LONG_LEASE_MS);
    while !is_over.load(Ordering::SeqCst) {
        client.send(&[wire::HEARTBEAT; 100]);
        for _ in 0..100 {
            assert_eq!(client.expect_acquired(), token);
        }
    }
}

#[test]
fn a_burst_that_has_waited_in_the_kernels_queue() {
    let burst = procfs::accept_queue_len_max().min(4_000);
    endure(|server| {
        let streams: Vec<TcpStream> = (0..burst).map(|_| connect(server)).collect();
        streams.into_iter().for_each(reset);
    });
}
