//! What a list of all locks costs those whose heartbeats the server answers meanwhile.
//!
//! `cargo bench --bench listing`, with `-- --help` for what can be set.
//!
//! Sessions hold a lock each, and some of them send heartbeats at a constant rate. Rounds in which
//! somebody lists all locks over and over alternate with rounds in which nobody does. The time to
//! an answer counts from when the heartbeat was due.

#[path = "server/spread.rs"]
mod spread;
#[path = "server/subject.rs"]
mod subject;

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::wire::{Acquire, HEARTBEAT, encode_acquire};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Protocol, Socket, Type};
use spread::Spread;
use subject::{Side, Subject, run_on};

const HELP: &str = "\
cargo bench --bench listing -- [OPTIONS]

  --locks N       sessions, each with a lock of its own [15000]
  --beating N     how many of them send heartbeats [10000]
  --rate N        heartbeats a second, all together [5000]
  --rounds N      rounds of each kind [8]
  --round-ms N    length of a round [3000]
";

const ANSWER_LEN: usize = 9;

fn main() -> ExitCode {
    let mut settings = Settings::default();
    match settings.parse(std::env::args().skip(1)) {
        Ok(true) => {}
        Ok(false) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    }
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

struct Settings {
    locks: usize,
    beating: usize,
    rate: u64,
    rounds: usize,
    round: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        let round = Duration::from_secs(3);
        Settings { locks: 15_000, beating: 10_000, rate: 5_000, rounds: 8, round }
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
    let arguments = ["--listen", "127.0.0.1:0", "--admin-listen", admin, "--shards", "1"];
    let subject = Subject::start(server, &arguments)?;
    monolock_ring::raise_descriptor_limit();
    let beating = settings.beating.min(settings.locks);
    let mut clients = Clients::open(subject.address, settings.locks)?;
    println!(
        "{} locks, {beating} sessions at {} heartbeats a second",
        settings.locks, settings.rate
    );
    clients.beat(beating, settings.rate, Duration::from_secs(1))?;

    let (is_listing, lists, list_bytes) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let (mut quiet, mut listed) = (Vec::new(), Vec::new());
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                if is_listing.load(Ordering::SeqCst) {
                    let bytes = list(admin).expect("a list");
                    lists.fetch_add(1, Ordering::SeqCst);
                    list_bytes.store(bytes, Ordering::SeqCst);
                } else {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let mut rounds = || -> Result<(), Box<dyn Error>> {
            for _ in 0..settings.rounds {
                quiet.push(clients.beat(beating, settings.rate, settings.round)?);
                is_listing.store(true, Ordering::SeqCst);
                listed.push(clients.beat(beating, settings.rate, settings.round)?);
                is_listing.store(false, Ordering::SeqCst);
            }
            Ok(())
        };
        let result = rounds();
        is_over.store(true, Ordering::SeqCst);
        result
    })?;
    let (lists, bytes) = (lists.into_inner(), list_bytes.into_inner());
    println!("{lists} lists of {bytes} bytes each\n");
    println!("time to the answer in ms, median and spread of {} rounds", settings.rounds);
    for (name, percentile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let of = |rounds: &[Latencies]| -> Vec<f64> {
            rounds.iter().map(|round| round.percentile_ms(percentile)).collect()
        };
        let (quiet, listed) = (of(&quiet), of(&listed));
        let moved = listed.iter().zip(&quiet).map(|(listed, quiet)| listed - quiet);
        println!("{name:<6} nobody lists  {:.3}", Spread::of(quiet.clone()));
        println!("       somebody lists{:.3}", Spread::of(listed.clone()));
        println!("       moved by      {:.3}", Spread::of(moved));
    }
    Ok(())
}

/// Reads the list of all locks and returns its length.
fn list(admin: &str) -> Result<u64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(admin)?;
    stream.write_all(b"GET /api/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

/// The times of one round, in order of size.
struct Latencies(Vec<Duration>);

impl Latencies {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an index")]
    #[expect(clippy::cast_sign_loss, reason = "an index")]
    fn percentile_ms(&self, percentile: f64) -> f64 {
        let index = ((self.0.len() - 1) as f64 * percentile) as usize;
        self.0[index].as_secs_f64() * 1e3
    }
}

struct Clients {
    sockets: Vec<TcpStream>,
    /// When the heartbeat that is not answered yet was due.
    due: Vec<Option<Instant>>,
    epoll: rustix::fd::OwnedFd,
    next: usize,
}

impl Clients {
    fn open(server: SocketAddr, count: usize) -> Result<Clients, Box<dyn Error>> {
        run_on(Side::Clients)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut sockets = Vec::with_capacity(count);
        for number in 0..count {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            // One address has fewer ports than there are sessions.
            let last = u8::try_from(2 + number / 8000)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 9, last), 0)).into())?;
            socket.connect(&server.into())?;
            socket.set_tcp_nodelay(true)?;
            let mut stream = TcpStream::from(socket);
            let mut frame = Vec::new();
            let name = format!("nightly/import/{number:05}");
            let lease_ms = 600_000.try_into().expect("not zero");
            encode_acquire(Acquire { lease_ms, name: &name }, &mut frame);
            stream.write_all(&frame)?;
            stream.read_exact(&mut [0; ANSWER_LEN])?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            sockets.push(stream);
        }
        Ok(Clients { due: vec![None; count], sockets, epoll, next: 0 })
    }

    /// Heartbeats of the first `count` sessions in their turn, at this rate and for this long.
    fn beat(
        &mut self,
        count: usize,
        rate: u64,
        duration: Duration,
    ) -> Result<Latencies, Box<dyn Error>> {
        let start = Instant::now();
        let interval = Duration::from_nanos(1_000_000_000 / rate);
        let (mut next_due, mut awaited) = (start, 0);
        let mut latencies = Vec::new();
        loop {
            let now = Instant::now();
            while next_due <= now && next_due < start + duration {
                let index = self.next % count;
                self.next += 1;
                if self.due[index].is_none() {
                    (&self.sockets[index]).write_all(&[HEARTBEAT])?;
                    self.due[index] = Some(next_due);
                    awaited += 1;
                }
                next_due += interval;
            }
            if awaited == 0 && next_due >= start + duration {
                latencies.sort_unstable();
                return Ok(Latencies(latencies));
            }
            awaited -= self.take_answers(&mut latencies)?;
        }
    }

    fn take_answers(&mut self, latencies: &mut Vec<Duration>) -> Result<usize, Box<dyn Error>> {
        let mut events = Vec::with_capacity(256);
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.epoll, buffer, Some(&tick))?;
        let (mut taken, mut answer) = (0, [0; 64]);
        for event in &events {
            let index = usize::try_from(event.data.u64())?;
            match (&self.sockets[index]).read(&mut answer) {
                Ok(ANSWER_LEN) => {}
                Ok(other) => return Err(format!("an answer of {other} bytes").into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            let due = self.due[index].take().ok_or("an answer that nobody waits for")?;
            latencies.push(due.elapsed());
            taken += 1;
        }
        Ok(taken)
    }
}
