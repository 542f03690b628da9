//! What happens to very many sessions at once, and what others notice of it.
//!
//! `cargo bench -p monolock-loadgen --bench mass -- [--sessions N] [EVENT..]`
//!
//! | event | what happens |
//! |---|---|
//! | `kill` | the server is killed; another one takes its address; all come back within a second |
//! | `expire` | all leases end within about a second |
//! | `full` | more claims for one lock than its shard has places, within a second; then all leave |
//!
//! The clients are on the server's processors, and have more to do than it: what bystanders notice
//! is the machine's want of both.

mod bystanders;
mod crowd;
#[path = "../scenarios/machine.rs"]
mod machine;
#[path = "../../../benches/processors/mod.rs"]
mod processors;
#[path = "../scenarios/programs.rs"]
mod programs;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolock_loadgen::procfs::Usage;
use monolock_loadgen::server_process::{Launch, ServerProcess};
use monolock_loadgen::source::Source;
use rustix::process::Signal;

use bystanders::Bystanders;
use crowd::{Claim, Crowd};
use processors::{Side, run_on};
use programs::Programs;

const EVENTS: [&str; 3] = ["kill", "expire", "full"];
const SESSIONS_DEFAULT: u32 = 100_000;
const BYSTANDERS: u32 = 1000;

/// Long enough to connect all, short enough to wait for.
const LEASE: Duration = Duration::from_secs(40);
const HOUR: Duration = Duration::from_secs(3600);

/// Connections a second where they are not what is measured.
const CONNECT_RATE: u32 = 5000;

/// How much of a table is planned to be used: locks are spread by a hash.
const FULL_PERCENT: u64 = 93;

/// So many more than a shard has places want one lock, in parts of those.
const BEYOND_PART: u64 = 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut sessions, mut events, mut is_bench) = (SESSIONS_DEFAULT, Vec::new(), false);
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
            "--bench" => is_bench = true,
            "--sessions" => sessions = given.next().ok_or("--sessions needs a number")?.parse()?,
            event if EVENTS.contains(&event) => events.push(argument),
            other => return Err(format!("no {other}; there are {}", EVENTS.join(", ")).into()),
        }
    }
    if !is_bench {
        println!("mass: a measurement of minutes; run it with cargo bench");
        return Ok(());
    }
    let server = Programs::build()?.build_server()?;
    machine::print();
    run_on(Side::Clients)?;
    let wants = |event: &str| events.is_empty() || events.iter().any(|wanted| wanted == event);
    if wants("kill") {
        kill(&server, sessions)?;
    }
    if wants("expire") {
        expire(&server, sessions)?;
    }
    if wants("full") {
        full(&server)?;
    }
    Ok(())
}

/// Killed, and back.
fn kill(path: &Path, sessions: u32) -> Result<(), Box<dyn Error>> {
    let shards = shards(sessions);
    let mut killed = start(path, shards, Launch::ANY_PORT)?;
    let address = killed.address();
    let mut crowd = Crowd::new(sessions)?;
    settle(&mut crowd, &source(address, sessions), sessions)?;

    println!("\n{sessions} sessions, and the server is killed with SIGKILL, {shards} rings");
    crowd.tally.reset();
    let before = (machine_cpu()?, own_cpu()?);
    let at = Instant::now();
    killed.signal(Signal::KILL);
    let next = start(path, shards, address)?;
    println!("  another one listens at its address after {:.0?}", at.elapsed());
    crowd.wait_until("the peers know", |tally| tally.ended.load(Ordering::Relaxed) == sessions)?;
    let told = at.elapsed();
    let ours = (own_cpu()? - before.1) + Usage::of(next.pid())?.cpu_seconds;
    let cpu = machine_cpu()? - before.0;
    println!(
        "  the last peer knows after {told:.2?}; until then {:.1} µs of CPU a session, besides \
         {:.1} of the clients and the next server",
        (cpu - ours) * 1e6 / f64::from(sessions),
        ours * 1e6 / f64::from(sessions),
    );
    crowd.wait_until("all are closed", |tally| tally.closed.load(Ordering::Relaxed) == sessions)?;

    println!("all of them connect within a second");
    let source = source(next.address(), sessions);
    let bystanders = Bystanders::start(crowd.source_of_others(&source), BYSTANDERS)?;
    bystanders.begin()?;
    let claim = Claim { lease_ms: lease_ms(HOUR), is_shared: false };
    let cpu_before = Usage::of(next.pid())?.cpu_seconds;
    crowd.open(&source, Duration::from_secs(1), claim);
    let took =
        crowd.wait_until("all hold", |tally| tally.acquired.load(Ordering::Relaxed) == sessions)?;
    let cpu = Usage::of(next.pid())?.cpu_seconds - cpu_before;
    println!(
        "  the last one holds its lock after {took:.2?}; {:.1} µs of the server's CPU each",
        cpu * 1e6 / f64::from(sessions)
    );
    println!("  {}", bystanders.report()?);
    Ok(())
}

