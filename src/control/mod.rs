//! The control plane: everything that is not a session, on the main thread, so that it can never
//! hold up an event loop.

mod admin;
mod audit;
mod clock_watch;
mod farewells;
mod http;
mod loop_watch;
pub mod metrics;
mod ops;
mod process_stats;
mod running;
mod runtime;
pub mod signals;
mod wall_time;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::ReleaseReason;
use monolock_core::engine::Engine;
use monolock_core::fencing::TokenMint;
use monolock_core::shard_map::ShardMap;
use monolock_ring::Acceptor;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use self::admin::Admin;
pub use self::admin::ENDPOINTS as ADMIN_ENDPOINTS;
pub(crate) use self::audit::AuditFile;
pub use self::audit::Target as AuditTarget;
pub(crate) use self::audit::open as open_audit_log;
use self::clock_watch::ClockWatch;
use self::ops::Ops;
pub use self::ops::PATHS as OPS_PATHS;
use self::running::{Addresses, Running};
use crate::audit::{Ledger, Queue};
use crate::clock;
use crate::config::Config;
use crate::fatal::Fatal;
use crate::shards::{AcceptCounts, Command, ShardHandle};

/// How often the control plane looks at the clocks and at the event loops.
const PERIOD: Duration = Duration::from_secs(1);

/// How long the end waits for the audit log.
const AUDIT_FINISH_MAX: Duration = Duration::from_secs(5);

/// A third of an event loop's share of a busy processor: enough to answer probes in time.
const NICENESS: i32 = 5;

/// Something that the control plane has to act upon.
#[derive(Debug)]
pub enum Event {
    /// A signal has come.
    Signal(signals::Request),
    /// An event loop has ended; this is what it leaves behind.
    ShardEnded(io::Result<Box<Engine>>),
    /// Holders have finished, or their time is over.
    Drained,
}

/// The parts of a running server that the control plane steers.
#[derive(Debug)]
pub struct Server {
    /// Where clients connect to.
    pub address: SocketAddr,
    /// For how many of them there is room.
    pub sessions_max: u64,
    /// Its event loops.
    pub shards: Arc<[ShardHandle]>,
    /// What deals connections to them, until the server shuts down.
    pub acceptor: Acceptor,
    /// What became of the connections.
    pub accept_counts: Arc<AcceptCounts>,
    /// Where the tokens come from.
    pub mint: Arc<TokenMint>,
    /// Which loop owns which lock.
    pub shard_map: ShardMap,
    /// The settings.
    pub config: Config,
    /// What there is to act upon.
    pub events: UnboundedReceiver<Event>,
    /// Where it is told of things to act upon.
    pub tell: UnboundedSender<Event>,
    /// Where probes and scrapes come in, if they may.
    pub ops: Option<TcpListener>,
    /// Where administrators come in, if they may.
    pub admin: Option<TcpListener>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// What is counted of it.
    pub audit_ledger: Ledger,
}

/// An audit log that is to be written.
#[derive(Debug)]
pub struct Audit {
    /// Where it is.
    pub target: AuditTarget,
    /// As it was opened at the start.
    pub(crate) file: Option<AuditFile>,
    /// What there is to be written.
    pub queue: Queue,
}

/// Steers the server until it has shut down.
///
/// # Errors
/// If an event loop could not go on.
pub fn run(server: Server) -> Result<(), Fatal> {
    yield_to_event_loops();
    match runtime::block_on(steer(server)) {
        Ok(result) => result,
        Err(error) => Err(Fatal::dead_end(format_args!("cannot start the control plane: {error}"))),
    }
}

/// When there is less than a processor for each, event loops go first. On Linux this is the calling
/// thread's alone; the others have been started before.
fn yield_to_event_loops() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        warn!("the control plane can't give way to the event loops: {error}");
    }
}

