//! The server's settings: a flag beats its environment variable, which beats the default. There is
//! no file.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroUsize};
use std::thread;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use monolock_core::duration::parse_duration;
use monolock_core::wire::PROTOCOL_VERSION;
use tracing::Level;

use crate::cli;
use crate::control::AuditTarget;
use crate::fatal::Fatal;

/// One setting, as the command line, the help and the documentation know it.
#[derive(Debug)]
pub struct Flag {
    /// Without dashes.
    pub name: &'static str,
    /// The environment variable that counts when the flag is not given.
    pub variable: &'static str,
    /// What counts when neither is given; `off` means that the feature is not used.
    pub default: &'static str,
    value_name: &'static str,
    meaning: &'static str,
}

const OFF: &str = "off";
const AUTO: &str = "auto";

/// More than any machine has processors to run.
const SHARDS_MAX: u32 = 1024;

/// Every setting there is.
pub const FLAGS: [Flag; 11] = [
    Flag {
        name: "listen",
        variable: "MONOLOCK_LISTEN_ADDRESS",
        default: "0.0.0.0:7070",
        value_name: "HOST:PORT",
        meaning: "address for clients; [::]:7070 takes IPv4 and IPv6, port 0 any free port",
    },
    Flag {
        name: "ops-listen",
        variable: "MONOLOCK_OPS_LISTEN_ADDRESS",
        default: OFF,
        value_name: "HOST:PORT",
        meaning: "address for /metrics, /healthz and /readyz",
    },
    Flag {
        name: "admin-listen",
        variable: "MONOLOCK_ADMIN_LISTEN_ADDRESS",
        default: OFF,
        value_name: "HOST:PORT",
        meaning: "address for the admin API, which has no authentication",
    },
    Flag {
        name: "admin-host",
        variable: "MONOLOCK_ADMIN_HOST",
        default: OFF,
        value_name: "NAMES",
        meaning: "names, with commas between them, that the admin API may be called by",
    },
    Flag {
        name: "audit-log",
        variable: "MONOLOCK_AUDIT_LOG",
        default: OFF,
        value_name: "PATH",
        meaning: "file that every change of ownership is appended to; - is stdout",
    },
    Flag {
        name: "shards",
        variable: "MONOLOCK_SHARDS",
        default: AUTO,
        value_name: "NUMBER",
        meaning: "event loops, a thread each; auto: one for each processor that it may use",
    },
    Flag {
        name: "io-timeout",
        variable: "MONOLOCK_IO_TIMEOUT",
        default: "5s",
        value_name: "DURATION",
        meaning: "time for a connection's first frame, and for a write that is stuck",
    },
    Flag {
        name: "max-lease",
        variable: "MONOLOCK_MAX_LEASE",
        default: OFF,
        value_name: "DURATION",
        meaning: "longest lease; a client that asks for more gets ERROR 0x19",
    },
    Flag {
        name: "max-sessions-per-peer",
        variable: "MONOLOCK_MAX_SESSIONS_PER_PEER",
        default: OFF,
        value_name: "NUMBER",
        meaning: "most connections from one address; those above it get ERROR 0x03",
    },
    Flag {
        name: "log-level",
        variable: "MONOLOCK_LOG_LEVEL",
        default: "info",
        value_name: "LEVEL",
        meaning: "debug, info, warn or error",
    },
    Flag {
        name: "log-format",
        variable: "MONOLOCK_LOG_FORMAT",
        default: "text",
        value_name: "FORMAT",
        meaning: "text or json, one line an event, on stderr",
    },
];

