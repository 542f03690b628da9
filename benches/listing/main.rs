//! What a list of all locks costs those whose heartbeats the server answers meanwhile.
//!
//! `cargo bench --bench listing`, with `-- --help` for what can be set.
//!
//! Sessions hold a lock each, and some of them send heartbeats at a constant rate. Rounds with
//! somebody who lists all locks over and over, whole and in pages, alternate with rounds without.
//! The time to an answer counts from when the heartbeat was due. Every list is checked.
//!
//! With `--locks 100000 --shards 6` there are more sessions than a process may have descriptors;
//! those that only hold their locks are in processes of their own.

mod clients;
mod holders;
mod lister;
#[path = "../processors/mod.rs"]
mod processors;
#[path = "../server/spread.rs"]
mod spread;
#[path = "../server/subject.rs"]
mod subject;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clients::{Clients, Latencies};
use holders::Holders;
use processors::{Side, run_on};
use spread::Spread;
use subject::Subject;

const HELP: &str = "\
cargo bench --bench listing -- [OPTIONS]

  --locks N       sessions, each with a lock of its own [15000]
  --shards N      event loops of the server [1]
  --beating N     how many of them send heartbeats [10000]
  --rate N        heartbeats a second, all together [5000]
  --rounds N      rounds of each kind [8]
  --round-ms N    length of a round [3000]
";

/// Locks of a page.
const PAGE: usize = 1000;

/// How far a list may move the 99th percentile.
const MOVED_MAX_MS: f64 = 2.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((role, rest)) = arguments.split_first()
        && role == holders::ROLE
    {
        return end(holders::be_one(rest));
    }
    let mut settings = Settings::default();
    match settings.parse(arguments.into_iter()) {
        Ok(true) => {}
        Ok(false) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    }
    end(run(&settings))
}

fn end(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

struct Settings {
    locks: usize,
    shards: usize,
    beating: usize,
    rate: u64,
    rounds: usize,
    round: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        let round = Duration::from_secs(3);
        Settings { locks: 15_000, shards: 1, beating: 10_000, rate: 5_000, rounds: 8, round }
    }
}

impl Settings {
    /// Whether there is something to be measured.
    fn parse(&mut self, mut given: impl Iterator<Item = String>) -> Result<bool, String> {
        let mut is_bench = false;
        while let Some(flag) = given.next() {
            if flag == "--bench" {
                is_bench = true;
                continue;
            }
            if flag == "--help" {
                print!("{HELP}");
                return Ok(false);
            }
            let value = given.next().ok_or(format!("{flag} needs a value\n\n{HELP}"))?;
            let number: usize = match value.parse() {
                Ok(number @ 1..) => number,
                _ => return Err(format!("{flag} needs a positive number, not {value:?}")),
            };
            match flag.as_str() {
                "--locks" => self.locks = number,
                "--shards" => self.shards = number,
                "--beating" => self.beating = number,
                "--rate" => self.rate = number as u64,
                "--rounds" => self.rounds = number,
                "--round-ms" => self.round = Duration::from_millis(number as u64),
                _ => return Err(format!("there is no {flag}\n\n{HELP}")),
            }
        }
        if !is_bench {
            println!("listing: a measurement; run it with cargo bench --bench listing");
        }
        Ok(is_bench)
    }
}

fn run(settings: &Settings) -> Result<(), Box<dyn Error>> {
    let server = Path::new(env!("CARGO_BIN_EXE_monolock"));
    let admin = "127.0.9.1:7971";
    let shards = settings.shards.to_string();
    let arguments = ["--listen", "127.0.0.1:0", "--admin-listen", admin, "--shards", &shards];
    let subject = Subject::start(server, &arguments)?;
    run_on(Side::Clients)?;
    monolock_ring::raise_descriptor_limit();
    let (locks, beating) = (settings.locks, settings.beating.min(settings.locks));
    let mut clients = Clients::open(subject.address, beating)?;
    let _holders = Holders::start(subject.address, beating, locks)?;
    println!(
        "{locks} locks in {shards} event loops, {beating} sessions at {} heartbeats a second",
        settings.rate
    );
    clients.beat(settings.rate, Duration::from_secs(1))?;

    let lister = Lister { admin, locks, ..Lister::default() };
    let (mut quiet, mut listed) = (Vec::new(), Vec::new());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let listing = scope.spawn(|| lister.run());
        let mut rounds = || -> Result<(), Box<dyn Error>> {
            for _ in 0..settings.rounds {
                quiet.push(clients.beat(settings.rate, settings.round)?);
                lister.is_listing.store(true, Ordering::SeqCst);
                listed.push(clients.beat(settings.rate, settings.round)?);
                lister.is_listing.store(false, Ordering::SeqCst);
            }
            Ok(())
        };
        let result = rounds();
        lister.is_over.store(true, Ordering::SeqCst);
        listing.join().expect("the lister does not panic")?;
        result
    })?;
    lister.report();
    report(&quiet, &listed);
    Ok(())
}

fn report(quiet: &[Latencies], listed: &[Latencies]) {
    println!("time to the answer in ms, median and spread of {} rounds", quiet.len());
    for (name, percentile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let of = |rounds: &[Latencies]| -> Vec<f64> {
            rounds.iter().map(|round| round.percentile_ms(percentile)).collect()
        };
        let (quiet, listed) = (of(quiet), of(listed));
        let moved: Vec<f64> =
            listed.iter().zip(&quiet).map(|(listed, quiet)| listed - quiet).collect();
        let too_far = moved.iter().filter(|&&moved_ms| moved_ms > MOVED_MAX_MS).count();
        println!("{name:<6} nobody lists  {:.3}", Spread::of(quiet));
        println!("       somebody lists{:.3}", Spread::of(listed));
        println!("       moved by      {:.3}, by more than 2: {too_far}", Spread::of(moved));
    }
}

/// Lists all locks over and over, whole and in pages by turns, while it is to.
#[derive(Default)]
struct Lister {
    admin: &'static str,
    locks: usize,
    is_listing: AtomicBool,
    is_over: AtomicBool,
    lists: AtomicUsize,
    list_bytes: AtomicUsize,
    walks: AtomicUsize,
    pages: AtomicUsize,
}

impl Lister {
    fn run(&self) -> Result<(), String> {
        // On a processor with those who time the answers, it must not be what keeps them waiting.
        rustix::process::setpriority_process(None, 19).map_err(|error| error.to_string())?;
        while !self.is_over.load(Ordering::SeqCst) {
            if !self.is_listing.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            if self.lists.load(Ordering::SeqCst) <= self.walks.load(Ordering::SeqCst) {
                let bytes = lister::read_whole(self.admin, self.locks);
                self.list_bytes.store(bytes.map_err(|error| error.to_string())?, Ordering::SeqCst);
                self.lists.fetch_add(1, Ordering::SeqCst);
            } else {
                let pages = lister::read_pages(self.admin, self.locks, PAGE);
                self.pages.store(pages.map_err(|error| error.to_string())?, Ordering::SeqCst);
                self.walks.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    fn report(&self) {
        let [lists, bytes, walks, pages] =
            [&self.lists, &self.list_bytes, &self.walks, &self.pages]
                .map(|count| count.load(Ordering::SeqCst));
        println!("{lists} lists of {bytes} bytes each, and {walks} in {pages} pages each;");
        println!("every lock was in each of them once, in bytewise order\n");
    }
}
