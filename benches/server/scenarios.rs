//! What is done with the two servers, and what is printed about it.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::clients::{Clients, Greeting};
use crate::spread::Spread;
use crate::subject::Subject;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Every address of the loopback net reaches it: clients use several, for their ports' sake.
const SERVER_ARGUMENTS: [&str; 4] = ["--listen", "0.0.0.0:0", "--log-level", "info"];
const YARDSTICK_ARGUMENTS: [&str; 2] = ["--listen", "0.0.0.0:0"];

/// Connections a second, when they come and go.
const CONNECTION_RATE: u32 = 4000;

/// Places for connections that come and go.
const CONNECTION_PLACES: u32 = 256;

/// Sessions that bring a new server's buffers and queues to their working size.
const WARM_UP_SESSIONS: u32 = 1000;

/// Servers of which the memory is measured.
const MEMORY_ROUNDS: u32 = 3;

pub(crate) fn print_machine() {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = cpuinfo
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| line.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    println!("Linux {release}, {} x {}", models.len(), models.first().unwrap_or(&"unknown"));
    if models.len() == 1 {
        println!("LIMITED: servers and clients share one processor");
    }
}

/// One of the two, with its clients.
struct Side {
    subject: Subject,
    clients: Clients,
}

impl Side {
    fn start(program: &Path, arguments: &[&str], most: u32) -> Result<Side> {
        let subject = Subject::start(program, arguments)?;
        let clients = Clients::new(subject.address, most)?;
        Ok(Side { subject, clients })
    }

    fn start_both(server: &Path, yardstick: &Path, most: u32) -> Result<(Side, Side)> {
        let server = Side::start(server, &SERVER_ARGUMENTS, most)?;
        let yardstick = Side::start(yardstick, &YARDSTICK_ARGUMENTS, most)?;
        Ok((server, yardstick))
    }

    /// Processor microseconds of the server for each of what `work` does and counts.
    fn cpu_us(&mut self, work: impl FnOnce(&mut Clients) -> Result<u32>) -> Result<f64> {
        let before = self.subject.cpu();
        let count = work(&mut self.clients)?;
        // The last answer is there before the server sleeps.
        thread::sleep(Duration::from_millis(20));
        let cpu = self.subject.cpu() - before;
        Ok(cpu.as_secs_f64() * 1e6 / f64::from(count))
    }
}

/// Runs both, the first of every second round being the other one, after a round that warms up and
/// isn't counted.
fn interleaved(
    rounds: u32,
    mut pair: impl FnMut(bool) -> Result<[f64; 2]>,
) -> Result<Vec<[f64; 2]>> {
    pair(false)?;
    (0..rounds).map(|round| pair(round % 2 == 1)).collect()
}

fn print_pairs(names: [&str; 2], pairs: &[[f64; 2]]) {
    for (place, name) in names.into_iter().enumerate() {
        println!("  {name:<44}{:.2}", Spread::of(pairs.iter().map(|pair| pair[place])));
    }
    println!("  {:<44}{:.3}", "ratio", Spread::of(pairs.iter().map(|pair| pair[0] / pair[1])));
}

pub(crate) fn heartbeats(
    arguments: &Arguments,
    server: &Path,
    yardstick: &Path,
    sessions: u32,
) -> Result<()> {
    let Arguments { rate, round, rounds, .. } = *arguments;
    let (mut server, mut yardstick) = Side::start_both(server, yardstick, sessions)?;
    server.clients.open(sessions, Greeting::Acquire)?;
    yardstick.clients.open(sessions, Greeting::Byte)?;
    let mut answered = 0;
    let pairs = interleaved(rounds, |is_swapped| {
        let mut beat = |side: &mut Side| {
            side.cpu_us(|clients| {
                let count = clients.beat(sessions, rate, round)?;
                answered += count;
                Ok(count)
            })
        };
        if is_swapped {
            let second = beat(&mut yardstick)?;
            Ok([beat(&mut server)?, second])
        } else {
            Ok([beat(&mut server)?, beat(&mut yardstick)?])
        }
    })?;
    println!(
        "\nCPU us a heartbeat: {sessions} sessions each, {rate} heartbeats a second, {rounds} \
         rounds of {round:?}, {answered} heartbeats answered"
    );
    print_pairs(["lock server", "yardstick"], &pairs);
    println!(
        "  in user space: lock server {:.0} %, yardstick {:.0} %",
        server.subject.user_share() * 100.0,
        yardstick.subject.user_share() * 100.0
    );
    Ok(())
}

