//! The lock server: [`monolock_core`] decides, [`monolock_ring`] moves bytes, this package joins
//! the two and is the program around them.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the commands beside the server |
//! | [`config`] | flags, environment, defaults |
//! | [`driver`] | the event loop |
//! | [`shards`], [`peer_limit`] | the loops as seen from outside; who may have a place in them |
//! | [`inspection`], [`ended_holds`] | questions that a loop answers, and what it keeps for them |
//! | [`listener`], `passed_listener` | the listening socket and what accepted ones inherit |
//! | [`control`] | the control plane: signals, probes and metrics, the admin API, shutting down |
//! | [`clock`], [`descriptors`], [`logging`], [`fatal`] | what the machine gives, and what if not |
//! | `sys` | descriptors that the process was started with |

pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod driver;
pub mod ended_holds;
pub mod fatal;
pub mod inspection;
pub mod listener;
pub mod logging;
mod passed_listener;
pub mod peer_limit;
mod serve;
pub mod shards;
mod sys;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::config::Request;
use crate::control::signals;
use crate::fatal::Fatal;

/// The program.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|fatal| fatal.report())
}

fn run() -> Result<ExitCode, Fatal> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if let Some(code) = cli::run_command(&arguments) {
        return Ok(code);
    }
    let signals = signals::catch()
        .map_err(|error| Fatal::dead_end(format_args!("cannot catch signals: {error}")))?;
    match config::parse(arguments, |variable| env::var_os(variable))? {
        Request::Print(text) => {
            let _ = write!(std::io::stdout(), "{text}");
            Ok(ExitCode::SUCCESS)
        }
        Request::Serve(config) => Ok(serve::serve(&config, signals)),
    }
}