/// The settings of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect to.
    pub listen: SocketAddr,
    /// Where the ops endpoints are.
    pub ops_listen: Option<SocketAddr>,
    /// Where the admin API is.
    pub admin_listen: Option<SocketAddr>,
    /// The names that it may be called by, besides `localhost` and every address.
    pub admin_hosts: Vec<String>,
    /// Where every change of ownership is written.
    pub audit_log: Option<AuditTarget>,
    /// How many event loops there are.
    pub shards: NonZeroU32,
    /// The time for a first frame, and for a write that is stuck.
    pub io_timeout: Duration,
    /// The longest lease, in milliseconds.
    pub lease_max_ms: Option<NonZeroU32>,
    /// The most connections from one address.
    pub sessions_per_peer_max: Option<NonZeroU32>,
    /// The least important level that is logged.
    pub log_level: Level,
    /// What a line of the log looks like.
    pub log_format: LogFormat,
}

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Run the server.
    Serve(Config),
    /// Print this to stdout and be done.
    Print(String),
}

/// Understands the command line, without the program's name, and the environment.
///
/// # Errors
/// A line that names the flag or the variable that is wrong.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Request, Fatal> {
    let arguments = arguments.into_iter().map(with_two_dashes);
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    Ok(Request::Print(error.to_string()))
                }
                _ => Err(Fatal::usage(usage_line(&error))),
            };
        }
    };
    let settings = match matches.subcommand() {
        Some((name, _)) if name != "serve" => {
            return Err(Fatal::usage(format_args!(
                "{name:?} must be the first word: monolock {name} has flags of its own; see \
                 monolock {name} --help"
            )));
        }
        Some((_, of_serve)) => Settings { outer: &matches, inner: Some(of_serve) },
        None => Settings { outer: &matches, inner: None },
    };
    let config = config(&|flag| settings.get(flag, &environment))?;
    one_use_of_each_address(&config)?;
    refuse_what_would_be_overlooked(&environment)?;
    if settings.is_given(CHECK_CONFIG) {
        return settings.table(&environment).map(Request::Print);
    }
    Ok(Request::Serve(config))
}

/// The flag that only has the settings checked.
const CHECK_CONFIG: &str = "check-config";

fn config(setting: &dyn Fn(&str) -> Result<Setting, Fatal>) -> Result<Config, Fatal> {
    Ok(Config {
        listen: setting("listen")?.parse(parse_address)?,
        ops_listen: setting("ops-listen")?.parse_unless_off(parse_address)?,
        admin_listen: setting("admin-listen")?.parse_unless_off(parse_address)?,
        admin_hosts: setting("admin-host")?.parse_unless_off(parse_hosts)?.unwrap_or_default(),
        audit_log: setting("audit-log")?.parse_unless_off(|text| match text {
            "" => Err("give a path, - for stdout, or off".into()),
            "-" => Ok(AuditTarget::Stdout),
            path => Ok(AuditTarget::File(path.into())),
        })?,
        shards: setting("shards")?.parse(parse_shards)?,
        io_timeout: setting("io-timeout")?.parse(|text| match parse_duration(text) {
            Ok(Duration::ZERO) => Err("must be more than nothing".into()),
            Ok(timeout) => Ok(timeout),
            Err(error) => Err(error.to_string()),
        })?,
        lease_max_ms: setting("max-lease")?.parse_unless_off(parse_lease_ms)?,
        sessions_per_peer_max: setting("max-sessions-per-peer")?.parse_unless_off(|text| {
            text.parse().map_err(|_| format!("not a number from 1 to {}", u32::MAX))
        })?,
        log_level: setting("log-level")?.parse(|text| match text {
            "debug" => Ok(Level::DEBUG),
            "info" => Ok(Level::INFO),
            "warn" => Ok(Level::WARN),
            "error" => Ok(Level::ERROR),
            _ => Err("not a level: choose debug, info, warn or error".into()),
        })?,
        log_format: setting("log-format")?.parse(|text| match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("not a format: choose text or json".into()),
        })?,
    })
}

/// Variables of protection that this version does not have: who sets them relies on it.
const NOT_THERE_YET: [&str; 4] =
    ["MONOLOCK_TLS_CERT", "MONOLOCK_TLS_KEY", "MONOLOCK_TLS_CLIENT_CA", "MONOLOCK_ACL_FILE"];

