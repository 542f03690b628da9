//! `monolock completions`: what a shell needs to complete commands and flags, made from them.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, Command};
use clap_complete::{Shell, generate};

use super::command_line::{self, Instead};
use crate::config;

const SHELLS: [(&str, Shell); 3] =
    [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)];

pub(super) fn command() -> Command {
    command_line::command("completions")
        .about("Print completions for a shell")
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(SHELLS.map(|(name, _)| name))
                .help("The shell"),
        )
        .after_help(
            "bash: monolock completions bash > /etc/bash_completion.d/monolock\n\
             zsh:  monolock completions zsh > /usr/local/share/zsh/site-functions/_monolock\n\
             fish: monolock completions fish > ~/.config/fish/completions/monolock.fish",
        )
}

pub(super) fn print(arguments: &[OsString]) -> ExitCode {
    match script(arguments) {
        Ok(script) => super::print(&script),
        Err(instead) => instead.exit(),
    }
}

fn script(arguments: &[OsString]) -> Result<String, Instead> {
    let matches = command_line::matches(command(), arguments)?;
    let name: &String = matches.get_one("shell").expect("it is required");
    let (_, shell) = SHELLS.iter().find(|(shell, _)| shell == name).expect("clap knows them");
    let mut script = Vec::new();
    generate(*shell, &mut config::command(), "monolock", &mut script);
    Ok(String::from_utf8(script).expect("names and help texts are UTF-8"))
}
