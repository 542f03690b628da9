//! The control plane: everything that is not a session, on the main thread, so that it can never
//! hold up an event loop.

mod clock_watch;
mod http;
mod loop_watch;
pub mod metrics;
mod ops;
mod process_stats;
mod running;
mod runtime;
pub mod signals;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::ReleaseReason;
use monolock_core::engine::Engine;
use monolock_core::fencing::TokenMint;
use monolock_ring::Acceptor;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use self::clock_watch::ClockWatch;
use self::ops::Ops;
use self::running::Running;
use crate::clock;
use crate::fatal::Fatal;
use crate::shards::{AcceptCounts, Command, ShardHandle};

/// How often the control plane looks at the clocks and at the event loops.
const PERIOD: Duration = Duration::from_secs(1);

/// Something that the control plane has to act upon.
#[derive(Debug)]
pub enum Event {
    /// A signal has come.
    Signal(signals::Request),
    /// An event loop has ended; this is what it leaves behind.
    ShardEnded(io::Result<Box<Engine>>),
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
    /// What there is to act upon.
    pub events: UnboundedReceiver<Event>,
    /// Where probes and scrapes come in, if they may.
    pub ops: Option<TcpListener>,
}

/// Steers the server until it has shut down.
///
/// # Errors
/// If an event loop could not go on.
pub fn run(server: Server) -> Result<(), Fatal> {
    match runtime::block_on(steer(server)) {
        Ok(result) => result,
        Err(error) => Err(Fatal::dead_end(format_args!("cannot start the control plane: {error}"))),
    }
}

async fn steer(server: Server) -> Result<(), Fatal> {
    let Server { address, sessions_max, shards, acceptor, .. } = server;
    let Server { accept_counts, mint, mut events, ops, .. } = server;
    let running = Rc::new(Running::new(shards, mint, accept_counts));
    if let Some(listener) = ops {
        if let Ok(address) = listener.local_addr() {
            info!("/metrics, /healthz and /readyz are on http://{address}");
        }
        let ops = Rc::new(Ops { running: Rc::clone(&running) });
        runtime::spawn(http::serve(listener, ops));
    }
    // Said only now that everything stands.
    info!(
        "listening on {address}, room for {sessions_max} sessions in {} shards",
        running.shards.len()
    );
    let mut acceptor = Some(acceptor);
    let mut loops_running = running.shards.len();
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
                info!("SIGHUP: nothing to read again");
                running.note_reload(true);
            }
            Event::Signal(signals::Request::ShutDown(signal)) => {
                info!("{signal}: shutting down");
                running.begin_to_shut_down();
                warn_if_tokens_are_ahead(&running.mint);
                // First nobody comes in any more, then those who are in are told.
                if let Some(acceptor) = acceptor.take() {
                    acceptor.stop();
                }
                for shard in running.shards.iter() {
                    shard.tell(Command::ShutDown);
                }
            }
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
    info!(holders_told = told, "stopped");
    Ok(())
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
