//! The command line of `monolock run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, Command, value_parser};
use monolock_core::duration::parse_duration;
use rustix::process::Signal;

use super::command_line::{self, Instead};
use super::exit_code;

const ADDRESS_DEFAULT: &str = "127.0.0.1:7070";
const LEASE_DEFAULT: &str = "10s";

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Only what the command was not run for.
    Quiet,
    /// Losses, and that a server is not there.
    Normal,
    /// Every step.
    Verbose,
}

/// See the help texts of the flags.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) lock: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) address: String,
    pub(crate) lease: Duration,
    pub(crate) is_waiting: bool,
    pub(crate) wait_max: Option<Duration>,
    pub(crate) retries: bool,
    pub(crate) hold_max: Option<Duration>,
    /// Derived from the lease unless given.
    pub(crate) kill_after: Option<Duration>,
    pub(crate) signal: Signal,
    pub(crate) conflict_exit_code: u8,
    pub(crate) lost_exit_code: u8,
    pub(crate) verbosity: Verbosity,
}

impl Options {
    /// Understands the arguments behind `run`, and the environment.
    ///
    /// # Errors
    /// What to print in place of running it.
    pub(crate) fn parse(
        arguments: &[OsString],
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Options, Instead> {
        let matches = command_line::matches(command(), arguments)?;
        let setting = |name, variable, default: &str| {
            command_line::setting(&matches, &environment, name, variable, default)
        };
        let (lease, place) = setting("lease", "MONOLOCK_LEASE", LEASE_DEFAULT)?;
        let lease =
            parse_duration(&lease).map_err(|error| Instead::Wrong(format!("{place}: {error}")))?;
        let (address, _) = setting("address", "MONOLOCK_ADDRESS", ADDRESS_DEFAULT)?;
        let code = |name, default| matches.get_one(name).copied().unwrap_or(default);
        Ok(Options {
            lock: matches.get_one::<String>("lock").cloned().unwrap_or_default(),
            command: matches.get_many("command").into_iter().flatten().cloned().collect(),
            address,
            lease,
            is_waiting: !matches.get_flag("nonblock"),
            wait_max: matches.get_one("wait").copied(),
            // Who does not want to wait does not want to wait for the server either.
            retries: !matches.get_flag("no-retry") && !matches.get_flag("nonblock"),
            hold_max: matches.get_one("max-hold").copied(),
            kill_after: matches.get_one("kill-after").copied(),
            signal: matches.get_one("signal").copied().unwrap_or(Signal::TERM),
            conflict_exit_code: code("conflict-exit-code", exit_code::CONFLICT),
            lost_exit_code: code("lost-exit-code", exit_code::LOST),
            verbosity: match (matches.get_flag("quiet"), matches.get_flag("verbose")) {
                (true, _) => Verbosity::Quiet,
                (_, true) => Verbosity::Verbose,
                _ => Verbosity::Normal,
            },
        })
    }
}

pub(crate) fn command() -> Command {
    command_line::command("run")
        .about("Hold a lock while a command runs")
        .override_usage("monolock run [OPTIONS] LOCK -- COMMAND [ARG]...")
        .args(server_args())
        .args(waiting_args())
        .args(ending_args())
        .arg(flag("verbose", 'v', "Say every step on stderr").conflicts_with("quiet"))
        .arg(flag("quiet", 'q', "Say only why the command was not run"))
        .arg(Arg::new("lock").value_name("LOCK").required(true).help("The lock, 1 to 255 bytes"))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .help("The command and its arguments")
                .required(true)
                .num_args(1..)
                .last(true)
                .value_parser(value_parser!(OsString)),
        )
        .after_help(
            "The command is executed directly, without a shell, and finds MONOLOCK_LOCK, \
             MONOLOCK_TOKEN and MONOLOCK_LEASE_MS in its environment.\n\
             Exit codes: monolock help exit-codes",
        )
}

fn server_args() -> [Arg; 2] {
    [
        Arg::new("address")
            .short('a')
            .long("address")
            .value_name("HOST:PORT")
            .help(format!("Server [variable: MONOLOCK_ADDRESS] [default: {ADDRESS_DEFAULT}]")),
        Arg::new("lease").short('l').long("lease").value_name("DURATION").help(format!(
            "How long the lock may sit behind a dead holder [variable: MONOLOCK_LEASE] \
             [default: {LEASE_DEFAULT}]"
        )),
    ]
}

fn waiting_args() -> [Arg; 4] {
    [
        flag("nonblock", 'n', "Give up at once if somebody else holds the lock")
            .conflicts_with("wait"),
        duration("wait", "Give up after this time [default: never]").short('w'),
        code("conflict-exit-code", "Exit code for --nonblock and --wait [default: 124]").short('E'),
        Arg::new("no-retry")
            .long("no-retry")
            .action(ArgAction::SetTrue)
            .help("Fail when the server is not there, or ends the wait; else try again"),
    ]
}

