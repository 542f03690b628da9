//! A client for `monolock-conformance run`: see `docs/guide/writing-a-client.md`.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use monolock_client::{Client, Held, RunError};

fn main() -> ExitCode {
    ExitCode::from(run())
}

/// The exit status.
pub(crate) fn run() -> u8 {
    let client = Client::new(&variable("MONOLOCK_ADDRESS")).expect("an address");
    let lock = client.lock(variable("MONOLOCK_LOCK")).lease(millis("MONOLOCK_LEASE_MS")).retrying();
    let held = lock.run_blocking(|held: Held| {
        held.wait_for_stop(millis("MONOLOCK_HOLD_MS"));
    });
    match held {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            if matches!(error, RunError::NotAcquired(_)) { 11 } else { 10 }
        }
    }
}

fn millis(name: &str) -> Duration {
    Duration::from_millis(variable(name).parse().expect("a number"))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
