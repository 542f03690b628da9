//! From the settings to a running server.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::panic;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::TokenMint;
use monolock_core::shard_map::ShardMap;
use monolock_ring::{Acceptor, Bell, Ring, SetupError};
use tokio::sync::mpsc::UnboundedSender;
use tracing::error;

use crate::config::Config;
use crate::control::signals::Caught;
use crate::control::{self, Event, Server};
use crate::driver::{Driver, Surroundings};
use crate::fatal::Fatal;
use crate::peer_limit::PeerLimit;
use crate::shards::{RoundRobin, ShardHandle, share_descriptors, spare_descriptors};
use crate::{clock, ended_holds, listener, logging, passed_listener};

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
    let ops = http_listener(passed.ops, config.ops_listen, "--ops-listen")?;
    let admin = http_listener(passed.admin, config.admin_listen, "--admin-listen")?;
    let address = listener.local_addr().map_err(no("the listener's address"))?;
    let bell = Bell::new().map_err(no("an eventfd"))?;
    let peer_limit = config.sessions_per_peer_max.map(|max| Arc::new(PeerLimit::new(max)));
    let (tell, events) = tokio::sync::mpsc::unbounded_channel();
    let mint = Arc::new(TokenMint::new());

    let places_max = u32::try_from(descriptors_max.min(PLACES_MAX)).expect("limited");
    let shard_map = ShardMap::new(config.shards, random_key()?);
    let engine = EngineConfig {
        sessions_max: places_max,
        io_timeout: config.io_timeout,
        lease_max_ms: config.lease_max_ms,
        hash_key: random_key()?,
    };
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
    let ended_holds_max = if admin.is_some() { ended_holds::LOCKS_MAX } else { 0 };
    for post in posts {
        post.take_up(Surroundings {
            shards: Arc::clone(&shards),
            bell: bell.clone(),
            peer_limit: peer_limit.clone(),
            ended_holds_max,
        });
    }

    tell_of_signals(signals, tell.clone())?;
    let dealer = RoundRobin::new(Arc::clone(&shards), peer_limit, descriptors_left);
    let accept_counts = dealer.counts();
    let acceptor = Acceptor::start(OwnedFd::from(listener), bell, dealer)
        .map_err(no("a thread for accepting"))?;
    let sessions_max = u64::from(places_max) * u64::from(config.shards.get());
    Ok(Server {
        address,
        sessions_max,
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
    let ring_config =
        monolock_ring::Config { slots: places_max, ..monolock_ring::Config::default() };
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
        .map_err(no("a thread for an event loop"))?;
    let waker = has_started
        .recv()
        .expect("an event loop's thread says how it started")
        .map_err(|error: SetupError| Fatal::dead_end(error))?;
    Ok((ShardHandle::new(inbox_sender, waker, places_max), Post(post)))
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