pub(crate) fn connections(arguments: &Arguments, server: &Path, yardstick: &Path) -> Result<()> {
    let Arguments { connections, rounds, beside, .. } = *arguments;
    let (mut server, mut yardstick) = Side::start_both(server, yardstick, CONNECTION_PLACES)?;
    let _beside = [
        server.clients.open_others(beside, Greeting::Acquire)?,
        yardstick.clients.open_others(beside, Greeting::Byte)?,
    ];
    let mut cycle = |is_server: bool, greeting| {
        let side = if is_server { &mut server } else { &mut yardstick };
        side.cpu_us(|clients| {
            clients.come_and_go(connections, CONNECTION_RATE, greeting)?;
            Ok(connections)
        })
    };
    for (greeting, title, names) in [
        (
            Greeting::Acquire,
            "CPU us a connection with one answer",
            [
                "lock server: accept, ACQUIRE, ACQUIRED, close",
                "yardstick: accept, byte, nine, close",
            ],
        ),
        (
            Greeting::None,
            "CPU us a connection on which nothing is sent",
            ["lock server: accept, close", "yardstick: accept, close"],
        ),
    ] {
        let others = if greeting == Greeting::Acquire { Greeting::Byte } else { Greeting::None };
        let pairs = interleaved(rounds, |is_swapped| {
            if is_swapped {
                let second = cycle(false, others)?;
                Ok([cycle(true, greeting)?, second])
            } else {
                Ok([cycle(true, greeting)?, cycle(false, others)?])
            }
        })?;
        println!(
            "\n{title}: {rounds} rounds of {connections}, {CONNECTION_RATE} a second, \
             {beside} others stay"
        );
        print_pairs(names, &pairs);
    }
    Ok(())
}

pub(crate) fn memory(arguments: &Arguments, server: &Path) -> Result<()> {
    let held = arguments.held;
    if held <= WARM_UP_SESSIONS {
        return Err(format!("--held must be more than {WARM_UP_SESSIONS}").into());
    }
    let (mut all, mut further) = (Vec::new(), Vec::new());
    for _ in 0..MEMORY_ROUNDS {
        let [empty, warm, full] = memory_with(server, [0, WARM_UP_SESSIONS, held], arguments.rate)?;
        all.push((full - empty) / f64::from(held));
        further.push((full - warm) / f64::from(held - WARM_UP_SESSIONS));
    }
    println!("\nbytes a session: {held} sessions with a lock each, {MEMORY_ROUNDS} fresh servers");
    println!("  {:<44}{:.0}", "all that came since the start", Spread::of(all));
    println!("  {:<44}{:.0}", "each session beyond the first 1000", Spread::of(further));
    Ok(())
}

/// What a fresh server has of memory with so many sessions, and then so many.
fn memory_with<const N: usize>(server: &Path, counts: [u32; N], rate: u32) -> Result<[f64; N]> {
    let most = counts.into_iter().max().unwrap_or(0);
    let Side { subject, mut clients } = Side::start(server, &SERVER_ARGUMENTS, most)?;
    let mut measured = [0.0; N];
    for (place, sessions) in measured.iter_mut().zip(counts) {
        if sessions > 0 {
            clients.open(sessions, Greeting::Acquire)?;
            clients.beat(sessions, rate, Duration::from_secs(2))?;
        }
        thread::sleep(Duration::from_millis(200));
        *place = subject.memory() as f64;
    }
    Ok(measured)
}