fn ending_args() -> [Arg; 4] {
    [
        duration("max-hold", "End the command after this time [default: never]"),
        Arg::new("signal")
            .short('s')
            .long("signal")
            .value_name("SIGNAL")
            .value_parser(parse_signal)
            .help("What the command gets first when the lock is lost [default: TERM]"),
        duration(
            "kill-after",
            "Time from then to SIGKILL [default: until the server may give the lock away]",
        )
        .short('k'),
        code("lost-exit-code", "Exit code after a loss, or --max-hold [default: 123]"),
    ]
}

fn flag(name: &'static str, short: char, help: &'static str) -> Arg {
    Arg::new(name).short(short).long(name).action(ArgAction::SetTrue).help(help)
}

fn duration(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("DURATION").value_parser(parse_duration).help(help)
}

fn code(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("CODE").value_parser(value_parser!(u8)).help(help)
}

/// A name with or without SIG, or a number.
fn parse_signal(text: &str) -> Result<Signal, &'static str> {
    const NAMED: [(&str, Signal); 9] = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("ABRT", Signal::ABORT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_name = NAMED.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    by_name
        .or_else(|| Signal::from_named_raw(text.parse().ok()?))
        .ok_or("not a signal that ends a command: choose one such as TERM, INT or 9")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Options, String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let environment = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Options::parse(&arguments, environment).map_err(|instead| match instead {
            Instead::Wrong(line) => line,
            Instead::Print(text) => panic!("{text}"),
        })
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let options = parse(&["a", "--", "true"], &[("MONOLOCK_LEASE", "")]).unwrap();
        assert_eq!((options.lock.as_str(), options.address.as_str()), ("a", ADDRESS_DEFAULT));
        assert_eq!(options.lease, Duration::from_secs(10));
        assert!(options.is_waiting && options.retries);
        assert_eq!((options.wait_max, options.hold_max, options.kill_after), (None, None, None));
        assert_eq!((options.conflict_exit_code, options.lost_exit_code), (124, 123));
        assert_eq!((options.signal, options.verbosity), (Signal::TERM, Verbosity::Normal));
        let text = command().render_help().to_string();
        for default in [ADDRESS_DEFAULT, LEASE_DEFAULT, "124", "123", "TERM"] {
            assert!(text.contains(&format!("[default: {default}]")), "{default}: {text}");
        }
    }

    #[test]
    fn everything_behind_the_dashes_is_the_commands() {
        let options =
            parse(&["-v", "-a", "x:1", "a b", "-n", "--", "ls", "-n", "--", "-w"], &[]).unwrap();
        assert_eq!(options.command, ["ls", "-n", "--", "-w"]);
        assert_eq!((options.lock.as_str(), options.address.as_str()), ("a b", "x:1"));
        assert!(!options.is_waiting);
    }

    #[test]
    fn a_flag_beats_its_variable() {
        let variables = [("MONOLOCK_ADDRESS", "v:1"), ("MONOLOCK_LEASE", "3s")];
        let by_variable = parse(&["a", "--", "true"], &variables).unwrap();
        assert_eq!((by_variable.address.as_str(), by_variable.lease.as_secs()), ("v:1", 3));
        let by_flag = parse(&["-a", "f:1", "--lease=4s", "a", "--", "true"], &variables).unwrap();
        assert_eq!((by_flag.address.as_str(), by_flag.lease.as_secs()), ("f:1", 4));
    }

    #[test]
    fn signals_are_named_or_numbered() {
        for text in ["INT", "sigint", "2"] {
            assert_eq!(parse_signal(text), Ok(Signal::INT), "{text}");
        }
        assert!(parse_signal("0").is_err() && parse_signal("NOISE").is_err());
    }

    #[test]
    fn what_is_wrong_is_named_on_one_line() {
        for (arguments, named) in [
            (&["a"][..], "COMMAND"),
            (&["--", "true"], "LOCK"),
            (&["a", "true"], "true"),
            (&["a", "--"], "COMMAND"),
            (&["--wait", "soon", "a", "--", "true"], "--wait"),
            (&["--wait", "1s", "-n", "a", "--", "true"], "--nonblock"),
            (&["--lease", "5", "a", "--", "true"], "--lease"),
            (&["-E", "256", "a", "--", "true"], "--conflict-exit-code"),
            (&["-s", "NOISE", "a", "--", "true"], "--signal"),
            (&["--nonsense", "a", "--", "true"], "--nonsense"),
        ] {
            let line = parse(arguments, &[]).expect_err("wrong");
            assert!(line.contains(named), "{arguments:?}: {line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
