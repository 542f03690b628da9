//! The commands beside the server: what is typed on a command line by whoever uses locks.
//!
//! | module | what it holds |
//! |---|---|
//! | `run_options` | the command line of `monolock run` |
//! | `run` | hold a lock while a command runs |
//! | `child` | that command as a process and its group |
//! | `terminal` | who may read the keyboard, and Ctrl-Z |
//! | `forwarded` | the signals that are passed on |
//! | [`exit_code`] | what the exit code says |
//! | `sys` | what must be done between fork and exec |

mod child;
pub mod exit_code;
mod forwarded;
mod run;
mod run_options;
mod sys;
mod terminal;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::fatal::escaped;

/// Runs the command that these arguments name, without the program's name; `None` if they are the
/// server's.
pub fn run_command(arguments: &[OsString]) -> Option<ExitCode> {
    let (command, rest) = arguments.split_first()?;
    match command.to_str()? {
        "run" => Some(run::run(rest)),
        "help" => Some(help(rest)),
        _ => None,
    }
}

fn help(topics: &[OsString]) -> ExitCode {
    match topics.first().and_then(|topic| topic.to_str()) {
        Some("exit-codes") => print(exit_code::HELP),
        Some("run") => print(&run_options::help()),
        _ => {
            say("there is help on: run, exit-codes; the server's own is monolock --help");
            ExitCode::from(exit_code::FAILED)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(exit_code::FAILED),
    }
}

/// One line on stderr, marked as ours, since the command's own output goes there as well.
fn say(line: impl Display) {
    // With a closed stderr the exit code has to say it all.
    let _ = writeln!(io::stderr(), "monolock: {}", escaped(&line.to_string()));
}
