//! From the settings to a running server.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::panic;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::shard_map::{ShardMap, ShardNumber};
use monolock_ring::{Acceptor, Bell, Ring, SetupError};
use tokio::sync::mpsc::UnboundedSender;
use tracing::error;

use crate::audit::{self, EVENTS_MAX, Ledger};
use crate::config::Config;
use crate::control::signals::Caught;
use crate::control::{self, Audit, AuditFile, AuditTarget, Event, Server};
use crate::driver::{Driver, Surroundings};
use crate::fatal::Fatal;
use crate::peer_limit::PeerLimit;
use crate::shards::{RoundRobin, ShardHandle, share_descriptors, spare_descriptors};
use crate::{clock, ended_holds, listener, logging, memory, passed_listener};

/// The ids of a ring's requests have this many bits for a connection's place.
const PLACES_MAX: u64 = 1 << 24;

/// An event loop's table of sockets costs the kernel eight bytes a place whether it is used or not,
/// and can't grow. A session needs more memory than this in the kernel alone, so more places than
/// the memory has room for would only be paid for.
const BYTES_A_SESSION_MIN: u64 = 4096;

/// Receive buffers of each event loop. The kernel hands out some twenty completions an enter, and a
/// buffer is free again as soon as its completion is dealt with; but all of them are used in turn,
/// so each is memory.
const RECEIVE_BUFFERS: u16 = 256;

/// What each event loop opens: its ring, and what wakes it.
const DESCRIPTORS_A_SHARD: u64 = 2;

/// What else the server opens before it serves, and a few for connections to come in by.
const DESCRIPTORS_BESIDE: u64 = 24;

/// Runs the server until it has shut down, or says in the log why it can't.
pub(crate) fn serve(config: &Config, signals: Caught) -> ExitCode {
    if let Err(fatal) = can_have_threads() {
        return fatal.report();
    }
    let _logging = logging::start(config);
    end_on_panic();
    match start(config, signals).and_then(control::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fatal) => {
            error!("{fatal}");
            fatal.exit_code()
        }
    }
}

/// Tries it, because the log's writer, which is the first thread, panics where it can't be had.
fn can_have_threads() -> Result<(), Fatal> {
    let thread = thread::Builder::new().spawn(|| {}).map_err(|error| no_thread(&error))?;
    thread.join().map_err(|_| Fatal::dead_end("a thread that does nothing has failed"))
}

fn no_thread(error: &io::Error) -> Fatal {
    Fatal::dead_end(format_args!(
        "cannot start a thread: {error}; raise the limit of processes (ulimit -u, TasksMax= of the \
         unit, the container's pids limit)"
    ))
}