fn refuse_what_would_be_overlooked(
    environment: &impl Fn(&str) -> Option<OsString>,
) -> Result<(), Fatal> {
    let is_set = |variable: &&str| environment(variable).is_some_and(|value| !value.is_empty());
    match NOT_THERE_YET.iter().find(|variable| is_set(variable)) {
        None => Ok(()),
        Some(variable) => Err(Fatal::usage(format_args!(
            "{variable}: this version has neither TLS nor access rules; unset it, and let only \
             those reach the server who may"
        ))),
    }
}

fn one_use_of_each_address(config: &Config) -> Result<(), Fatal> {
    let uses = [
        ("--listen", Some(config.listen)),
        ("--ops-listen", config.ops_listen),
        ("--admin-listen", config.admin_listen),
    ];
    for (number, (flag, address)) in uses.iter().enumerate() {
        let earlier = uses[..number].iter().find(|(_, other)| other == address);
        if let (Some(address), Some((other, _))) = (address, earlier)
            && address.port() != 0
        {
            return Err(Fatal::usage(format_args!(
                "{other} and {flag} are both {address}: choose another port for one of them"
            )));
        }
    }
    Ok(())
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    const SHAPE: &str = "write it as HOST:PORT, for example 127.0.0.1:7070 or [::]:7070";
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_| format!("not a port; {SHAPE}"))?;
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or(format!("not an address; {SHAPE}"))?;
    let port: u16 = port.parse().map_err(|_| format!("not an address; {SHAPE}"))?;
    if host.is_empty() || host.contains([':', '[', ']']) {
        return Err(format!("not an address; {SHAPE}"));
    }
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("the host can't be resolved ({error})"))?;
    addresses.next().ok_or_else(|| "the host has no address".into())
}

fn parse_shards(text: &str) -> Result<NonZeroU32, String> {
    if text == AUTO {
        // One, if the kernel does not say.
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let shards = u32::try_from(processors).unwrap_or(SHARDS_MAX).min(SHARDS_MAX);
        return Ok(NonZeroU32::new(shards).expect("not zero"));
    }
    let shards = text.parse().ok().filter(|shards: &NonZeroU32| shards.get() <= SHARDS_MAX);
    shards.ok_or_else(|| format!("choose a number from 1 to {SHARDS_MAX}, or {AUTO}"))
}

fn parse_hosts(text: &str) -> Result<Vec<String>, String> {
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().find(|name| name.is_empty() || !name.chars().all(is_in_names)) {
        None => Ok(names),
        Some(name) => Err(format!("{name:?} is no host's name; give names without ports")),
    }
}

fn parse_lease_ms(text: &str) -> Result<NonZeroU32, String> {
    let lease = parse_duration(text).map_err(|error| error.to_string())?;
    let lease_ms = u32::try_from(lease.as_millis()).ok().and_then(NonZeroU32::new);
    lease_ms.ok_or_else(|| "a lease is 1ms at least and 2^32-1 ms at most".into())
}

/// A setting's text and where it stands.
#[derive(Debug)]
struct Setting {
    text: String,
    place: String,
}

impl Setting {
    fn new(value: OsString, place: String) -> Result<Setting, Fatal> {
        match value.into_string() {
            Ok(text) => Ok(Setting { text, place }),
            Err(_) => Err(Fatal::usage(format_args!("{place}: not UTF-8"))),
        }
    }

    fn parse<T>(self, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Fatal> {
        parse(&self.text).map_err(|wrong| {
            Fatal::usage(format_args!("{}: {:?} is wrong: {wrong}", self.place, self.text))
        })
    }

    fn parse_unless_off<T>(
        self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Fatal> {
        if self.text == OFF { Ok(None) } else { self.parse(parse).map(Some) }
    }
}

/// The flags given before a subcommand, and those behind it.
struct Settings<'a> {
    outer: &'a ArgMatches,
    inner: Option<&'a ArgMatches>,
}

impl Settings<'_> {
    fn is_given(&self, flag: &str) -> bool {
        self.inner.iter().chain([&self.outer]).any(|matches| matches.get_flag(flag))
    }

