//! The command line.

mod kills;
mod pauses;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::clock;
use crate::expectation::Expectation;
use crate::failure::Failure;
use crate::lengths::LengthRange;
use crate::scenario::Scenario;
use crate::settings::{Arrivals, Load, Outputs, Settings, Target};
use monolock_core::duration::parse_duration;

const ADDRESS_DEFAULT: &str = "127.0.0.1:7070";
const SESSIONS_DEFAULT: &str = "100";
/// How long it is tried whether somebody listens at one of several addresses.
const LOOK_MAX: Duration = Duration::from_secs(1);
const PERCENTILES_DEFAULT: &str = "50,90,99,99.9,99.99,100";
/// What a run starts for each session that is a process.
const HOLDER_PROCESS: &str = "holder-process";
const SESSIONS_MAX: u32 = 4_000_000;
const HOLD_HELP: &str = "how long a lock is held, or its holder works before it falls silent, \
                         drawn from this range [default: 10ms in steady, 1s in failover and \
                         restart, the lease in gc-pause, else 0]";

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Load a server.
    Run(Box<Settings>),
    /// Compare results.
    Compare(FilesToCompare),
    /// Be a session of a run of another process.
    HoldLock,
    /// Print this and be done.
    Print(String),
}

/// Files of results that are to be set side by side.
#[derive(Debug)]
pub struct FilesToCompare {
    /// Two or more.
    pub paths: Vec<PathBuf>,
    /// Where the plot goes.
    pub svg_out_file: Option<PathBuf>,
}

/// Understands the command line, without the program's name.
///
/// # Errors
/// One line that says what is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, Failure> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    Ok(Request::Print(error.to_string()))
                }
                _ => Err(Failure::usage(usage_line(&error))),
            };
        }
    };
    match matches.subcommand() {
        Some(("compare", matches)) => Ok(Request::Compare(FilesToCompare {
            paths: matches.get_many("files").into_iter().flatten().cloned().collect(),
            svg_out_file: matches.get_one("svg-out-file").cloned(),
        })),
        Some((HOLDER_PROCESS, _)) => Ok(Request::HoldLock),
        Some((name, matches)) => {
            let scenario = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
            let scenario = scenario.ok_or_else(|| Failure::usage("no such scenario"))?;
            settings(scenario, matches).map(Box::new).map(Request::Run)
        }
        None => Err(Failure::usage(format_args!("no scenario; {}", scenarios()))),
    }
}

fn scenarios() -> String {
    let names = Scenario::ALL.map(Scenario::name).join(", ");
    format!("there are {names}, and compare")
}

/// The first line of clap's message, which says what is wrong; the rest is a manual.
fn usage_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(name) = error.get(ContextKind::InvalidSubcommand)
    {
        return format!("no scenario is called {:?}; {}", name.to_string(), scenarios());
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    words.join(" ")
}

fn command() -> Command {
    let compare = Command::new("compare")
        .about("set the results of several runs side by side, the first one as the measure")
        .arg(
            Arg::new("files")
                .value_name("FILE")
                .help("JSON files of earlier runs")
                .required(true)
                .num_args(2..)
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(file("svg-out-file", "plot of all results"));
    let scenarios = Scenario::ALL.map(|scenario| {
        Command::new(scenario.name())
            .about(scenario.about())
            .args(target_args())
            .args(load_args(scenario))
            .args(pauses::args().into_iter().filter(|_| scenario == Scenario::GcPause))
            .args(kills::args(scenario))
            .args(output_args())
    });
    Command::new("monolock-loadgen")
        .no_binary_name(true)
        .bin_name("monolock-loadgen")
        .version(env!("CARGO_PKG_VERSION"))
        .about("The load generator for lock servers of protocol version 1")
        .after_help(
            "Exit codes: 0 fine, 1 an invariant was broken, 2 usage, 3 an expectation was missed, \
             4 server unreachable, or no clean result (cut short, or limited by the load \
             generator itself)",
        )
        .subcommands(scenarios)
        .subcommand(compare)
        .subcommand(Command::new(HOLDER_PROCESS).hide(true))
}

/// Its value may begin with a hyphen, so that -5 is refused as a value and not as a flag.
fn value(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).help(help).allow_hyphen_values(true)
}

fn file(name: &'static str, help: &'static str) -> Arg {
    value(name, "FILE", help).allow_hyphen_values(false).value_parser(value_parser!(PathBuf))
}

fn duration(name: &'static str, help: &'static str) -> Arg {
    value(name, "DURATION", help).value_parser(|text: &str| parse_duration(text))
}

