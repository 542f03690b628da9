//! From the settings to a running server.

use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::panic;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_ring::{Acceptor, Bell, Ring, SetupError};
use tokio::sync::mpsc::UnboundedSender;
use tracing::error;

use crate::config::Config;
use crate::control::signals::Caught;
use crate::control::{self, Event, Server};
use crate::driver::{Driver, Surroundings};
use crate::fatal::Fatal;
use crate::peer_limit::PeerLimit;
use crate::shards::{Places, RoundRobin, ShardHandle};
use crate::{clock, listener, logging, passed_listener};

/// Event loops. One for now; everything outside them takes a list.
const SHARDS: usize = 1;

/// The ids of a ring's requests have this many bits for a connection's place.
const PLACES_MAX: u64 = 1 << 24;

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
    let thread = thread::Builder::new().spawn(|| {}).map_err(|error| {
        Fatal::dead_end(format_args!(
            "cannot start a thread: {error}; raise the limit of processes (ulimit -u, \
             TasksMax= of the unit, the container's pids limit)"
        ))
    })?;
    thread.join().map_err(|_| Fatal::dead_end("a thread that does nothing has failed"))
}

fn start(config: &Config, signals: Caught) -> Result<Server, Fatal> {
    clock::wall_clock().map_err(Fatal::dead_end)?;
    let descriptors_max = monolock_ring::raise_descriptor_limit();
    let passed = passed_listener::take(|variable| env::var_os(variable))?;
    let listener = match passed.protocol {
        Some(listener) => listener,
        None => listener::listen(config.listen)?,
    };
    let ops = match (passed.ops, config.ops_listen) {
        (Some(listener), _) => Some(listener),
        (None, Some(address)) => Some(listener::listen_for_http(address, "--ops-listen")?),
        (None, None) => None,
    };
    let address = listener.local_addr().map_err(no("the listener's address"))?;
    let bell = Bell::new().map_err(no("an eventfd"))?;
    let peer_limit = config.sessions_per_peer_max.map(|max| Arc::new(PeerLimit::new(max)));
    let (tell, events) = tokio::sync::mpsc::unbounded_channel();
    let mint = Arc::new(TokenMint::new());

    let places_max = u32::try_from(descriptors_max.min(PLACES_MAX)).expect("limited");
    let hash_key = hash_key()?;
    let shards = (0..SHARDS)
        .map(|number| {
            let parts = ShardParts {
                engine: EngineConfig {
                    sessions_max: places_max,
                    io_timeout: config.io_timeout,
                    lease_max_ms: config.lease_max_ms,
                    hash_key,
                },
                mint: Arc::clone(&mint),
                bell: bell.clone(),
                peer_limit: peer_limit.clone(),
                tell: tell.clone(),
            };
            start_shard(number, parts)
        })
        .collect::<Result<Vec<_>, _>>()?;

    signals
        .tell(move |request| {
            // Nobody listens any more only when the process is about to end.
            let _ = tell.send(Event::Signal(request));
        })
        .map_err(no("a thread for signals"))?;
    let dealer = RoundRobin::new(shards.clone(), peer_limit, descriptors_max);
    let accept_counts = dealer.counts();
    let acceptor = Acceptor::start(OwnedFd::from(listener), bell, dealer)
        .map_err(no("a thread for accepting"))?;
    let sessions_max = u64::from(places_max) * SHARDS as u64;
    Ok(Server { address, sessions_max, shards, acceptor, accept_counts, mint, events, ops })
}

struct ShardParts {
    engine: EngineConfig,
    mint: Arc<TokenMint>,
    bell: Bell,
    peer_limit: Option<Arc<PeerLimit>>,
    tell: UnboundedSender<Event>,
}

/// Starts an event loop and waits until it has its ring, which only its own thread may make.
fn start_shard(number: usize, parts: ShardParts) -> Result<ShardHandle, Fatal> {
    let ShardParts { engine, mint, bell, peer_limit, tell } = parts;
    let places = Arc::new(Places::new(engine.sessions_max));
    let (inbox_sender, inbox) = mpsc::channel();
    let (started, has_started) = mpsc::sync_channel(1);
    let surroundings = Surroundings { inbox, places: Arc::clone(&places), bell, peer_limit };
    let ring_config =
        monolock_ring::Config { slots: engine.sessions_max, ..monolock_ring::Config::default() };
    let body = move || {
        let ring = match Ring::new(&ring_config) {
            Ok(ring) => ring,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let _ = started.send(Ok(ring.waker()));
        let driver = Driver::new(ring, Engine::new(engine, mint), surroundings);
        let _ = tell.send(Event::ShardEnded(driver.run().map(Box::new)));
    };
    thread::Builder::new()
        .name(format!("shard-{number}"))
        .spawn(body)
        .map_err(no("a thread for an event loop"))?;
    let waker = has_started
        .recv()
        .expect("an event loop's thread says how it started")
        .map_err(|error: SetupError| Fatal::dead_end(error))?;
    Ok(ShardHandle::new(inbox_sender, waker, places))
}

fn no(what: &str) -> impl FnOnce(io::Error) -> Fatal {
    move |error| Fatal::dead_end(format_args!("cannot get {what}: {error}"))
}

/// Clients choose the names that are hashed with it, so nobody outside may know it.
fn hash_key() -> Result<[u8; 16], Fatal> {
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