    /// What holds and where it comes from, one setting a line.
    fn table(&self, environment: &impl Fn(&str) -> Option<OsString>) -> Result<String, Fatal> {
        let mut table = String::new();
        for flag in &FLAGS {
            let Setting { text, place } = self.get(flag.name, environment)?;
            let is_default = environment(flag.variable).is_none_or(|value| value.is_empty())
                && !self.is_on_command_line(flag.name);
            let place = if is_default { "the default" } else { place.as_str() };
            let _ = writeln!(table, "{:<24}{text:<24} from {place}", flag.name);
        }
        Ok(table)
    }

    fn is_on_command_line(&self, name: &str) -> bool {
        let mut given = self.inner.iter().chain([&self.outer]);
        given.any(|matches| matches.value_source(name) == Some(ValueSource::CommandLine))
    }

    fn get(
        &self,
        name: &str,
        environment: &impl Fn(&str) -> Option<OsString>,
    ) -> Result<Setting, Fatal> {
        let flag = FLAGS.iter().find(|flag| flag.name == name).expect("every setting has a flag");
        for matches in self.inner.iter().copied().chain([self.outer]) {
            if matches.value_source(name) == Some(ValueSource::CommandLine)
                && let Some(value) = matches.get_one::<OsString>(name)
            {
                return Setting::new(value.clone(), format!("--{name}"));
            }
        }
        match environment(flag.variable).filter(|value| !value.is_empty()) {
            Some(value) => Setting::new(value, flag.variable.to_owned()),
            None => Setting::new(flag.default.into(), format!("--{name}")),
        }
    }
}

/// The whole command line: the server's flags, and all commands.
pub(crate) fn command() -> Command {
    let serve = Command::new("serve")
        .override_usage("monolock serve [OPTIONS]")
        .about("Run the server; the same as no command at all")
        .args(flags())
        .arg(check_flag())
        .disable_help_flag(true)
        .arg(help_flag());
    Command::new("monolock")
        .about("A server for named locks with fencing tokens.")
        .version(VERSION)
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .args(flags())
        .arg(check_flag())
        .arg(help_flag())
        .subcommand(serve)
        .subcommands(cli::commands())
        .after_help(
            "Without a command the server runs.\n\
             Every flag may be written -name value, -name=value, --name value or --name=value.\n\
             A flag beats its variable, a variable its default; an empty variable is none.",
        )
}

fn flags() -> impl Iterator<Item = Arg> {
    FLAGS.iter().map(|flag| {
        let Flag { name, variable, default, value_name, meaning } = flag;
        Arg::new(name)
            .long(name)
            .value_name(value_name)
            .help(format!("{meaning} [variable: {variable}] [default: {default}]"))
            // What is not UTF-8 is refused where the flag's name is at hand.
            .value_parser(clap::value_parser!(OsString))
            .overrides_with(name)
            // So that a negative number is refused as the flag's value.
            .allow_negative_numbers(true)
    })
}

fn check_flag() -> Arg {
    Arg::new(CHECK_CONFIG)
        .long(CHECK_CONFIG)
        .action(clap::ArgAction::SetTrue)
        .help("Print what holds and where it comes from, or what is wrong, and don't run")
}

fn help_flag() -> Arg {
    Arg::new("help").short('h').long("help").action(clap::ArgAction::HelpShort).help("Print this")
}

/// The commit that the program was built from.
pub const COMMIT: &str = env!("MONOLOCK_COMMIT");

/// Version, commit and protocol, on one line.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("MONOLOCK_COMMIT"),
    ", protocol version 1)"
);
const _: () = assert!(PROTOCOL_VERSION == 1, "as VERSION says");

