//! `monolock-conformance`: plays servers of every kind to a client, and judges what it did.
//!
//! | module | what it holds |
//! |---|---|
//! | `scenarios` | what is played, by name |
//! | `stage` | the address where it is played, and the client's process |
//! | `peer` | one connection of the client, and what is demanded of it |
//! | `terms` | the lock, the lease, and the bounds that follow from it |
//! | `fault` | what a client did wrong |

#![forbid(unsafe_code)]

mod fault;
mod peer;
mod scenarios;
mod stage;
mod terms;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::fault::Fault;
use crate::scenarios::{SCENARIOS, Scenario};
use crate::stage::Stage;
use crate::terms::Terms;

fn main() -> ExitCode {
    let matches = command_line().get_matches();
    match matches.subcommand() {
        Some(("list", _)) => {
            for scenario in SCENARIOS {
                println!("{:28} {}", scenario.name, scenario.summary);
            }
            ExitCode::SUCCESS
        }
        Some(("serve", matches)) => serve(matches),
        Some(("run", matches)) => run(matches),
        _ => unreachable!("a subcommand is required"),
    }
}

fn command_line() -> Command {
    let lease = Arg::new("lease-ms").long("lease-ms").value_name("MS").default_value("3000");
    let lease = lease.value_parser(value_parser!(u32).range(200..=600_000));
    let lease = lease.help("The lease that the client asks for; short ones need a quiet machine");
    let run = Command::new("run")
        .about("Plays scenarios, each to a new process of the client, and judges them")
        .arg(
            Arg::new("scenario")
                .long("scenario")
                .value_name("NAME")
                .action(ArgAction::Append)
                .value_parser(known_name)
                .help("Only this one; may be repeated [default: all]"),
        )
        .arg(
            Arg::new("jobs")
                .long("jobs")
                .value_name("N")
                .default_value("4")
                .value_parser(value_parser!(u16).range(1..=64))
                .help("Scenarios that are played at one time"),
        )
        .arg(lease.clone())
        .arg(
            Arg::new("client")
                .value_name("CLIENT-COMMAND")
                .num_args(1..)
                .last(true)
                .required(true)
                .value_parser(value_parser!(OsString))
                .help("The client: docs/guide/writing-a-client.md says what it does"),
        );
    let serve = Command::new("serve")
        .about("Plays one scenario to a client that is started by hand")
        .arg(Arg::new("name").value_name("SCENARIO").required(true).value_parser(known_name))
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDR")
                .default_value("127.0.0.1:0")
                .value_parser(value_parser!(SocketAddr))
                .help("Where; port 0 is a free one"),
        )
        .arg(lease);
    Command::new("monolock-conformance")
        .about("Plays servers of every kind to a client of monolock, and judges what it did")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("Names the scenarios"))
        .subcommand(serve)
        .subcommand(run)
}

fn known_name(name: &str) -> Result<&'static Scenario, String> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| "no such scenario: `monolock-conformance list` names them".to_owned())
}

/// Exits with 0 if the client kept to the protocol, 1 if it did not, 2 for a wrong command line.
fn serve(matches: &ArgMatches) -> ExitCode {
    let scenario: &Scenario = matches.get_one::<&'static Scenario>("name").expect("required");
    let listen: SocketAddr = *matches.get_one("listen").expect("has a default");
    let terms = Terms::new(scenario, lease(matches));
    let stage = Stage::by_hand(listen, terms);
    let mut stage = match stage {
        Ok(stage) => stage,
        Err(error) => {
            eprintln!("monolock-conformance: can't listen on {listen}: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{}: {}", scenario.name, scenario.summary);
    for (name, value) in stage.environment() {
        println!("{name}={value}");
    }
    verdict(scenario, (scenario.play)(&mut stage))
}

fn run(matches: &ArgMatches) -> ExitCode {
    let chosen = matches.get_many::<&'static Scenario>("scenario");
    let chosen: Vec<&Scenario> =
        chosen.map_or_else(|| SCENARIOS.iter().collect(), |chosen| chosen.copied().collect());
    let client: Vec<OsString> = matches.get_many("client").expect("required").cloned().collect();
    let jobs = usize::from(*matches.get_one::<u16>("jobs").expect("has a default"));
    let lease = lease(matches);
    let next = AtomicUsize::new(0);
    let has_failed = Mutex::new(false);
    thread::scope(|scope| {
        for _ in 0..jobs.min(chosen.len()) {
            scope.spawn(|| {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = play(scenario, lease, &client);
                    let mut has_failed = has_failed.lock().expect("no player panics");
                    *has_failed |= verdict(scenario, played) != ExitCode::SUCCESS;
                }
            });
        }
    });
    let has_failed = has_failed.into_inner().expect("no player panics");
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn play(scenario: &Scenario, lease: Duration, client: &[OsString]) -> Result<(), Fault> {
    let mut stage = Stage::with_client(Terms::new(scenario, lease), client)?;
    (scenario.play)(&mut stage)
}

fn verdict(scenario: &Scenario, played: Result<(), Fault>) -> ExitCode {
    match played {
        Ok(()) => {
            println!("ok      {}", scenario.name);
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("FAILED  {}: {fault}", scenario.name);
            println!("        ({})", scenario.summary);
            ExitCode::FAILURE
        }
    }
}

fn lease(matches: &ArgMatches) -> Duration {
    Duration::from_millis(u64::from(*matches.get_one::<u32>("lease-ms").expect("has a default")))
}
