//! The commands beside the server: what is typed on a command line by whoever uses locks.
//!
//! | module | what it holds |
//! |---|---|
//! | `command_line` | what all command lines have in common |
//! | `run_options` | the command line of `monolock run` |
//! | `run` | hold a lock while a command runs |
//! | `child` | that command as a process and its group |
//! | `guard` | a process that kills what the command leaves behind when this one is killed |
//! | `terminal` | who may read the keyboard, and Ctrl-Z |
//! | `forwarded` | the signals that are passed on |
//! | `admin` | list locks, show one, take it away |
//! | `completions`, `man` | for shells and for man(1), made from the flags |
//! | [`exit_code`] | what the exit code says |
//! | `sys` | what must be done between fork and exec |

mod admin;
mod child;
mod command_line;
mod completions;
pub mod exit_code;
mod forwarded;
mod guard;
mod man;
mod run;
mod run_options;
mod sys;
mod terminal;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Arg, Command};

use crate::config;
use crate::fatal::escaped;

/// All commands but the server's own, for its help.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    let help = command_line::command("help")
        .about("Print help on a command, or on exit-codes")
        .arg(Arg::new("topic").value_name("TOPIC").help("A command, or exit-codes"));
    let others = [completions::command(), man::command(), help];
    std::iter::once(run_options::command()).chain(admin::commands()).chain(others)
}

/// Runs the command that these arguments name, without the program's name; `None` if they are the
/// server's.
pub fn run_command(arguments: &[OsString]) -> Option<ExitCode> {
    let (name, rest) = arguments.split_first()?;
    let name = name.to_str()?;
    match name {
        "run" => Some(run::run(rest)),
        "help" => Some(help(rest)),
        "completions" => Some(completions::print(rest)),
        "man" => Some(man::print(rest)),
        guard::COMMAND => Some(guard::stand()),
        _ => {
            let command = admin::commands().into_iter().find(|command| command.get_name() == name);
            command.map(|command| admin::run(command, rest))
        }
    }
}

fn help(topics: &[OsString]) -> ExitCode {
    let topic = topics.first().map(|topic| topic.to_string_lossy()).unwrap_or_default();
    if topic == "exit-codes" {
        return print(exit_code::HELP);
    }
    let mut program = config::command();
    if topic.is_empty() {
        return print(&program.render_help().to_string());
    }
    match program.find_subcommand_mut(&*topic) {
        Some(command) => print(&command.render_help().to_string()),
        None => {
            let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
            let names = names.join(", ");
            say(format_args!("no help on {topic:?}: there is help on {names}, exit-codes"));
            ExitCode::from(exit_code::FAILED)
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // As with `| head`: who reads has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("cannot write: {error}"));
            ExitCode::from(exit_code::FAILED)
        }
    }
}

/// One line on stderr, marked as ours, since the command's own output goes there as well.
fn say(line: impl Display) {
    // With a closed stderr the exit code has to say it all.
    let _ = writeln!(io::stderr(), "monolock: {}", escaped(&line.to_string()));
}