/// `-listen` is as good as `--listen`; clap takes it for `-l -i -s …`. One letter stays a short
/// flag.
fn with_two_dashes(argument: OsString) -> OsString {
    match argument.to_str().and_then(|text| text.strip_prefix('-')) {
        Some(rest) if rest.len() > 1 && rest.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            format!("--{rest}").into()
        }
        _ => argument,
    }
}

/// The first line of what clap has to say, which names the flag; the rest is usage and tips.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line}; see monolock --help")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parse_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Request, String> {
        let environment = |name: &str| {
            let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(OsString::from(value))
        };
        parse(arguments.iter().map(OsString::from), environment).map_err(|fatal| fatal.to_string())
    }

    fn config_with(arguments: &[&str], variables: &[(&str, &str)]) -> Config {
        match parse_with(arguments, variables) {
            Ok(Request::Serve(config)) => config,
            other => panic!("no configuration: {other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_table() {
        let config = config_with(&[], &[]);
        assert_eq!(config.listen, "0.0.0.0:7070".parse().unwrap());
        assert_eq!(config.ops_listen, None);
        assert_eq!(config.admin_listen, None);
        assert!(config.admin_hosts.is_empty());
        assert_eq!(config.audit_log, None);
        assert_eq!(config.shards.get() as usize, thread::available_parallelism().unwrap().get());
        assert_eq!(config.io_timeout, Duration::from_secs(5));
        assert_eq!(config.lease_max_ms, None);
        assert_eq!(config.sessions_per_peer_max, None);
        assert_eq!(config.log_level, Level::INFO);
        assert_eq!(config.log_format, LogFormat::Text);
    }

    #[test]
    fn every_spelling_of_a_flag_is_understood() {
        for arguments in [
            &["-io-timeout", "250ms"][..],
            &["-io-timeout=250ms"],
            &["--io-timeout", "250ms"],
            &["--io-timeout=250ms"],
            &["serve", "-io-timeout=250ms"],
            &["-io-timeout=250ms", "serve"],
            &["--io-timeout=1s", "--io-timeout=250ms"],
            &["--io-timeout=1s", "serve", "--io-timeout=250ms"],
        ] {
            let config = config_with(arguments, &[("MONOLOCK_IO_TIMEOUT", "9s")]);
            assert_eq!(config.io_timeout, Duration::from_millis(250), "{arguments:?}");
        }
    }

    #[test]
    fn a_variable_beats_the_default_and_an_empty_one_is_none() {
        let config = config_with(&[], &[("MONOLOCK_LISTEN_ADDRESS", "[::1]:1")]);
        assert_eq!(config.listen, "[::1]:1".parse().unwrap());
        let config = config_with(&[], &[("MONOLOCK_LISTEN_ADDRESS", "")]);
        assert_eq!(config.listen, "0.0.0.0:7070".parse().unwrap());
    }

    #[test]
    fn checking_prints_what_holds_and_where_it_comes_from() {
        let arguments = ["--check-config", "-io-timeout", "250ms"];
        let variables = [("MONOLOCK_LOG_LEVEL", "warn"), ("MONOLOCK_SHARDS", "")];
        let Ok(Request::Print(table)) = parse_with(&arguments, &variables) else {
            panic!("no table")
        };
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), FLAGS.len());
        for row in [
            ["io-timeout", "250ms", "from", "--io-timeout"].as_slice(),
            &["log-level", "warn", "from", "MONOLOCK_LOG_LEVEL"],
            &["shards", "auto", "from", "the", "default"],
        ] {
            assert!(rows.iter().any(|other| other == row), "{row:?}: {table}");
        }
        let wrong = parse_with(&["serve", "--check-config", "--io-timeout", "5"], &[]);
        assert!(wrong.expect_err("wrong").contains("--io-timeout"));
    }

    #[test]
    fn wrong_values_name_their_place() {
        for (arguments, variables, place) in [
            (&["--listen", "nowhere"][..], &[][..], "--listen"),
            (&["--listen", "127.0.0.1:99999"], &[], "--listen"),
            (&["--listen", "::1:7070"], &[], "--listen"),
            (&["--ops-listen", "9090"], &[], "--ops-listen"),
            (&["--admin-listen", "localhost"], &[], "--admin-listen"),
            (&["--admin-host", "a.example,"], &[], "--admin-host"),
            (&["--admin-host", "a.example:7071"], &[], "--admin-host"),
            (&["--shards", "0"], &[], "--shards"),
            (&["--shards", "1025"], &[], "--shards"),
            (&["--shards", "99999999999999"], &[], "--shards"),
            (&["--shards", "two"], &[], "--shards"),
            (&[], &[("MONOLOCK_SHARDS", "0")], "MONOLOCK_SHARDS"),
            (&["--io-timeout", "0s"], &[], "--io-timeout"),
            (&["--io-timeout", "5"], &[], "--io-timeout"),
            (&["--max-lease", "0s"], &[], "--max-lease"),
            (&["--max-lease", "1200h"], &[], "--max-lease"),
            (&["--max-sessions-per-peer", "0"], &[], "--max-sessions-per-peer"),
            (&["--max-sessions-per-peer", "-1"], &[], "--max-sessions-per-peer"),
            (&["--log-level", "loud"], &[], "--log-level"),
            (&["--log-format", "xml"], &[], "--log-format"),
            (&[], &[("MONOLOCK_LOG_FORMAT", "xml")], "MONOLOCK_LOG_FORMAT"),
            (&["--audit-log", ""], &[], "--audit-log"),
            (&["--ops-listen", "[::1]:9", "--listen", "[::1]:9"], &[], "--listen and --ops-listen"),
            (
                &["--admin-listen", "127.0.0.1:9"],
                &[("MONOLOCK_OPS_LISTEN_ADDRESS", "127.0.0.1:9")],
                "--ops-listen and --admin-listen",
            ),
            (&[], &[("MONOLOCK_TLS_KEY", "key.pem")], "MONOLOCK_TLS_KEY"),
            (&[], &[("MONOLOCK_ACL_FILE", "acl.json")], "MONOLOCK_ACL_FILE"),
            (&["--nonsense"], &[], "--nonsense"),
            (&["-nonsense"], &[], "-nonsense"),
            (&["--listen"], &[], "--listen"),
            (&["fly"], &[], "fly"),
        ] {
            let line = parse_with(arguments, variables).expect_err("wrong");
            assert!(line.contains(place), "{arguments:?}: {line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn what_is_not_utf_8_is_refused_by_the_name_of_its_place() {
        let value = OsString::from_vec(vec![b'5', 0xff]);
        let mut argument = OsString::from("--io-timeout=");
        argument.push(&value);
        let by_flag = parse([argument], |_| None).expect_err("wrong");
        assert_eq!(by_flag.to_string(), "--io-timeout: not UTF-8");
        let by_variable = parse([], |_| Some(value.clone())).expect_err("wrong");
        assert_eq!(by_variable.to_string(), "MONOLOCK_LISTEN_ADDRESS: not UTF-8");
    }

    #[test]
    fn a_port_alone_means_every_address() {
        assert_eq!(parse_address(":7070"), Ok("[::]:7070".parse().unwrap()));
        assert!(parse_address("localhost:7070").unwrap().ip().is_loopback());
    }

    #[test]
    fn the_help_names_flags_variables_and_defaults() {
        let Ok(Request::Print(help)) = parse_with(&["-h"], &[]) else { panic!("no help") };
        for flag in &FLAGS {
            assert!(help.contains(&format!("--{}", flag.name)), "{help}");
            assert!(help.contains(flag.variable), "{help}");
            assert!(help.contains(&format!("[default: {}]", flag.default)), "{help}");
        }
    }
}
