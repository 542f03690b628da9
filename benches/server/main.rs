//! The real server and the yardstick, side by side: processor time for heartbeats and connections,
//! and memory for sessions.
//!
//! `cargo bench --bench server`, with `-- --help` for what can be set.
//!
//! Both are started as processes on one processor; the clients are this process, on another one.
//! They are driven in turns, and compared turn by turn, because what else the machine does changes
//! from second to second. What is measured is processor time, which the kernel accounts to the
//! nanosecond, never requests a second.

mod arguments;
mod clients;
#[path = "../command_line/mod.rs"]
mod command_line;
#[path = "../processors/mod.rs"]
mod processors;
mod scenarios;
mod spread;
mod subject;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};

use arguments::Arguments;

fn main() -> ExitCode {
    command_line::run(Arguments::parse, run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // What cargo has built for this bench has its profile, not that of a release.
    let release = Path::new(env!("CARGO_BIN_EXE_monolock")).parent().expect("a directory");
    let target = release.parent().expect("the directory of all profiles");
    let server = match &arguments.server {
        Some(given) => given.clone(),
        None => {
            build(target, &["--bin", "monolock"])?;
            release.join("monolock")
        }
    };
    let yardstick = match &arguments.yardstick {
        Some(given) => given.clone(),
        None => {
            build(target, &["-p", "monolock-ring", "--example", "echo"])?;
            release.join("examples/echo")
        }
    };
    scenarios::print_machine();
    if arguments.runs("heartbeats") {
        for &sessions in &arguments.sessions {
            scenarios::heartbeats(arguments, &server, &yardstick, sessions)?;
        }
    }
    if arguments.runs("connections") {
        scenarios::connections(arguments, &server, &yardstick)?;
    }
    if arguments.runs("memory") {
        scenarios::memory(arguments, &server)?;
    }
    Ok(())
}

fn build(target: &Path, what: &[&str]) -> Result<(), Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("cargo build {what:?} failed").into()) }
}
