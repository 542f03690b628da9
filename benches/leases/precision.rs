//! How late a lease ends, alone and beside other load.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::claim::Claim;
use crate::processor::Account;
use crate::processors::Side;
use crate::quantiles::Quantiles;
use crate::storm;
use crate::subject::Subject;

/// The leases that are measured, each on a thread of its own.
const LEASES_MS: [u32; 6] = [5, 10, 20, 50, 100, 200];

/// How long each load is measured.
const DURATION: Duration = Duration::from_secs(15);

/// Sessions beside the measured ones, each with a heartbeat a second.
const SESSIONS: u32 = 10_000;

/// Connections a second beside the measured ones.
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
            Beside::HeartbeatsAndConnections => write!(
                f,
                "beside {SESSIONS} heartbeating sessions and {CONNECTIONS_A_SECOND} connections a \
                 second"
            ),
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

impl Load {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What was seen of the ends of one lease's holders.
#[derive(Default)]
struct Lateness {
    /// By the client, its own delays included.
    seen: Vec<Duration>,
    /// By the kernel, when the next holder's ACQUIRED arrived: at most, from when the last holder
    /// began to send its ACQUIRE, and at least, from when the answer to that arrived.
    at_most: Vec<Duration>,
    at_least: Vec<Duration>,
    /// Ends that this process was too late to wait for.
    missed: u32,
    rounds: u32,
}

pub(crate) fn measure(beside: Beside) -> Result<(), Box<dyn Error>> {
    let program = Path::new(env!("CARGO_BIN_EXE_monolock"));
    let subject = Subject::start(program, &["--listen", &crate::listen_address()])?;
    let server = subject.address;
    let crowd = match beside {
        Beside::Nothing => Vec::new(),
        Beside::Heartbeats | Beside::HeartbeatsAndConnections => crowd(server)?,
    };
    let _noted = noted_claim(server)?;
    let load = Load::default();
    let start = Instant::now();
    let cpu_before = [subject.cpu(), own_cpu()?];
    let accounts_before = [Account::of(Side::Server)?, Account::of(Side::Clients)?];
    let lateness = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let _over = Over(&load.over);
        if !crowd.is_empty() {
            scope.spawn(|| heartbeat(crowd, &load));
        }
        if beside == Beside::HeartbeatsAndConnections {
            scope.spawn(|| {
                let blown = storm::blow(server, CONNECTIONS_A_SECOND, || load.is_over());
                load.connections.store(blown.expect("connections"), Ordering::Relaxed);
            });
        }
        let probes: Vec<ScopedJoinHandle<'_, Result<Lateness, String>>> = LEASES_MS
            .iter()
            .map(|&lease_ms| scope.spawn(move || probe(server, lease_ms)))
            .collect();
        let lateness = probes.into_iter().map(|probe| probe.join().expect("no panic"));
        Ok(lateness.collect::<Result<Vec<Lateness>, String>>()?)
    })?;
    let secs = start.elapsed().as_secs_f64();
    let [server_cpu, client_cpu] = [subject.cpu() - cpu_before[0], own_cpu()? - cpu_before[1]];
    let accounts = [
        Account::of(Side::Server)?.since(accounts_before[0]),
        Account::of(Side::Clients)?.since(accounts_before[1]),
    ];
    println!("how late leases end {beside}, in ms");
    for (lease_ms, lateness) in LEASES_MS.iter().zip(lateness) {
        let Lateness { seen, at_most, at_least, missed, .. } = lateness;
        println!("  lease {lease_ms:>3} ms, seen by a client   {}", Quantiles::of(seen));
        println!("    by the kernel, at most    {}", Quantiles::of(at_most));
        println!("    by the kernel, at least   {}", Quantiles::of(at_least));
        if missed > 0 {
            println!("    {missed} more that the client was too late to wait for");
        }
    }
    let a_second = |count: AtomicU32| f64::from(count.into_inner()) / secs;
    println!(
        "  beside it {:.0} heartbeats and {:.0} connections a second",
        a_second(load.heartbeats),
        a_second(load.connections)
    );
    println!("  the server's processor: {}", accounts[0].with("server", server_cpu));
    println!("  the clients' processor: {}", accounts[1].with("clients", client_cpu));
    Ok(())
}

/// The processor time of this process so far.
fn own_cpu() -> Result<Duration, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(time.num_microseconds().try_into()?))
}

/// Ends the load when the measurement has ended, also by an error.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Again and again a holder falls silent, and a waiter sees how late it gets the lock.
fn probe(server: SocketAddr, lease_ms: u32) -> Result<Lateness, String> {
    let start = Instant::now();
    let mut lateness = Lateness::default();
    while start.elapsed() < DURATION {
        lateness.see_one_end(server, lease_ms).map_err(|error| error.to_string())?;
    }
    Ok(lateness)
}

impl Lateness {
    fn see_one_end(&mut self, server: SocketAddr, lease_ms: u32) -> Result<(), Box<dyn Error>> {
        // Another one each time: who has just closed may not be gone yet.
        self.rounds += 1;
        let name = format!("probe/{lease_ms}/{}", self.rounds);
        let lease = Duration::from_millis(lease_ms.into());
        let lease_ms = NonZeroU32::new(lease_ms).expect("not zero");
        let (mut holder, mut waiter) = (Claim::connect(server)?, Claim::connect(server)?);
        holder.note_arrivals()?;
        waiter.note_arrivals()?;
        let (sent, sent_by_wall_clock) = (Instant::now(), SystemTime::now());
        holder.acquire(&name, lease_ms)?;
        if !holder.is_acquired()? {
            return Err("a lock that nobody has was not granted".into());
        }
        waiter.acquire(&name, HOURS_MS)?;
        let has_waited = !waiter.is_acquired()?;
        if has_waited && !waiter.is_acquired()? {
            return Err("a waiter was told twice that it waits".into());
        }
        let passed = sent.elapsed();
        holder.expect_end()?;
        let late = passed.checked_sub(lease);
        let late = late.ok_or_else(|| format!("{passed:?} for a lease of {lease:?}"))?;
        if !has_waited {
            self.missed += 1;
            return Ok(());
        }
        let sent = sent_by_wall_clock.duration_since(SystemTime::UNIX_EPOCH)?;
        let over = waiter.arrived()?.saturating_sub(lease);
        self.seen.push(late);
        self.at_most.push(over.saturating_sub(sent));
        self.at_least.push(over.saturating_sub(holder.arrived()?));
        Ok(())
    }
}

/// A claim whose answers' arrivals the kernel notes. It begins to do so some time after it is asked
/// to, and ends when nobody asks any more: so one is kept for as long as there are others.
fn noted_claim(server: SocketAddr) -> Result<Claim, Box<dyn Error>> {
    let mut claim = Claim::connect(server)?;
    claim.note_arrivals()?;
    claim.acquire("noted", HOURS_MS)?;
    claim.is_acquired()?;
    let start = Instant::now();
    while let Err(error) = claim.arrived() {
        if start.elapsed() > Duration::from_secs(1) {
            return Err(error);
        }
        claim.heartbeat()?;
        claim.is_acquired()?;
    }
    Ok(claim)
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
        if load.is_over() {
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
