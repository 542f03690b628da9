//! The control plane: everything that is not a session, on the main thread, so that it can never
//! hold up an event loop.

mod clock_watch;
mod runtime;
pub mod signals;

use std::io;

use monolock_core::effect::ReleaseReason;
use monolock_core::engine::Engine;
use monolock_core::fencing::TokenMint;
use monolock_ring::Acceptor;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use self::clock_watch::ClockWatch;
use crate::clock;
use crate::fatal::Fatal;
use crate::shards::{Command, ShardHandle};

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
    /// Its event loops.
    pub shards: std::sync::Arc<[ShardHandle]>,
    /// What deals connections to them, until the server shuts down.
    pub acceptor: Acceptor,
    /// Where their tokens come from.
    pub mint: std::sync::Arc<TokenMint>,
    /// What there is to act upon.
    pub events: UnboundedReceiver<Event>,
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
    let Server { shards, acceptor, mint, mut events } = server;
    let mut acceptor = Some(acceptor);
    let mut running = shards.len();
    let mut told = 0;
    let mut clock_watch = ClockWatch::new(clock::now().unix, clock::since_boot());
    let mut ticks = tokio::time::interval(clock_watch::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while running > 0 {
        let event = tokio::select! {
            event = events.recv() => event.expect("the signals' thread does not end"),
            _ = ticks.tick() => {
                clock_watch.look(clock::now().unix, clock::since_boot());
                continue;
            }
        };
        match event {
            Event::Signal(signals::Request::Reload) => {
                info!("SIGHUP: nothing to read again");
            }
            Event::Signal(signals::Request::ShutDown(signal)) => {
                info!("{signal}: shutting down");
                warn_if_tokens_are_ahead(&mint);
                // First nobody comes in any more, then those who are in are told.
                if let Some(acceptor) = acceptor.take() {
                    acceptor.stop();
                }
                for shard in shards.iter() {
                    shard.tell(Command::ShutDown);
                }
            }
            Event::ShardEnded(Ok(engine)) => {
                running -= 1;
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
