//! Every scenario of the load generator against the server of this tree, as tables in Markdown.
//!
//! `cargo bench -p monolock-loadgen --bench scenarios`, with `-- --help` for what can be set.
//!
//! Each run has a server of its own. All scenarios are run once, and then again, so that what else
//! the machine does in a minute doesn't fall on one of them; told is the median of the rounds, and
//! between what they were.

mod arguments;
#[path = "../../../benches/command_line/mod.rs"]
mod command_line;
mod machine;
mod programs;
mod spread;
mod table;

use std::error::Error;
use std::process::ExitCode;

use monolock_loadgen::results::Results;
use monolock_loadgen::scenario::Scenario;

use arguments::Arguments;
use programs::Programs;

fn main() -> ExitCode {
    command_line::run(Arguments::parse, measure)
}

/// What is run of a scenario: seconds each, so that all rounds are over in minutes.
fn runs(scenario: Scenario) -> &'static [&'static str] {
    match scenario {
        Scenario::Heartbeat => &[
            "heartbeat -c 1000 -l 10s -d 5s --warmup 1s",
            "heartbeat -c 10000 -l 10s -d 8s --warmup 1s",
            "heartbeat -c 19000 -l 10s -d 8s --warmup 1s",
        ],
        Scenario::Steady => {
            &["steady -c 200 -L 50 -R 2000 --arrivals poisson --hold 5ms -l 10s -d 8s --warmup 1s"]
        }
        Scenario::Handover => {
            &["handover -c 1000 -L 20 -R 400 --arrivals poisson -l 10s -d 8s --warmup 1s"]
        }
        Scenario::ConnectStorm => &["connect-storm -c 4000 -R 4000 -l 10s -d 8s --warmup 1s"],
        Scenario::GcPause => {
            &["gc-pause -c 800 -L 200 -R 20 --arrivals poisson -l 1s -d 10s --warmup 1s"]
        }
        Scenario::Failover => &["failover -c 1000 -l 2s --kill-every 4s -d 13s --warmup 1s"],
        Scenario::Restart => &["restart -c 1000 -l 2s --kill-every 2s -d 10s --warmup 1s"],
        Scenario::SlowReader => &["slow-reader -c 100 -l 30s --ramp 1s -d 12s --warmup 0"],
    }
}

/// The results of one line of `runs`, of all rounds.
struct Runs {
    words: &'static str,
    rounds: Vec<Results>,
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let programs = Programs::build()?;
    let server = match &arguments.server {
        Some(given) => given.clone(),
        None => programs.build_server()?,
    };
    let scenarios = Scenario::ALL.into_iter().filter(|scenario| arguments.runs(*scenario));
    let lines = scenarios.flat_map(runs);
    let mut all: Vec<Runs> = lines.map(|words| Runs { words, rounds: Vec::new() }).collect();
    for round in 1..=arguments.rounds {
        for runs in &mut all {
            eprintln!("round {round} of {}: {}", arguments.rounds, runs.words);
            runs.rounds.push(programs.run(runs.words, &server, &[])?);
        }
    }
    machine::print();
    for runs in &all {
        table::print(runs);
    }
    Ok(())
}