/// All leases end.
fn expire(path: &Path, sessions: u32) -> Result<(), Box<dyn Error>> {
    let shards = shards(sessions);
    let mut server = start(path, shards, Launch::ANY_PORT)?;
    let mut crowd = Crowd::new(sessions)?;
    let source = source(server.address(), sessions);
    settle(&mut crowd, &source, sessions)?;
    let bystanders = Bystanders::start(crowd.source_of_others(&source), BYSTANDERS)?;
    // What is sent to a stopped server is read in one go: so all leases end together.
    server.signal(Signal::STOP);
    crowd.heartbeat();
    crowd.wait_until("all are sent", |tally| tally.sent.load(Ordering::Relaxed) == sessions)?;
    server.signal(Signal::CONT);
    let restarted = Instant::now();
    let spread = crowd.wait_until("all are answered", |tally| {
        tally.acquired.load(Ordering::Relaxed) == sessions
    })?;
    println!("\n{sessions} leases end that were restarted within {spread:.2?}, {shards} rings");
    let first_end = restarted + LEASE;
    thread::sleep(first_end.saturating_duration_since(Instant::now()));
    bystanders.begin()?;
    let cpu_before = Usage::of(server.pid())?.cpu_seconds;
    crowd.wait_until("all are ended", |tally| tally.ended.load(Ordering::Relaxed) == sessions)?;
    let took = first_end.elapsed();
    let cpu = Usage::of(server.pid())?.cpu_seconds - cpu_before;
    println!(
        "  the last peer knows {took:.2?} after the first lease's end; {:.1} µs of the server's \
         CPU each",
        cpu * 1e6 / f64::from(sessions)
    );
    println!("  {}", bystanders.report()?);
    Ok(())
}

/// More want a lock than its shard has places.
fn full(path: &Path) -> Result<(), Box<dyn Error>> {
    let places = monolock_ring::raise_descriptor_limit();
    let sessions = u32::try_from(places + places / BEYOND_PART)?;
    let server = start(path, 2, Launch::ANY_PORT)?;
    let mut crowd = Crowd::new(sessions)?;
    let source = source(server.address(), sessions);
    let bystanders = Bystanders::start(crowd.source_of_others(&source), BYSTANDERS)?;
    println!("\n{sessions} want one lock within a second; its shard has {places} places");
    bystanders.begin()?;
    let claim = Claim { lease_ms: lease_ms(HOUR), is_shared: true };
    crowd.open(&source, Duration::from_secs(1), claim);
    crowd.wait_until("all are sent", |tally| tally.sent.load(Ordering::Relaxed) == sessions)?;
    // Those without a place are told nothing: it is over when no more are told anything.
    let mut waiting = 0;
    loop {
        thread::sleep(Duration::from_millis(500));
        let now_waiting = crowd.tally.waiting.load(Ordering::Relaxed);
        if now_waiting == waiting && waiting > 0 {
            break;
        }
        waiting = now_waiting;
    }
    println!("  {waiting} wait in the queue, {} for a place", sessions - 1 - waiting);
    println!("  {}", bystanders.report()?);
    println!("all of them leave at once");
    bystanders.begin()?;
    crowd.leave();
    let took = crowd
        .wait_until("all are closed", |tally| tally.closed.load(Ordering::Relaxed) == sessions)?;
    println!("  {took:.2?}; {}", bystanders.report()?);
    Ok(())
}

/// All connect, at a rate that is no event.
fn settle(crowd: &mut Crowd, source: &Source, sessions: u32) -> Result<(), Box<dyn Error>> {
    let claim = Claim { lease_ms: lease_ms(LEASE), is_shared: false };
    crowd.open(source, Duration::from_secs(1) * sessions / CONNECT_RATE, claim);
    crowd.wait_until("all hold", |tally| tally.acquired.load(Ordering::Relaxed) == sessions)?;
    Ok(())
}

/// Where the crowd and its bystanders connect from.
fn source(server: SocketAddr, sessions: u32) -> Source {
    Source::new(server, sessions + BYSTANDERS)
}

fn lease_ms(lease: Duration) -> NonZeroU32 {
    u32::try_from(lease.as_millis()).ok().and_then(NonZeroU32::new).expect("a lease")
}

/// As many rings as it takes for so many sessions.
fn shards(sessions: u32) -> u64 {
    let slots = monolock_ring::raise_descriptor_limit() * FULL_PERCENT / 100;
    let sessions = u64::from(sessions + BYSTANDERS);
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    sessions.div_ceil(slots).max(processors)
}

fn start(path: &Path, shards: u64, listen: SocketAddr) -> Result<ServerProcess, Box<dyn Error>> {
    let path: PathBuf = path.to_owned();
    let args = ["--shards".into(), OsString::from(shards.to_string())];
    let launch = Launch { path: &path, args: &args, listen, clock: None };
    // A child has the affinity of its parent's thread.
    run_on(Side::Server)?;
    let server = ServerProcess::start(&launch, &AtomicBool::new(false));
    run_on(Side::Clients)?;
    Ok(server?)
}

/// Seconds for which processors were running anything, since the machine's start.
fn machine_cpu() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        return Err("/proc/stat has an unknown form".into());
    };
    #[expect(clippy::cast_precision_loss, reason = "100")]
    let ticks_a_second = rustix::param::clock_ticks_per_second() as f64;
    Ok((user + nice + system + irq + softirq) / ticks_a_second)
}

fn own_cpu() -> Result<f64, Box<dyn Error>> {
    Ok(Usage::of(std::process::id())?.cpu_seconds)
}