fn number(name: &'static str, help: &'static str) -> Arg {
    value(name, "N", help).value_parser(parse_number)
}

fn target_args() -> [Arg; 3] {
    [
        value("address", "HOST:PORT", "a running server")
            .short('a')
            .default_value(ADDRESS_DEFAULT)
            .value_parser(parse_address),
        file("server", "start this server for the run, and stop it after it")
            .value_name("PATH")
            .conflicts_with("address"),
        Arg::new("server-args")
            .help("arguments of the server that is started")
            .value_name("ARG")
            .last(true)
            .num_args(0..)
            .requires("server")
            .value_parser(value_parser!(OsString)),
    ]
}

fn load_args(scenario: Scenario) -> [Arg; 11] {
    [
        number("sessions", "concurrent sessions").short('c').default_value(SESSIONS_DEFAULT),
        number("locks", "distinct lock names [default: by scenario]").short('L'),
        number("threads", "worker threads, each with a ring; more if sessions need them")
            .short('t')
            .default_value("1"),
        duration("lease", "lease of every session").short('l').default_value(scenario.lease()),
        value("rate", "N", "operations a second, open loop; without it the loop is closed")
            .short('R')
            .value_parser(parse_rate),
        value("arrivals", "KIND", "how operations are spread in time, given a rate")
            .default_value("constant")
            .value_parser(PossibleValuesParser::new(["constant", "poisson"])),
        duration("duration", "measured time").short('d').default_value("10s"),
        duration("warmup", "time under load before it, not recorded").default_value("5s"),
        value("hold", "DURATION[..DURATION]", HOLD_HELP).value_parser(LengthRange::from_str),
        duration("ramp", "over how long sessions connect [default: lease/4, at most 10000/s]"),
        value("seed", "N", "what the plan is drawn from [default: drawn, and printed]")
            .value_parser(parse_seed),
    ]
}

fn output_args() -> [Arg; 7] {
    [
        value("percentiles", "LIST", "percentiles to print and store")
            .default_value(PERCENTILES_DEFAULT)
            .value_parser(parse_percentiles),
        file("hdr-file-prefix", "write PREFIX-<phase>.hgrm and PREFIX.hlog").value_name("PREFIX"),
        file("json-out-file", "write the results as JSON"),
        file("svg-out-file", "write plots of the latencies"),
        Arg::new("csv").long("csv").action(ArgAction::SetTrue).help("print a CSV table only"),
        Arg::new("quiet")
            .short('q')
            .long("quiet")
            .action(ArgAction::SetTrue)
            .conflicts_with("csv")
            .help("print one line a phase only"),
        value("expect", "EXPECTATION", "such as 'handover.p99<5ms'; a miss is exit code 3")
            .action(ArgAction::Append)
            .value_parser(Expectation::from_str),
    ]
}

fn settings(scenario: Scenario, matches: &ArgMatches) -> Result<Settings, Failure> {
    let target = match matches.get_one::<PathBuf>("server") {
        Some(path) => Target::Own {
            path: path.clone(),
            args: matches.get_many("server-args").into_iter().flatten().cloned().collect(),
        },
        None => Target::Running(*one::<SocketAddr>(matches, "address")),
    };
    let outputs = Outputs {
        percentiles: one::<Percentiles>(matches, "percentiles").0.clone(),
        hdr_file_prefix: matches.get_one("hdr-file-prefix").cloned(),
        json_out_file: matches.get_one("json-out-file").cloned(),
        svg_out_file: matches.get_one("svg-out-file").cloned(),
        csv: matches.get_flag("csv"),
        quiet: matches.get_flag("quiet"),
    };
    let expectations = matches.get_many("expect").into_iter().flatten().cloned().collect();
    let load = load(scenario, matches)?;
    let kill_plan = kills::plan(scenario, &target, &load, matches)?;
    Ok(Settings { target, load, kill_plan, outputs, expectations })
}

