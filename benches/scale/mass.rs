//! What happens to many sessions at once, and what others notice of it.

use std::error::Error;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid};

use crate::bystanders::Bystanders;
use crate::clients::{Clients, Greeting};
use crate::quantiles::Quantiles;
use crate::side::Side;
use crate::steady::{per_shard, shards_for};
use crate::subject::Subject;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Longer than connecting and a heartbeat from each take.
const LEASE: Duration = Duration::from_secs(40);
const LEASE_MS: NonZeroU32 = NonZeroU32::new(40_000).expect("not zero");

const HOURS_MS: NonZeroU32 = NonZeroU32::new(10 * 3_600_000).expect("not zero");

/// How long before the first lease ends bystanders are watched.
const LEAD: Duration = Duration::from_millis(100);

pub(crate) fn measure(server: &Path, sessions: u32) -> Result<()> {
    let shards = shards_for(sessions);
    println!("\n{sessions} sessions in {shards} shards; heartbeats of 1,000 others, in ms");
    expire(server, shards, sessions)?;
    queue(server, shards, per_shard())?;
    restart(server, shards, sessions)
}

fn print(what: &str, latencies: &Quantiles) {
    println!("  {what}\n    {latencies}");
}

/// All leases end within as much time as it takes the server to read a heartbeat of each.
fn expire(server: &Path, shards: u32, sessions: u32) -> Result<()> {
    let Side { subject, mut clients } = Side::server(server, shards, sessions)?;
    let mut bystanders = Bystanders::of(subject.address)?;
    clients.open(sessions, Greeting::Acquire { lease_ms: LEASE_MS })?;
    // What is sent to a stopped server is read in one go.
    subject.signal(Signal::STOP)?;
    clients.beat_all()?;
    subject.signal(Signal::CONT)?;
    let restarted = Instant::now();
    let (_, of_reading) = bystanders.during(|| clients.settle())?;
    let spread = restarted.elapsed();
    thread::sleep((restarted + LEASE - LEAD).saturating_duration_since(Instant::now()));
    let (lasted, of_ending) = bystanders.during(|| {
        clients.wait_for_closed()?;
        Ok(restarted.elapsed().saturating_sub(LEASE))
    })?;
    let ended = clients.ended();
    if ended.otherwise != sessions || ended.within_lease > 0 {
        return Err(format!("of {sessions} leases: {ended:?}").into());
    }
    print(&format!("a heartbeat of each is read, {spread:.1?} after a stop"), &of_reading);
    print(&format!("all leases end, {lasted:.1?} from the first to the last"), &of_ending);
    Ok(())
}

/// As many as one shard takes come to wait for one lock, and then leave at once.
fn queue(server: &Path, shards: u32, waiters: u32) -> Result<()> {
    let Side { subject, mut clients } = Side::server(server, shards, waiters)?;
    let mut bystanders = Bystanders::of(subject.address)?;
    let timed = |bystanders: &mut Bystanders, event: &mut dyn FnMut() -> Result<()>| {
        let start = Instant::now();
        bystanders.during(|| event().map(|()| start.elapsed()))
    };
    let greeting = Greeting::Queue { lease_ms: HOURS_MS };
    let (took, of_coming) = timed(&mut bystanders, &mut || clients.open(waiters, greeting))?;
    print(&format!("{waiters} come to wait for one lock, in {took:.1?}"), &of_coming);
    let (took, of_leaving) = timed(&mut bystanders, &mut || clients.close_all())?;
    print(&format!("its holder and all of them leave, in {took:.1?}"), &of_leaving);
    Ok(())
}

/// The server is killed, another one takes its place, and all come back as fast as they can.
fn restart(server: &Path, shards: u32, sessions: u32) -> Result<()> {
    let Side { subject, mut clients } = Side::server(server, shards, sessions)?;
    let greeting = Greeting::Acquire { lease_ms: HOURS_MS };
    clients.open(sessions, greeting)?;
    let (port, busy) = (subject.address.port(), busy_without(None)?);
    let killed = Instant::now();
    drop(subject);
    let ended = killed.elapsed();
    let subject = Side::subject(server, shards, port)?;
    let listening = killed.elapsed();
    clients.wait_for_closed()?;
    let told = killed.elapsed();
    let busy = busy_without(Some(&subject))?.saturating_sub(busy);
    println!(
        "  killed: ended after {ended:.0?}, another one listened after {listening:.0?}, all \
         peers knew after {told:.1?}\n    CPU of the kernel for it, us a session: {:.1}",
        busy.as_secs_f64() * 1e6 / f64::from(sessions)
    );
    let mut bystanders = Bystanders::of(subject.address)?;
    let (took, latencies) = bystanders.during(|| come_back(&mut clients, sessions, greeting))?;
    print(&format!("all come back, in {took:.1?}"), &latencies);
    Ok(())
}

fn come_back(clients: &mut Clients, sessions: u32, greeting: Greeting) -> Result<Duration> {
    let start = Instant::now();
    clients.open(sessions, greeting)?;
    Ok(start.elapsed())
}

/// The processor time of the whole machine so far, but not that of this process and of a server.
fn busy_without(server: Option<&Subject>) -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map(str::parse).collect::<std::result::Result<_, _>>()?;
    // All but idle and waiting for I/O, and the guests' time, which is in the others.
    let busy = ticks[..3].iter().chain(&ticks[5..7]).sum::<u64>();
    let busy = Duration::from_nanos(busy * 1_000_000_000 / rustix::param::clock_ticks_per_second());
    let own = Subject::cpu_of(getpid());
    Ok(busy.saturating_sub(own + server.map_or(Duration::ZERO, Subject::cpu)))
}
