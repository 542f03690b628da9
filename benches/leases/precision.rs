//! How late a lease ends, alone and beside other load.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::claim::Claim;
use crate::quantiles::Quantiles;
use crate::subject::Subject;

/// The leases that are measured, each on a thread of its own.
const LEASES_MS: [u32; 6] = [5, 10, 20, 50, 100, 200];

/// How long each load is measured.
const DURATION: Duration = Duration::from_secs(15);

/// Sessions beside the measured ones, each with a heartbeat a second.
const SESSIONS: u32 = 10_000;

/// Connections a second beside the measured ones, if the machine can do so many.
const CONNECTIONS_A_SECOND: u32 = 20_000;

const HOURS_MS: NonZeroU32 = NonZeroU32::new(10 * 3_600_000).expect("not zero");

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Heartbeats,
    HeartbeatsAndConnections,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Beside::Nothing => f.write_str("alone"),
            Beside::Heartbeats => write!(f, "beside {SESSIONS} heartbeating sessions"),
            Beside::HeartbeatsAndConnections => {
                write!(f, "beside {SESSIONS} heartbeating sessions and a storm of connections")
            }
        }
    }
}

/// What the load beside the measurement has come to.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    heartbeats: AtomicU32,
    connections: AtomicU32,
}

pub(crate) fn measure(beside: Beside) -> Result<(), Box<dyn Error>> {
    let program = Path::new(env!("CARGO_BIN_EXE_monolock"));
    let server = Subject::start(program, &["--listen", &crate::address_of_our_own()])?;
    let crowd = match beside {
        Beside::Nothing => Vec::new(),
        Beside::Heartbeats | Beside::HeartbeatsAndConnections => crowd(server.address)?,
    };
    let load = Load::default();
    let lateness = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let _over = Over(&load.over);
        if !crowd.is_empty() {
            scope.spawn(|| heartbeat(crowd, &load));
        }
        if beside == Beside::HeartbeatsAndConnections {
            scope.spawn(|| connect(server.address, &load));
        }
        let probes: Vec<ScopedJoinHandle<'_, Result<Vec<Duration>, String>>> = LEASES_MS
            .iter()
            .map(|&lease_ms| scope.spawn(move || probe(server.address, lease_ms)))
            .collect();
        let mut lateness = Vec::new();
        for probe in probes {
            lateness.push(Quantiles::of(probe.join().expect("no panic")?));
        }
        Ok(lateness)
    })?;
    println!("{beside}");
    for (lease_ms, lateness) in LEASES_MS.iter().zip(lateness) {
        println!("  lease {lease_ms:>3} ms   {lateness}");
    }
    let secs = DURATION.as_secs_f64();
    if beside != Beside::Nothing {
        let heartbeats = f64::from(load.heartbeats.into_inner()) / secs;
        let connections = f64::from(load.connections.into_inner()) / secs;
        println!(
            "  beside it {heartbeats:.0} heartbeats and {connections:.0} connections a second"
        );
    }
    Ok(())
}

/// Ends the load when the measurement has ended, also by an error.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Again and again a holder falls silent, and a waiter sees how late it gets the lock.
fn probe(server: SocketAddr, lease_ms: u32) -> Result<Vec<Duration>, String> {
    let start = Instant::now();
    let mut lateness = Vec::new();
    while start.elapsed() < DURATION {
        lateness.push(end_of_one_lease(server, lease_ms).map_err(|error| error.to_string())?);
    }
    Ok(lateness)
}

fn end_of_one_lease(server: SocketAddr, lease_ms: u32) -> Result<Duration, Box<dyn Error>> {
    let name = format!("probe/{lease_ms}");
    let lease = Duration::from_millis(lease_ms.into());
    let lease_ms = NonZeroU32::new(lease_ms).expect("not zero");
    let (mut holder, mut waiter) = (Claim::connect(server)?, Claim::connect(server)?);
    let sent = Instant::now();
    holder.acquire(&name, lease_ms)?;
    if !holder.is_acquired()? {
        return Err("a lock that nobody has was not granted".into());
    }
    waiter.acquire(&name, HOURS_MS)?;
    // If this process was kept waiting for longer than the lease, the waiter holds at once.
    if !waiter.is_acquired()? && !waiter.is_acquired()? {
        return Err("a waiter was told twice that it waits".into());
    }
    let passed = sent.elapsed();
    holder.expect_end()?;
    passed.checked_sub(lease).ok_or(format!("{passed:?} for a lease of {lease:?}").into())
}

fn crowd(server: SocketAddr) -> Result<Vec<Claim>, Box<dyn Error>> {
    (0..SESSIONS)
        .map(|number| {
            let mut claim = Claim::connect(server)?;
            claim.acquire(&format!("crowd/{number}"), HOURS_MS)?;
            claim.is_acquired()?;
            Ok(claim)
        })
        .collect()
}

/// A heartbeat a second for each session; the answers are read a second later.
fn heartbeat(mut crowd: Vec<Claim>, load: &Load) {
    let start = Instant::now();
    let a_tick = crowd.len() / 1000;
    let mut next = 0;
    for tick in 1u32.. {
        if load.over.load(Ordering::Relaxed) {
            return;
        }
        for claim in &mut crowd[next..next + a_tick] {
            let has_beaten = tick > 1000;
            if has_beaten {
                claim.is_acquired().expect("an answer of a second ago");
            }
            claim.heartbeat().expect("a heartbeat");
        }
        load.heartbeats.fetch_add(u32::try_from(a_tick).expect("few"), Ordering::Relaxed);
        next = (next + a_tick) % crowd.len();
        let due = start + Duration::from_millis(tick.into());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Connects and closes, a hundred every 5 ms.
fn connect(server: SocketAddr, load: &Load) {
    let start = Instant::now();
    for tick in 1u32.. {
        if load.over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(connections) = (0..CONNECTIONS_A_SECOND / 200)
            .map(|_| Claim::connect(server))
            .collect::<Result<Vec<_>, _>>()
        else {
            // Ports that are still closing: what was reached is what is reported.
            continue;
        };
        let count = u32::try_from(connections.len()).expect("few");
        load.connections.fetch_add(count, Ordering::Relaxed);
        let due = start + Duration::from_millis(5) * tick;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
