//! How late a lease ends, alone and beside other load.
//!
//! `cargo bench --bench leases`
//!
//! Lateness is what a waiter sees: from the moment at which the silent holder's lease is over,
//! counted from when its ACQUIRE was sent, to the moment at which the waiter has read its ACQUIRED.
//! So the way there and back and this process's own delays are in the figures; nothing is ever
//! early, or the run fails.

mod claim;
mod precision;
mod quantiles;
#[path = "../server/subject.rs"]
mod subject;

use std::error::Error;
use std::process::ExitCode;

use precision::Beside;

/// Where the measured server listens: an address that nobody else on this machine connects to, so
/// that all its ports are there.
pub(crate) fn address_of_our_own() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.1:0", 64 | (high & 63))
}

fn main() -> ExitCode {
    // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("leases: a measurement of minutes; run it with cargo bench --bench leases");
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    println!("how late leases end, in ms");
    for beside in [Beside::Nothing, Beside::Heartbeats, Beside::HeartbeatsAndConnections] {
        precision::measure(beside)?;
    }
    Ok(())
}
