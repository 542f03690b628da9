//! Accepting, when the kernel refuses it. A seccomp filter answers in the kernel's place: it holds
//! for the thread that sets it and for the acceptor that this thread starts, and for nothing else.
//! (For a server that is really out of descriptors see `capacity.rs`, for a server and refusals
//! that end `process/refused_accepts.rs`.)

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolock_ring::{Acceptor, Bell, Dealer};
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// No test waits longer than this for a condition.
const PATIENCE: Duration = Duration::from_secs(15);

#[cfg(target_arch = "x86_64")]
const SYS_ACCEPT4: i64 = 288;
#[cfg(target_arch = "aarch64")]
const SYS_ACCEPT4: i64 = 242;

/// When accepting failed, and with which number.
type Failure = (Instant, Option<i32>);

/// What the acceptor told its dealer.
#[derive(Clone, Default)]
struct Record {
    failures: Arc<Mutex<Vec<Failure>>>,
    dealt: Arc<Mutex<Vec<(OwnedFd, SocketAddr)>>>,
    has_no_descriptors: Arc<AtomicBool>,
}

impl Record {
    fn failures(&self) -> Vec<Failure> {
        self.failures.lock().expect("no panic in the dealer").clone()
    }

    fn dealt(&self) -> usize {
        self.dealt.lock().expect("no panic in the dealer").len()
    }

    #[track_caller]
    fn wait_for_failures(&self, count: usize) {
        wait_until(|| self.failures().len() >= count);
    }
}

impl Dealer for Record {
    fn has_room(&mut self) -> io::Result<bool> {
        if self.has_no_descriptors.load(Ordering::SeqCst) {
            return Err(Errno::MFILE.into());
        }
        Ok(true)
    }

    fn deal(&mut self, socket: OwnedFd, peer: SocketAddr) {
        self.dealt.lock().expect("no panic").push((socket, peer));
    }

    fn accept_failed(&mut self, error: &io::Error) {
        let failure = (Instant::now(), error.raw_os_error());
        self.failures.lock().expect("no panic").push(failure);
    }
}

#[track_caller]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("setting non-blocking");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// An acceptor to which the kernel says this of each connection.
fn start_refused(listener: TcpListener, errno: Errno, record: Record) -> Acceptor {
    let filter = SeccompFilter::new(
        BTreeMap::from([(SYS_ACCEPT4, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().expect("an architecture with seccomp"),
    );
    let program = BpfProgram::try_from(filter.expect("a filter")).expect("a filter's program");
    // The filter can't be taken off again, so that it is given to a thread for nothing else.
    let starter = thread::spawn(move || {
        seccompiler::apply_filter(&program).expect("applying the filter");
        let bell = Bell::new().expect("an eventfd");
        Acceptor::start(listener.into(), bell, record).expect("a thread")
    });
    starter.join().expect("the acceptor starts")
}

/// That `stop` comes back, and that then nobody listens.
#[track_caller]
fn stop(acceptor: Acceptor, address: SocketAddr) {
    let start = Instant::now();
    acceptor.stop();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
}

#[test]
fn what_would_fail_again_at_once_is_counted_and_tried_ever_more_slowly() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::PERM] {
        let (listener, address) = listen();
        let record = Record::default();
        let start = Instant::now();
        let acceptor = start_refused(listener, errno, record.clone());
        let _waiting = TcpStream::connect(address).expect("the kernel takes the connection");
        record.wait_for_failures(9);
        let failures = record.failures();
        assert!(failures.iter().all(|(_, code)| *code == Some(errno.raw_os_error())), "{errno}");
        // 5 + 10 + 20 + 40 + 80 + 160 + 200 + 200 ms lie between the first nine.
        let (ninth, _) = failures[8];
        assert!(ninth - start >= Duration::from_millis(700), "{errno}: {:?}", ninth - start);
        assert_eq!(record.dealt(), 0);
        stop(acceptor, address);
    }
}

#[test]
fn a_connection_that_is_gone_keeps_nobody_waiting() {
    let (listener, address) = listen();
    let record = Record::default();
    let start = Instant::now();
    let acceptor = start_refused(listener, Errno::CONNABORTED, record.clone());
    // With a pause after each so many would take more than ten times as long.
    record.wait_for_failures(1_000);
    let (last, code) = record.failures()[999];
    assert_eq!(code, Some(Errno::CONNABORTED.raw_os_error()));
    assert!(last - start < Duration::from_secs(10), "{:?}", last - start);
    stop(acceptor, address);
}

#[test]
fn an_acceptor_can_be_stopped_while_it_waits_to_try_again() {
    let (listener, address) = listen();
    let record = Record::default();
    record.has_no_descriptors.store(true, Ordering::SeqCst);
    let bell = Bell::new().expect("an eventfd");
    let acceptor = Acceptor::start(listener.into(), bell, record.clone()).expect("a thread");
    record.wait_for_failures(7);
    stop(acceptor, address);
}

#[test]
fn it_goes_on_when_the_want_is_over() {
    let (listener, address) = listen();
    let record = Record::default();
    record.has_no_descriptors.store(true, Ordering::SeqCst);
    let bell = Bell::new().expect("an eventfd");
    let acceptor = Acceptor::start(listener.into(), bell, record.clone()).expect("a thread");
    let early = TcpStream::connect(address).expect("the kernel takes the connection");
    record.wait_for_failures(7);
    assert_eq!(record.dealt(), 0);
    record.has_no_descriptors.store(false, Ordering::SeqCst);
    wait_until(|| record.dealt() == 1);
    let peer = record.dealt.lock().expect("no panic in the dealer")[0].1;
    assert_eq!(peer, early.local_addr().expect("an address"));

    // The pauses begin anew: seven of them would not be over so soon, had they stayed long.
    let before = record.failures().len();
    record.has_no_descriptors.store(true, Ordering::SeqCst);
    // It waits for a connection now, and looks for room before the one after.
    let _late = TcpStream::connect(address).expect("the kernel takes the connection");
    record.wait_for_failures(before + 6);
    let failures = &record.failures()[before..];
    let pauses: Vec<Duration> = failures.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(pauses.iter().sum::<Duration>() < Duration::from_secs(1), "{pauses:?}");
    stop(acceptor, address);
}
