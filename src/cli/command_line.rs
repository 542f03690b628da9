//! What the command lines of all commands have in common.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::exit_code;

/// What to do in place of carrying a command out.
#[derive(Debug)]
pub(crate) enum Instead {
    /// Print this: it was asked for.
    Print(String),
    /// Say what is wrong, on one line.
    Wrong(String),
}

impl Instead {
    /// Does it, and gives the status to exit with.
    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Instead::Print(text) => super::print(&text),
            Instead::Wrong(line) => {
                super::say(line);
                ExitCode::from(exit_code::FAILED)
            }
        }
    }
}

/// A command of this name.
pub(crate) fn command(name: &'static str) -> Command {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort);
    Command::new(name)
        .bin_name(format!("monolock {name}"))
        .disable_help_flag(true)
        .arg(help.help("Print this").display_order(usize::MAX))
}

/// The arguments behind the name of this command.
///
/// # Errors
/// If help was asked for, or something is wrong.
pub(crate) fn matches(command: Command, arguments: &[OsString]) -> Result<ArgMatches, Instead> {
    let name = command.get_name().to_owned();
    command.no_binary_name(true).try_get_matches_from(arguments).map_err(|error| {
        match error.kind() {
            ErrorKind::DisplayHelp => Instead::Print(error.to_string()),
            _ => Instead::Wrong(usage_line(&error, &name)),
        }
    })
}

/// A flag's value, else its variable's, else the default; and where it stands.
///
/// # Errors
/// If it is no text.
pub(crate) fn setting(
    matches: &ArgMatches,
    environment: &impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    variable: &'static str,
    default: &str,
) -> Result<(String, String), Instead> {
    if let Some(value) = matches.get_one::<String>(name) {
        return Ok((value.clone(), format!("--{name}")));
    }
    match environment(variable).filter(|value| !value.is_empty()) {
        None => Ok((default.to_owned(), format!("--{name}"))),
        Some(value) => match value.into_string() {
            Ok(value) => Ok((value, variable.to_owned())),
            Err(_) => Err(Instead::Wrong(format!("{variable}: not UTF-8"))),
        },
    }
}

/// The first sentence of what clap has to say, on one line.
fn usage_line(error: &clap::Error, command: &str) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.trim_start_matches("error: ").split_whitespace().collect();
    format!("{}; see monolock {command} --help", words.join(" "))
}
