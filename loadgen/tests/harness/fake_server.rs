//! A small lock server, a thread a connection, that can be told to break one of its promises.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use monolock_core::wire::{
    ACQUIRED, ERROR_LEN_MAX, ErrorCode, Farewell, First, WAITING, decode_first,
};

/// How long a peer may leave its answers unread.
const WRITE_MAX: Duration = Duration::from_millis(100);

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    None,
    /// Everybody is granted the lock at once.
    EverybodyHolds,
    /// Every grant has the same token.
    TokenRepeats,
    /// Every grant has a smaller token.
    TokenShrinks,
    /// The last in the queue is promoted.
    LastInFirstOut,
    /// Nobody is promoted.
    NobodyPromoted,
    /// A holder is closed without a word at its third heartbeat, and the next one is promoted.
    HolderClosedEarly,
    /// Connections are accepted and closed at the first heartbeat.
    HeartbeatsRefused,
    /// Leases end when half of them is over.
    ExpiresEarly,
    /// The same, and the past holder isn't told.
    ExpiresEarlyInSecret,
}

/// A running server. Its threads end with the test's process.
pub(crate) struct FakeServer {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    fault: Fault,
    locks: Mutex<HashMap<String, Lock>>,
    grants: AtomicU64,
}

#[derive(Default)]
struct Lock {
    holder: Option<Session>,
    queue: VecDeque<Session>,
}

struct Session {
    number: u64,
    stream: TcpStream,
    token: u64,
    heartbeats_held: u64,
}