async fn steer(server: Server) -> Result<(), Fatal> {
    let Server { shards, shard_map, mint, accept_counts, .. } = server;
    let Server { address, sessions_max, config, acceptor, mut events, tell, .. } = server;
    let addresses = Addresses {
        listen: address,
        ops: address_of(server.ops.as_ref()),
        admin: address_of(server.admin.as_ref()),
    };
    let ledger = server.audit_ledger;
    let audit = server
        .audit
        .map(|Audit { target, file, queue }| audit::start(target, file, queue, &ledger));
    let running = Running::new(shards, shard_map, addresses, mint, accept_counts, ledger);
    let running = Rc::new(running);
    open_ports(&running, server.ops, server.admin, config, tell);
    let count = running.shards.len();
    // Said only now that everything stands.
    info!(shards = count, "listening on {address}, room for {sessions_max} sessions");
    let mut acceptor = Some(acceptor);
    let mut loops_running = count;
    let mut told = 0;
    let mut clock_watch = ClockWatch::new(clock::now().unix, clock::since_boot());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while loops_running > 0 {
        let event = tokio::select! {
            event = events.recv() => event.expect("the signals' thread does not end"),
            _ = ticks.tick() => {
                clock_watch.look(clock::now().unix, clock::since_boot());
                running.loop_watch.look(&running.shards);
                continue;
            }
        };
        match event {
            Event::Signal(signals::Request::Reload) => {
                reload(&running, audit.as_ref());
            }
            Event::Signal(signals::Request::ShutDown(signal)) => {
                info!("{signal}: shutting down");
                shut_down(&running, acceptor.take());
            }
            Event::Drained => shut_down(&running, acceptor.take()),
            Event::ShardEnded(Ok(engine)) => {
                loops_running -= 1;
                told += engine.counts().releases(ReleaseReason::Shutdown);
            }
            Event::ShardEnded(Err(error)) => {
                return Err(Fatal::dead_end(format_args!(
                    "an event loop can't go on: {error}; all locks are released"
                )));
            }
        }
    }
    if let Some(audit) = audit {
        // The port and all sessions are gone by now.
        audit.finish(AUDIT_FINISH_MAX).await.map_err(|lost| {
            Fatal::dead_end(format_args!(
                "{lost} events of the audit log are lost: it could not be written within \
                 {AUDIT_FINISH_MAX:?}"
            ))
        })?;
    }
    info!(holders_told = told, "stopped");
    Ok(())
}

/// Reads again what is read from files. It is not waited for, since a disk may hang.
fn reload(running: &Rc<Running>, audit: Option<&audit::Handle>) {
    let Some(audit) = audit else {
        info!("SIGHUP: nothing to read again");
        running.note_reload(true);
        return;
    };
    info!("SIGHUP: opening the audit log again");
    let (opened, running) = (audit.reopen(), Rc::clone(running));
    runtime::spawn(async move { running.note_reload(opened.await.unwrap_or(false)) });
}

/// Begins to answer those who look after the server.
fn open_ports(
    running: &Rc<Running>,
    ops: Option<TcpListener>,
    admin: Option<TcpListener>,
    config: Config,
    tell: UnboundedSender<Event>,
) {
    if let Some(listener) = ops {
        info!("/metrics, /healthz and /readyz are on http://{}", running.addresses.ops);
        let ops = Rc::new(Ops { running: Rc::clone(running) });
        runtime::spawn(http::serve(listener, ops));
    }
    if let Some(listener) = admin {
        warn_if_not_loopback(&listener);
        info!("the admin API is on http://{}", running.addresses.admin);
        let admin = Rc::new(Admin { running: Rc::clone(running), config, tell });
        runtime::spawn(http::serve(listener, admin));
    }
}

/// Begins to shut down: first nobody comes in any more, then those who are in are told.
fn shut_down(running: &Rc<Running>, acceptor: Option<Acceptor>) {
    running.begin_to_shut_down();
    warn_if_tokens_are_ahead(&running.mint);
    // Without one it is shutting down already.
    if let Some(acceptor) = acceptor {
        acceptor.stop();
        running.shards.iter().for_each(|shard| shard.tell(Command::ShutDown));
        runtime::spawn(farewells::pace(Rc::clone(running)));
    }
}

fn address_of(listener: Option<&TcpListener>) -> String {
    let address = listener.and_then(|listener| listener.local_addr().ok());
    address.map(|address| address.to_string()).unwrap_or_default()
}

fn warn_if_not_loopback(listener: &TcpListener) {
    if let Ok(address) = listener.local_addr()
        && !address.ip().is_loopback()
    {
        warn!(
            "the admin API has no authentication, and {address} is not a loopback address: whoever \
             reaches it can take locks from their holders"
        );
    }
}

/// Whoever stops the server now and starts it again at once would get tokens below the last ones.
fn warn_if_tokens_are_ahead(mint: &TokenMint) {
    let ahead_seconds = mint.ahead_seconds(clock::now().unix);
    if ahead_seconds > 0.0 {
        warn!(
            "the newest token is {ahead_seconds:.1} s ahead of the wall clock: wait that long \
             before a server takes over, or its tokens begin below those granted"
        );
    }
}
