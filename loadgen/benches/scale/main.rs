//! What a session costs when there are very many of them: the server of this tree and the bare echo
//! beside it, each with so many sessions that send heartbeats, as a table in Markdown.
//!
//! `cargo bench -p monolock-loadgen --bench scale`, with `-- --help` for what can be set. A million
//! sessions take some ten minutes, and 12 GB.
//!
//! The sessions are the load generator's, `monolock-loadgen heartbeat`, which also judges what it
//! sees of the server. Both subjects get as many rings as it takes for their file tables, each of
//! which is limited by `RLIMIT_NOFILE` for itself.

mod arguments;
#[path = "../../../benches/command_line/mod.rs"]
mod command_line;
mod limits;
#[path = "../scenarios/machine.rs"]
mod machine;
#[path = "../scenarios/programs.rs"]
mod programs;
mod row;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use monolock_loadgen::duration;

use arguments::Arguments;
use programs::Programs;
use row::Row;

/// Locks are spread over shards by a hash, so no table is planned to be fuller than this.
const FULL_PERCENT: u64 = 93;

/// Connecting takes no less than this.
const RAMP_MIN: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    command_line::run(Arguments::parse, measure)
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let programs = Programs::build()?;
    let mut subjects: Vec<(&str, PathBuf)> = Vec::new();
    if arguments.measures("server") {
        let given = arguments.server.clone();
        subjects.push(("server", given.map_or_else(|| programs.build_server(), Ok)?));
    }
    if arguments.measures("yardstick") {
        let given = arguments.yardstick.clone();
        subjects.push(("yardstick", given.map_or_else(|| programs.build_yardstick(), Ok)?));
    }
    machine::print();
    limits::print();
    println!();
    row::print_heads();
    for &sessions in &arguments.sessions {
        if let Some(reason) = limits::stopper(sessions) {
            println!("\n{sessions} sessions can't be had: {reason}");
            continue;
        }
        for &lease in &arguments.leases {
            for round in 0..arguments.rounds {
                let mut rows = Vec::new();
                for place in 0..subjects.len() {
                    // Who went last goes first: what the machine was just doing is the same.
                    let place = if round % 2 == 0 { place } else { subjects.len() - 1 - place };
                    let (name, path) = &subjects[place];
                    let (words, shards) = words(arguments, sessions, lease);
                    eprintln!("{name}, {shards} rings: {words}");
                    let server_arguments = ["--shards", &shards.to_string()];
                    let results = programs.run(&words, path, &server_arguments)?;
                    rows.push(Row::of(name, shards, &results));
                }
                row::print(&rows);
            }
        }
    }
    Ok(())
}

/// What the load generator is told, and how many rings the subject gets.
fn words(arguments: &Arguments, sessions: u32, lease: Duration) -> (String, u64) {
    let show = duration::show;
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let slots = monolock_ring::raise_descriptor_limit() * FULL_PERCENT / 100;
    let shards = u64::from(sessions).div_ceil(slots).max(processors);
    let ramp = RAMP_MIN.max(Duration::from_secs(1) * sessions / arguments.connect_rate);
    let words = format!(
        "heartbeat -c {sessions} -l {} --ramp {} --warmup 5s -d {} -t {processors}",
        show(lease),
        show(ramp),
        show(arguments.duration),
    );
    (words, shards)
}