impl FakeServer {
    pub(crate) fn start(fault: Fault) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared { fault, locks: Mutex::default(), grants: AtomicU64::new(0) });
        let serving = Arc::clone(&shared);
        let accepting = listener.try_clone().expect("a descriptor");
        thread::spawn(move || {
            for (number, stream) in (0..).zip(accepting.incoming().map_while(Result::ok)) {
                let shared = Arc::clone(&serving);
                // A connection that breaks ends its thread, which is all that is to be done.
                thread::spawn(move || shared.serve(number, &stream));
            }
        });
        FakeServer { address, listener, shared }
    }

    /// From here on it is as if it had been killed: all sessions are closed, and nobody listens.
    pub(crate) fn end(&self) {
        socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both).expect("it listens");
        for Lock { holder, queue } in self.shared.lock().values() {
            for session in holder.iter().chain(queue) {
                // It may be closed already, by the peer.
                let _ = session.stream.shutdown(Shutdown::Both);
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells everybody, by an ERROR and the end of the stream.
    pub(crate) fn shut_down(&self) {
        for lock in self.shared.lock().values_mut() {
            for session in lock.holder.iter_mut().chain(&mut lock.queue) {
                let farewell = Farewell::new(ErrorCode::SHUTTING_DOWN);
                let mut frame = [0; ERROR_LEN_MAX];
                let len = farewell.encode(&mut frame);
                session.stream.write_all(&frame[..len]).expect("a peer that reads");
                session.stream.shutdown(Shutdown::Write).expect("a connection");
            }
        }
    }

    pub(crate) fn grants(&self) -> u64 {
        self.shared.grants.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, number: u64, mut stream: &TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        // Who doesn't read for so long is cut off. Until then everybody waits for it.
        stream.set_write_timeout(Some(WRITE_MAX)).ok()?;
        // As the real server does, so that who does not read is noticed before megabytes are there.
        socket2::SockRef::from(stream).set_send_buffer_size(16 << 10).ok()?;
        let mut bytes = Vec::new();
        let (name, mut heartbeats) = loop {
            let mut buffer = [0; 512];
            let len = stream.read(&mut buffer).ok().filter(|&len| len > 0)?;
            bytes.extend_from_slice(&buffer[..len]);
            match decode_first(&bytes).ok()? {
                First::Incomplete => {}
                First::Complete { acquire, len } => {
                    let lease = Duration::from_millis(u64::from(acquire.lease_ms.get()));
                    let is_early =
                        matches!(self.fault, Fault::ExpiresEarly | Fault::ExpiresEarlyInSecret);
                    stream.set_read_timeout(Some(if is_early { lease / 2 } else { lease })).ok()?;
                    break (acquire.name.to_owned(), bytes.len() - len);
                }
            }
        };
        self.ask(number, stream.try_clone().ok()?, &name);
        while self.answer_all(heartbeats, number, stream, &name).is_some() {
            if heartbeats > 0 && self.fault == Fault::HeartbeatsRefused {
                break;
            }
            let mut buffer = [0; 512];
            match stream.read(&mut buffer) {
                Ok(len @ 1..) => heartbeats = len,
                _ => break,
            }
        }
        self.leave(number, &name);
        let is_secret = self.fault == Fault::ExpiresEarlyInSecret;
        // Each time it has waited for a lease in vain.
        while is_secret && stream.peek(&mut [0]).is_err() {}
        // It may be closed already, by the peer.
        let _ = stream.shutdown(Shutdown::Both);
        Some(())
    }

    /// None if the session is to be closed, or its peer doesn't read.
    fn answer_all(&self, count: usize, number: u64, stream: &TcpStream, name: &str) -> Option<()> {
        for _ in 0..count {
            let heartbeats = self.answer(number, stream, name)?;
            if self.fault == Fault::HolderClosedEarly && heartbeats >= 3 {
                return None;
            }
        }
        Some(())
    }

    fn ask(&self, number: u64, stream: TcpStream, name: &str) {
        let mut locks = self.lock();
        let lock = locks.entry(name.to_owned()).or_default();
        let mut session = Session { number, stream, token: 0, heartbeats_held: 0 };
        let is_free = lock.holder.is_none() && lock.queue.is_empty();
        if is_free || self.fault == Fault::EverybodyHolds {
            self.grant(lock, session);
        } else {
            // A peer that is gone shows when it is read from.
            let _ = session.stream.write_all(&[WAITING]);
            lock.queue.push_back(session);
        }
    }

    fn grant(&self, lock: &mut Lock, mut session: Session) {
        let grants = self.grants.fetch_add(1, Ordering::SeqCst);
        session.token = match self.fault {
            Fault::TokenRepeats => 1_000_000,
            Fault::TokenShrinks => 1_000_000_000 - grants,
            _ => 1 + grants,
        };
        let _ = session.stream.write_all(&acquired(session.token));
        if self.fault == Fault::EverybodyHolds {
            lock.queue.extend(lock.holder.take());
        }
        lock.holder = Some(session);
    }

    /// Says where a session stands. Returns how often it has said that it holds the lock.
    fn answer(&self, number: u64, mut stream: &TcpStream, name: &str) -> Option<u64> {
        let mut locks = self.lock();
        let Lock { holder, queue } = locks.get_mut(name)?;
        let mut sessions = holder.iter_mut().chain(queue);
        let session = sessions.find(|session| session.number == number)?;
        match session.token {
            0 => stream.write_all(&[WAITING]).ok()?,
            token => {
                session.heartbeats_held += 1;
                stream.write_all(&acquired(token)).ok()?;
            }
        }
        Some(session.heartbeats_held)
    }

    fn leave(&self, number: u64, name: &str) {
        let mut locks = self.lock();
        let Some(lock) = locks.get_mut(name) else {
            return;
        };
        lock.queue.retain(|waiter| waiter.number != number);
        if lock.holder.take_if(|holder| holder.number == number).is_none() {
            return;
        }
        let next = match self.fault {
            Fault::NobodyPromoted | Fault::EverybodyHolds => None,
            Fault::LastInFirstOut => lock.queue.pop_back(),
            _ => lock.queue.pop_front(),
        };
        if let Some(next) = next {
            self.grant(lock, next);
        }
    }
}

fn acquired(token: u64) -> [u8; 9] {
    let mut frame = [ACQUIRED; 9];
    frame[1..].copy_from_slice(&token.to_be_bytes());
    frame
}
