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
mod machine;
mod programs;
mod scenarios;
mod side;
mod spread;
mod subject;

use std::error::Error;
use std::process::ExitCode;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let server = programs::server(arguments.server.as_deref())?;
    let yardstick = programs::yardstick(arguments.yardstick.as_deref())?;
    machine::print();
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
