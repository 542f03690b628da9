//! The command lines of the admin commands.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use monolock_core::wire::NAME_LEN_MAX;

use crate::cli::command_line::{self, Instead};

const ADDRESS_DEFAULT: &str = "127.0.0.1:7071";

/// What is asked for, and how.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) request: Request,
    pub(super) address: String,
    /// Print the API's JSON.
    pub(super) is_json: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Locks { pattern: Option<String> },
    Show { lock: String },
    Release { lock: String, token: Option<u64> },
    Kick { lock: String, waiter: String },
    Info,
}

/// All admin commands.
pub(crate) fn commands() -> [Command; 5] {
    let lock = || {
        let help = format!("The lock, 1 to {NAME_LEN_MAX} bytes");
        Arg::new("lock").value_name("LOCK").required(true).help(help)
    };
    let locks = command("locks", "List the locks that somebody holds or waits for")
        .arg(Arg::new("match").short('m').long("match").value_name("GLOB").help(
            "Only names that match: * is any text, / included, ? one character [default: all]",
        ))
        .after_help(
            "Columns: name; holder's address, identity and token; since when; its lease; the time \
             since its last message; number of waiters.",
        );
    let show = command("show", "Show a lock's holder and its queue in order").arg(lock());
    let release =
        command("release", "Take a lock from its holder; the next waiter gets it").arg(lock()).arg(
            Arg::new("token")
                .long("token")
                .value_name("TOKEN")
                .value_parser(value_parser!(u64).range(1..))
                .help("Only from the holder with this token [default: who holds it now]"),
        );
    let kick = command("kick", "Take a waiter out of a lock's queue").arg(lock()).arg(
        Arg::new("waiter")
            .value_name("REMOTE_ADDR")
            .required(true)
            .help("The waiter's address, as monolock show prints it"),
    );
    let info = command("info", "Show the server's version, settings and counts");
    [locks, show, release, kick, info]
}

fn command(name: &'static str, about: &'static str) -> Command {
    command_line::command(name)
        .about(about)
        .arg(
            Arg::new("admin-address")
                .short('a')
                .long("admin-address")
                .value_name("HOST:PORT")
                .help(format!(
                    "The server's admin port [variable: MONOLOCK_ADMIN_ADDRESS] \
                 [default: {ADDRESS_DEFAULT}]"
                )),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the JSON of the admin API"),
        )
}

impl Options {
    /// Understands the arguments behind the name of a command, and the environment.
    ///
    /// # Errors
    /// What to print in place of carrying it out.
    pub(super) fn parse(
        command: Command,
        arguments: &[OsString],
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Options, Instead> {
        let name = command.get_name().to_owned();
        let matches = command_line::matches(command, arguments)?;
        let (address, _) = command_line::setting(
            &matches,
            &environment,
            "admin-address",
            "MONOLOCK_ADMIN_ADDRESS",
            ADDRESS_DEFAULT,
        )?;
        let request = match name.as_str() {
            "locks" => Request::Locks { pattern: matches.get_one("match").cloned() },
            "show" => Request::Show { lock: lock(&matches)? },
            "release" => {
                Request::Release { lock: lock(&matches)?, token: matches.get_one("token").copied() }
            }
            "kick" => Request::Kick { lock: lock(&matches)?, waiter: waiter(&matches)? },
            _ => Request::Info,
        };
        Ok(Options { request, address, is_json: matches.get_flag("json") })
    }
}

fn lock(matches: &ArgMatches) -> Result<String, Instead> {
    let lock: String = matches.get_one("lock").cloned().unwrap_or_default();
    match lock.len() {
        1..=NAME_LEN_MAX => Ok(lock),
        len => Err(Instead::Wrong(format!(
            "LOCK: the lock name has {len} bytes: it needs 1 to {NAME_LEN_MAX}"
        ))),
    }
}

fn waiter(matches: &ArgMatches) -> Result<String, Instead> {
    let waiter: String = matches.get_one("waiter").cloned().unwrap_or_default();
    if waiter.parse::<std::net::SocketAddr>().is_err() {
        return Err(Instead::Wrong(format!(
            "REMOTE_ADDR: {waiter:?} is not an address such as 10.0.0.6:41230 or [::1]:41230, as \
             monolock show prints them"
        )));
    }
    Ok(waiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Options, String> {
        let (name, rest) = arguments.split_first().expect("a command");
        let command = commands().into_iter().find(|command| command.get_name() == *name);
        let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
        let environment = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Options::parse(command.expect("known"), &rest, environment).map_err(|instead| match instead
        {
            Instead::Wrong(line) => line,
            Instead::Print(text) => panic!("{text}"),
        })
    }

    #[test]
    fn requests_are_understood() {
        for (arguments, request) in [
            (&["locks"][..], Request::Locks { pattern: None }),
            (&["locks", "-m", "a*"], Request::Locks { pattern: Some("a*".into()) }),
            (&["show", "a b"], Request::Show { lock: "a b".into() }),
            (&["show", "--", "-a"], Request::Show { lock: "-a".into() }),
            (&["release", "a"], Request::Release { lock: "a".into(), token: None }),
            (&["release", "--token=7", "a"], Request::Release { lock: "a".into(), token: Some(7) }),
            (
                &["kick", "a", "[::1]:2"],
                Request::Kick { lock: "a".into(), waiter: "[::1]:2".into() },
            ),
            (&["info"], Request::Info),
        ] {
            let options = parse(arguments, &[("MONOLOCK_ADMIN_ADDRESS", "")]).expect("right");
            assert_eq!(options.request, request);
            assert_eq!((options.address.as_str(), options.is_json), (ADDRESS_DEFAULT, false));
        }
    }

    #[test]
    fn a_flag_beats_its_variable() {
        let variables = [("MONOLOCK_ADMIN_ADDRESS", "v:1")];
        assert_eq!(parse(&["info"], &variables).expect("right").address, "v:1");
        let by_flag = parse(&["info", "--json", "-a", "f:1"], &variables).expect("right");
        assert_eq!((by_flag.address.as_str(), by_flag.is_json), ("f:1", true));
    }

    #[test]
    fn what_is_wrong_is_named_on_one_line() {
        let long = "x".repeat(256);
        for (arguments, named) in [
            (&["show"][..], "LOCK"),
            (&["show", ""], "LOCK"),
            (&["show", &long], "256 bytes"),
            (&["show", "a", "b"], "b"),
            (&["release", "a", "--token", "0"], "--token"),
            (&["release", "a", "--token", "-1"], "-1"),
            (&["release", "a", "--token", "x"], "--token"),
            (&["kick", "a"], "REMOTE_ADDR"),
            (&["kick", "a", "localhost:1"], "REMOTE_ADDR"),
            (&["locks", "a"], "a"),
            (&["info", "--nonsense"], "--nonsense"),
        ] {
            let line = parse(arguments, &[]).expect_err("wrong");
            assert!(line.contains(named), "{arguments:?}: {line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