fn start(config: &Config, signals: Caught) -> Result<Server, Fatal> {
    clock::wall_clock().map_err(Fatal::dead_end)?;
    let descriptors_max = monolock_ring::raise_descriptor_limit();
    require_descriptors(config.shards, descriptors_max)?;
    let passed = passed_listener::take(|variable| env::var_os(variable))?;
    let listener = match passed.protocol {
        Some(listener) => listener,
        None => listener::listen(config.listen)?,
    };
    let ops = http_listener(passed.ops, config.ops_listen, "--ops-listen")?;
    let admin = http_listener(passed.admin, config.admin_listen, "--admin-listen")?;
    let audit_file = config.audit_log.as_ref().map(open_audit_log).transpose()?;
    let address = listener.local_addr().map_err(no("the listener's address"))?;
    let bell = Bell::new().map_err(no("an eventfd"))?;
    let peer_limit = config.sessions_per_peer_max.map(|max| Arc::new(PeerLimit::new(max)));
    let (tell, events) = tokio::sync::mpsc::unbounded_channel();
    let mint = Arc::new(TokenMint::new());

    let places_max = places_max(config.shards, descriptors_max, memory::bytes_max());
    let shard_map = ShardMap::new(config.shards, random_key()?);
    let engine = engine_config(config, places_max)?;
    let (shards, posts): (Vec<_>, Vec<_>) = (0..config.shards.get())
        .map(|number| {
            let engine = Engine::of_shard(number, shard_map, engine, Arc::clone(&mint));
            start_shard(engine, places_max, tell.clone())
        })
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let shards: Arc<[ShardHandle]> = shards.into();
    // Every loop has opened by now what it has to.
    let descriptors_left = share_descriptors(&shards, spare_descriptors(descriptors_max));
    let audit_ledger = Ledger::default();
    let (recorders, audit_queue) = audit::queue(EVENTS_MAX, shards.len(), &audit_ledger);
    let ended_holds_max = if admin.is_some() { ended_holds::LOCKS_MAX } else { 0 };
    for (post, recorder) in posts.into_iter().zip(recorders) {
        post.take_up(Surroundings {
            shards: Arc::clone(&shards),
            bell: bell.clone(),
            peer_limit: peer_limit.clone(),
            ended_holds_max,
            recorder: config.audit_log.as_ref().map(|_| recorder),
        });
    }
    tell_of_signals(signals, tell.clone())?;
    let dealer = RoundRobin::new(Arc::clone(&shards), peer_limit, descriptors_left);
    let accept_counts = dealer.counts();
    let acceptor = Acceptor::start(OwnedFd::from(listener), bell, dealer)
        .map_err(no("a thread for accepting"))?;
    Ok(Server {
        address,
        sessions_max: u64::from(places_max) * u64::from(config.shards.get()),
        shards,
        shard_map,
        acceptor,
        accept_counts,
        mint,
        config: config.clone(),
        events,
        tell,
        ops,
        admin,
        audit: (config.audit_log.clone().zip(audit_file)).map(|(target, file)| Audit {
            target,
            file,
            queue: audit_queue,
        }),
        audit_ledger,
    })
}

fn engine_config(config: &Config, sessions_max: u32) -> Result<EngineConfig, Fatal> {
    Ok(EngineConfig {
        sessions_max,
        io_timeout: config.io_timeout,
        lease_max_ms: config.lease_max_ms,
        hash_key: random_key()?,
    })
}

/// Opens the audit log, so that a path that can't be written is known at the start.
fn open_audit_log(target: &AuditTarget) -> Result<Option<AuditFile>, Fatal> {
    control::open_audit_log(target).map_err(|error| {
        Fatal::dead_end(format_args!(
            "cannot open the audit log {target}: {error}; give another path with --audit-log, or \
             the right to write there"
        ))
    })
}

fn tell_of_signals(signals: Caught, tell: UnboundedSender<Event>) -> Result<(), Fatal> {
    let tell = move |request| {
        // Nobody listens any more only when the process is about to end.
        let _ = tell.send(Event::Signal(request));
    };
    signals.tell(tell).map_err(no("a thread for signals"))
}

/// The listener that was passed, or else one of our own, if there is to be one.
fn http_listener(
    passed: Option<TcpListener>,
    address: Option<SocketAddr>,
    flag: &str,
) -> Result<Option<TcpListener>, Fatal> {
    match (passed, address) {
        (Some(listener), _) => Ok(Some(listener)),
        (None, Some(address)) => listener::listen_for_http(address, flag).map(Some),
        (None, None) => Ok(None),
    }
}

fn require_descriptors(shards: NonZeroU32, descriptors_max: u64) -> Result<(), Fatal> {
    let needed = u64::from(shards.get()) * DESCRIPTORS_A_SHARD + DESCRIPTORS_BESIDE;
    if needed <= descriptors_max {
        return Ok(());
    }
    Err(Fatal::dead_end(format_args!(
        "{shards} event loops need {needed} file descriptors, and RLIMIT_NOFILE is \
         {descriptors_max}: raise it (ulimit -n, LimitNOFILE=), or choose fewer with --shards"
    )))
}

/// How many connections each event loop has room for: as many as its ring may have descriptors, but
/// all together no more than there is memory for.
fn places_max(shards: NonZeroU32, descriptors_max: u64, memory_bytes: u64) -> u32 {
    let by_memory = memory_bytes / BYTES_A_SESSION_MIN / u64::from(shards.get());
    let places = descriptors_max.min(by_memory).clamp(1, PLACES_MAX);
    u32::try_from(places).expect("limited")
}