fn load(scenario: Scenario, matches: &ArgMatches) -> Result<Load, Failure> {
    let sessions = *one::<u32>(matches, "sessions");
    let lease = *one::<Duration>(matches, "lease");
    let lease_ms = u32::try_from(lease.as_millis()).ok().and_then(NonZeroU32::new);
    let lease_ms = lease_ms
        .ok_or_else(|| Failure::usage("--lease: from 1ms to 2^32-1 ms, which is 49 days"))?;
    let rate = matches.get_one::<f64>("rate").copied();
    if rate.is_some() && !scenario.takes_rate() {
        let reason = if scenario.kills_servers() {
            "--sessions, --locks and --hold: each session acquires, holds and releases in turn"
        } else {
            "--sessions and --lease: each session sends about four heartbeats a lease"
        };
        let name = scenario.name();
        return Err(Failure::usage(format_args!(
            "--rate: the rate of {name} follows from {reason}"
        )));
    }
    let locks = matches.get_one::<u32>("locks").copied();
    let locks = locks.unwrap_or_else(|| scenario.locks(sessions));
    if locks > sessions && scenario != Scenario::Steady {
        return Err(Failure::usage(format_args!(
            "--locks: {locks} locks and {sessions} sessions leave locks without a session"
        )));
    }
    let duration = *one::<Duration>(matches, "duration");
    if duration.is_zero() {
        return Err(Failure::usage("--duration: must be more than nothing"));
    }
    let hold = matches.get_one::<LengthRange>("hold").copied();
    let is_by_rate = scenario != Scenario::Steady && rate.is_some();
    if hold.is_some() && (is_by_rate || has_no_hold(scenario)) {
        return Err(Failure::usage(
            "--hold: only for steady, failover and restart, and for handover and gc-pause without \
             --rate, which says itself when a lock is released or its holder falls silent",
        ));
    }
    let ramp = matches.get_one::<Duration>("ramp").copied();
    check_timing(scenario, matches)?;
    let pauses =
        (scenario == Scenario::GcPause).then(|| pauses::settings(matches, lease)).transpose()?;
    let load = Load {
        scenario,
        sessions,
        locks,
        lease_ms,
        rate,
        arrivals: match one::<String>(matches, "arrivals").as_str() {
            "poisson" => Arrivals::Poisson,
            _ => Arrivals::Constant,
        },
        duration,
        warmup: *one::<Duration>(matches, "warmup"),
        hold: hold.unwrap_or_else(|| scenario.hold(lease_ms.get()).into()),
        ramp: ramp.unwrap_or_else(|| scenario.ramp(sessions, lease_ms.get())),
        seed: matches.get_one("seed").copied().unwrap_or_else(|| clock::now().as_nanos() >> 10),
        threads: *one::<u32>(matches, "threads"),
        pauses,
    };
    pauses::check(&load)?;
    Ok(load)
}

/// Refuses what a scenario would take no notice of.
fn check_timing(scenario: Scenario, matches: &ArgMatches) -> Result<(), Failure> {
    if is_given(matches, "ramp") && !scenario.has_setup() {
        return Err(Failure::usage(format_args!(
            "--ramp: the sessions of {} come and go from the beginning",
            scenario.name()
        )));
    }
    let is_by_plan = is_given(matches, "rate") && scenario != Scenario::ConnectStorm;
    if is_given(matches, "arrivals") && !is_by_plan {
        return Err(Failure::usage(
            "--arrivals: only with --rate, and not for connect-storm, whose sessions are evenly \
             spaced",
        ));
    }
    Ok(())
}

fn has_no_hold(scenario: Scenario) -> bool {
    let holds = matches!(scenario, Scenario::Steady | Scenario::Handover | Scenario::GcPause);
    !holds && !scenario.kills_servers()
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

fn one<'a, T: Clone + Send + Sync + 'static>(matches: &'a ArgMatches, name: &str) -> &'a T {
    matches.get_one(name).expect("the argument has a default")
}

/// Of the addresses of a host the first one where somebody listens: `localhost` is `::1` too, and
/// few servers listen on both.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if text.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.is_empty()) {
        return Err("write it like host:7070, 127.0.0.1:7070 or [::1]:7070".to_owned());
    }
    let addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, LOOK_MAX).is_ok();
    let first = addresses.first().ok_or_else(|| "the host has no address".to_owned())?;
    let found = if addresses.len() > 1 { addresses.iter().find(listens) } else { None };
    Ok(*found.unwrap_or(first))
}

fn parse_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ 1..=SESSIONS_MAX) => Ok(number),
        _ => Err(format!("not a whole number from 1 to {SESSIONS_MAX}")),
    }
}

fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a whole number below 2^64".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (0.001..=1e9).contains(&rate) => Ok(rate),
        _ => Err("not a number from 0.001 to 1e9".to_owned()),
    }
}

#[derive(Clone, Debug)]
struct Percentiles(Vec<f64>);

fn parse_percentiles(text: &str) -> Result<Percentiles, String> {
    let parse = |part: &str| match part.trim().parse() {
        Ok(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile),
        _ => Err(format!("{part:?} is not a number from 0 to 100")),
    };
    text.split(',').map(parse).collect::<Result<_, _>>().map(Percentiles)
}
