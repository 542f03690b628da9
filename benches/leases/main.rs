//! How late a lease ends, and what a mass of ending leases does to everybody else.
//!
//! `cargo bench --bench leases`, or `cargo bench --bench leases -- storm` for one of them
//!
//! Lateness is what a waiter sees: from the moment at which the silent holder's lease is over,
//! counted from when its ACQUIRE was sent, to the moment at which the waiter has read its ACQUIRED.
//! So the way there and back and this process's own delays are in the figures; nothing is ever
//! early, or the run fails.

mod claim;
mod mass;
mod precision;
mod processor;
#[path = "../processors/mod.rs"]
mod processors;
mod quantiles;
mod source;
mod storm;
#[path = "../server/subject.rs"]
mod subject;

use std::error::Error;
use std::process::ExitCode;

use precision::Beside;

/// Where a measured server listens.
pub(crate) fn listen_address() -> String {
    format!("{}:0", source::own_address(1))
}

type Measure = fn() -> Result<(), Box<dyn Error>>;

/// What is measured, by the names under which a part of it can be asked for.
const MEASUREMENTS: [(&str, Measure); 4] = [
    ("mass", || mass::measure(15_000, 1_000)),
    ("alone", || precision::measure(Beside::Nothing)),
    ("heartbeats", || precision::measure(Beside::Heartbeats)),
    ("storm", || precision::measure(Beside::HeartbeatsAndConnections)),
];

fn main() -> ExitCode {
    // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    if !options.iter().any(|option| option == "--bench") {
        println!("leases: a measurement of minutes; run it with cargo bench --bench leases");
        return ExitCode::SUCCESS;
    }
    match run(&names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(names: &[String]) -> Result<(), Box<dyn Error>> {
    let known = MEASUREMENTS.map(|(name, _)| name);
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no {name:?}; there are {}", known.join(", ")).into());
    }
    for (name, measure) in MEASUREMENTS {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            measure()?;
        }
    }
    Ok(())
}
