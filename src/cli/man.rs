//! `monolock man`: the manual pages, made from the flags.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Command, value_parser};
use clap_mangen::Man;

use super::command_line::{self, Instead};
use crate::config;

pub(super) fn command() -> Command {
    command_line::command("man")
        .about("Print a manual page, or write all of them")
        .arg(
            Arg::new("page")
                .value_name("COMMAND")
                .conflicts_with("dir")
                .help("The command that it is about [default: the server]"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Write all pages into this directory"),
        )
        .after_help("To read one: monolock man run | man -l -")
}

pub(super) fn print(arguments: &[OsString]) -> ExitCode {
    match page_or_all(arguments) {
        Ok(text) => super::print(&text),
        Err(instead) => instead.exit(),
    }
}

fn page_or_all(arguments: &[OsString]) -> Result<String, Instead> {
    let matches = command_line::matches(command(), arguments)?;
    let mut program = config::command();
    // So that every command knows that it is one of monolock's.
    program.build();
    let pages = || std::iter::once(&program).chain(program.get_subcommands());
    if let Some(directory) = matches.get_one::<PathBuf>("dir") {
        pages().try_for_each(|command| write_page(command, directory))?;
        return Ok(String::new());
    }
    let wanted = matches.get_one::<String>("page").map_or("monolock", String::as_str);
    match pages().find(|command| command.get_name() == wanted) {
        Some(command) => Ok(page(command)),
        None => Err(Instead::Wrong(format!("there is no command {wanted:?}; see monolock --help"))),
    }
}

fn write_page(command: &Command, directory: &Path) -> Result<(), Instead> {
    let path = directory.join(format!("{}.1", title(command)));
    fs::write(&path, page(command))
        .map_err(|error| Instead::Wrong(format!("cannot write {}: {error}", path.display())))
}

fn title(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command) -> String {
    let mut page = Vec::new();
    render(command, &mut page).expect("memory takes everything");
    String::from_utf8(page).expect("names and help texts are UTF-8")
}

fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(command.clone())
        .title(title(command).to_uppercase())
        .source(concat!("monolock ", env!("CARGO_PKG_VERSION")))
        .manual("monolock");
    man.render_title(page)?;
    man.render_name_section(page)?;
    // As --help has it: the crate's own way leaves out the dashes before a command.
    let usage = usage.trim_start_matches("Usage:").replace('\\', r"\e").replace('-', r"\-");
    let lines: Vec<&str> = usage.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    page.extend_from_slice(format!(".SH SYNOPSIS\n{}\n", lines.join("\n.br\n")).as_bytes());
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    if command.get_after_help().is_some() {
        man.render_extra_section(page)?;
    }
    Ok(())
}
