//! The server under test: our own, or one that runs already.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::SHARDS;
use crate::harness::server::{Launch, Server};

/// The io-timeout of our own server for the tests in which it has no part, so long that a busy
/// machine does not let them run into it.
const OWN_IO_TIMEOUT: Duration = Duration::from_secs(60);

/// The io-timeout of our own server for the tests that wait for it.
const OWN_SHORT_IO_TIMEOUT: Duration = Duration::from_secs(2);

/// The server under test.
pub(crate) struct Subject {
    pub(crate) address: SocketAddr,
    /// When it gives up a peer that doesn't finish its first frame or doesn't read.
    pub(crate) io_timeout: Duration,
    /// The process, if it is ours.
    _process: Option<Server>,
}

/// A server that tests share. The last test that uses it ends it: a static is never dropped and
/// would leave it running.
type Shared = Mutex<Weak<Subject>>;

/// The server that the tests of this process share.
#[track_caller]
pub(crate) fn server() -> Arc<Subject> {
    static SHARED: Shared = Mutex::new(Weak::new());
    shared_server(&SHARED, OWN_IO_TIMEOUT)
}

/// The same for tests that wait for the io-timeout. If the server is a foreign one, the same one.
#[track_caller]
pub(crate) fn impatient_server() -> Arc<Subject> {
    static SHARED: Shared = Mutex::new(Weak::new());
    shared_server(&SHARED, OWN_SHORT_IO_TIMEOUT)
}

#[track_caller]
fn shared_server(shared: &Shared, own_io_timeout: Duration) -> Arc<Subject> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let subject = foreign_subject().unwrap_or_else(|| own_subject(own_io_timeout));
        let subject = Arc::new(subject);
        *shared = Arc::downgrade(&subject);
        subject
    })
}

fn foreign_subject() -> Option<Subject> {
    let address = std::env::var("MONOLOCK_TEST_ADDR").ok()?;
    let io_timeout_ms = match std::env::var("MONOLOCK_TEST_IO_TIMEOUT_MS") {
        Ok(text) => text.parse().expect("MONOLOCK_TEST_IO_TIMEOUT_MS is a number"),
        Err(_) => 5000,
    };
    let mut addresses = address.to_socket_addrs().expect("MONOLOCK_TEST_ADDR is HOST:PORT");
    Some(Subject {
        address: addresses.next().expect("MONOLOCK_TEST_ADDR has an address"),
        io_timeout: Duration::from_millis(io_timeout_ms),
        _process: None,
    })
}

fn own_subject(io_timeout: Duration) -> Subject {
    let argument = format!("{}ms", io_timeout.as_millis());
    let args = ["--shards", SHARDS, "--io-timeout", &argument];
    let process = Launch::on_loopback().args(args).start();
    Subject { address: process.address(), io_timeout, _process: Some(process) }
}

/// A lock name that nobody else uses, on a server that may be in other use too.
pub(crate) fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    format!("test/{}/{}/{count}", process::id(), now.as_nanos())
}
