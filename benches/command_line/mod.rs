//! The command line of a measurement that takes minutes: flags, each with a value.

use std::error::Error;
use std::process::ExitCode;

/// Measures, if that is what was asked for. `parse` takes the arguments, without the program's
/// name, and gives nothing if there is nothing to be measured.
pub(crate) fn run<A>(
    parse: impl FnOnce(std::iter::Skip<std::env::Args>) -> Result<Option<A>, String>,
    measure: impl FnOnce(&A) -> Result<(), Box<dyn Error>>,
) -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Hands each flag and its value to `set`. Returns whether anything is to be measured.
pub(crate) fn read(
    name: &str,
    help: &str,
    mut given: impl Iterator<Item = String>,
    mut set: impl FnMut(&str, &str) -> Result<(), String>,
) -> Result<bool, String> {
    // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
    let mut is_bench = false;
    while let Some(flag) = given.next() {
        match flag.as_str() {
            "--bench" => is_bench = true,
            "--help" => {
                print!("{help}");
                return Ok(false);
            }
            _ => {
                let value = given.next().ok_or(format!("{flag} needs a value\n\n{help}"))?;
                set(&flag, &value)?;
            }
        }
    }
    if !is_bench {
        println!("{name}: a measurement of minutes; run it with cargo bench");
    }
    Ok(is_bench)
}

/// A number of one or more.
pub(crate) fn positive(flag: &str, value: &str) -> Result<u32, String> {
    let number = value.parse().ok().filter(|&number| number > 0);
    number.ok_or(format!("{flag} needs a positive number, not {value:?}"))
}