/// An event loop that has its ring and waits to be told of its surroundings: of the other loops,
/// which must have started too.
struct Post(mpsc::SyncSender<Surroundings>);

impl Post {
    fn take_up(self, surroundings: Surroundings) {
        self.0.send(surroundings).expect("an event loop waits for its surroundings");
    }
}

/// Starts an event loop and waits until it has its ring, which only its own thread may make.
fn start_shard(
    engine: Engine,
    places_max: u32,
    tell: UnboundedSender<Event>,
) -> Result<(ShardHandle, Post), Fatal> {
    let (inbox_sender, inbox) = mpsc::channel();
    let (started, has_started) = mpsc::sync_channel(1);
    let (post, surroundings) = mpsc::sync_channel(1);
    let ring_config = monolock_ring::Config {
        slots: places_max,
        buffers: RECEIVE_BUFFERS,
        ..monolock_ring::Config::default()
    };
    let number = engine.shard();
    let body = move || {
        let ring = match Ring::new(&ring_config) {
            Ok(ring) => ring,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let _ = started.send(Ok(ring.waker()));
        // Nobody tells it when another one could not be started.
        let Ok(surroundings) = surroundings.recv() else { return };
        let driver = Driver::new(ring, engine, inbox, surroundings);
        let _ = tell.send(Event::ShardEnded(driver.run().map(Box::new)));
    };
    thread::Builder::new()
        .name(format!("shard-{number}"))
        .spawn(body)
        .map_err(|error| no_thread(&error))?;
    let waker = has_started
        .recv()
        .expect("an event loop's thread says how it started")
        .map_err(|error: SetupError| no_ring(number, &error))?;
    Ok((ShardHandle::new(inbox_sender, waker, places_max), Post(post)))
}

/// The first event loop shows what the kernel lacks; a later one only that there are too many.
fn no_ring(number: ShardNumber, error: &SetupError) -> Fatal {
    match number {
        0 => Fatal::dead_end(error),
        _ => Fatal::dead_end(format_args!(
            "{error}; or choose fewer event loops, for there was enough for --shards {number}"
        )),
    }
}

fn no(what: &str) -> impl FnOnce(io::Error) -> Fatal {
    move |error| Fatal::dead_end(format_args!("cannot get {what}: {error}"))
}

/// For a hash over the names of locks: clients choose them, so nobody outside may know it.
fn random_key() -> Result<[u8; 16], Fatal> {
    let mut key = [0; 16];
    let mut filled = 0;
    while filled < key.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut key[filled..], flags)
            .map_err(|error| Fatal::dead_end(format_args!("cannot get random bytes: {error}")))?;
    }
    Ok(key)
}

/// A server of which one thread is dead would keep its locks for ever: the whole process ends, in
/// debug builds too.
fn end_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        report(panic);
        process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).expect("not zero")
    }

    #[test]
    fn tables_are_as_large_as_the_descriptor_limit_and_not_larger_than_the_memory() {
        const GIB: u64 = 1 << 30;
        assert_eq!(places_max(shards(1), 20_000, 24 * GIB), 20_000);
        assert_eq!(places_max(shards(54), 20_000, 24 * GIB), 20_000);
        assert_eq!(places_max(shards(2), 1 << 20, 24 * GIB), 1 << 20);
        let large = places_max(shards(32), 1 << 20, 64 * GIB);
        assert_eq!(large, 1 << 19, "4 MiB of the kernel's memory for each of 32 tables");
        assert_eq!(places_max(shards(1), u64::MAX, u64::MAX), 1 << 24);
        assert_eq!(places_max(shards(1024), 20_000, 1), 1);
    }

    #[test]
    fn too_few_descriptors_for_the_loops_are_told_with_both_numbers() {
        require_descriptors(shards(20), 64).expect("enough");
        let error = require_descriptors(shards(21), 64).expect_err("too few").to_string();
        assert!(
            error.contains("21 event loops") && error.contains("RLIMIT_NOFILE is 64"),
            "{error}"
        );
    }
}
