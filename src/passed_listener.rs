//! Listening sockets that whoever started the server has bound already, handed over by systemd's
//! protocol for socket activation: descriptors from number 3 on, and three variables that say for
//! which process they are, how many, and what each is called.
//!
//! Such a socket outlives the server: while one server is down and the next one comes up, clients
//! wait in the kernel's queue.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{OwnedFd, RawFd};
use std::process;

use socket2::{Protocol, Socket, Type};

use crate::fatal::Fatal;
use crate::{listener, sys};

/// What the sockets are for, by the names that systemd has from `FileDescriptorName=`.
const NAMES: [&str; 3] = ["protocol", "ops", "admin"];
const PROTOCOL: usize = 0;
const OPS: usize = 1;
const ADMIN: usize = 2;

/// The number of the first passed descriptor: those below are stdin, stdout and stderr.
const FIRST: RawFd = 3;

/// More than this nobody passes to a server with a few ports.
const COUNT_MAX: usize = 64;

/// The sockets that were passed to this process.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// For clients.
    pub(crate) protocol: Option<TcpListener>,
    /// For the ops endpoints.
    pub(crate) ops: Option<TcpListener>,
    /// For the admin API.
    pub(crate) admin: Option<TcpListener>,
}

/// Takes what was passed.
///
/// # Errors
/// A line that says what is wrong with it.
pub(crate) fn take(environment: impl Fn(&str) -> Option<OsString>) -> Result<Passed, Fatal> {
    let variable = |name| environment(name).map(|value| value.to_string_lossy().into_owned());
    let pid = process::id();
    let names = names(pid, &variable).map_err(Fatal::dead_end)?;
    let numbers = numbers(&names).map_err(Fatal::dead_end)?;
    let mut passed = Passed::default();
    if let Some(number) = numbers[PROTOCOL] {
        let socket = take_socket(number)?;
        listener::adopt(&socket).map_err(|error| wrong(number, error))?;
        passed.protocol = Some(socket.into());
    }
    passed.ops = numbers[OPS].map(take_http_listener).transpose()?;
    passed.admin = numbers[ADMIN].map(take_http_listener).transpose()?;
    Ok(passed)
}

fn take_http_listener(number: RawFd) -> Result<TcpListener, Fatal> {
    let socket = take_socket(number)?;
    socket.set_nonblocking(true).map_err(|error| wrong(number, error))?;
    Ok(socket.into())
}

fn take_socket(number: RawFd) -> Result<Socket, Fatal> {
    let passed = sys::take_inherited(number).map_err(|error| wrong(number, error))?;
    let Some(passed) = passed else {
        return Err(wrong(number, "no descriptor has this number"));
    };
    listening_tcp(passed).map_err(|what| wrong(number, what))
}

fn wrong(number: RawFd, what: impl std::fmt::Display) -> Fatal {
    Fatal::dead_end(format_args!(
        "cannot use descriptor {number}, passed by LISTEN_FDS: {what}; pass a listening TCP socket"
    ))
}

/// The names of the descriptors that are meant for the process `pid`, in the order of their
/// numbers. A name is empty if nobody gave one.
fn names(
    pid: u32,
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Vec<String>, String> {
    // The variables are inherited like all others, so they may be meant for an ancestor.
    if variable("LISTEN_PID").is_none_or(|text| text != pid.to_string()) {
        return Ok(Vec::new());
    }
    let Some(text) = variable("LISTEN_FDS") else {
        return Ok(Vec::new());
    };
    let count = text.parse().ok().filter(|count| *count <= COUNT_MAX);
    let count: usize = count.ok_or_else(|| {
        format!("LISTEN_FDS: {text:?} is wrong: not a number of descriptors from 0 to {COUNT_MAX}")
    })?;
    let Some(text) = variable("LISTEN_FDNAMES").filter(|text| !text.is_empty()) else {
        return Ok(vec![String::new(); count]);
    };
    let names: Vec<String> = text.split(':').map(str::to_owned).collect();
    if names.len() != count {
        let named = names.len();
        return Err(format!(
            "LISTEN_FDNAMES: {text:?} is wrong: {named} names for {count} descriptors"
        ));
    }
    Ok(names)
}

/// Which descriptor is for what, in the order of [`NAMES`]. One that is alone and has no name of
/// its own is for clients.
fn numbers(names: &[String]) -> Result<[Option<RawFd>; NAMES.len()], String> {
    let mut numbers = [None; NAMES.len()];
    for (number, name) in (FIRST..).zip(names) {
        let purpose = match NAMES.iter().position(|known| name == known) {
            Some(purpose) => purpose,
            None if names.len() == 1 && is_unnamed(name) => PROTOCOL,
            None => {
                return Err(format!(
                    "LISTEN_FDNAMES: there is no use for a descriptor called {name:?}: give it one \
                     of the names {NAMES:?} (FileDescriptorName=)"
                ));
            }
        };
        if numbers[purpose].replace(number).is_some() {
            return Err(format!(
                "LISTEN_FDS: more than one socket called {name:?} was passed, and only one can be \
                 used: pass one, an address such as [::]:7070 takes IPv4 and IPv6"
            ));
        }
    }
    Ok(numbers)
}

/// Whether nobody chose this name: systemd's own are the socket unit's name, and "unknown".
fn is_unnamed(name: &str) -> bool {
    name.is_empty() || name == "unknown" || name.ends_with(".socket")
}

fn listening_tcp(passed: OwnedFd) -> Result<Socket, String> {
    let socket = Socket::from(passed);
    let is_tcp = |socket: &Socket| -> io::Result<bool> {
        Ok(socket.r#type()? == Type::STREAM && socket.protocol()? == Some(Protocol::TCP))
    };
    if !is_tcp(&socket).map_err(|error| format!("it is no socket ({error})"))? {
        return Err("it is no TCP socket".into());
    }
    match socket.is_listener() {
        Ok(true) => Ok(socket),
        Ok(false) => Err("the socket is not listening".into()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)]) -> Result<[Option<RawFd>; 3], String> {
        let variable = |name: &'static str| {
            let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some((*value).to_owned())
        };
        names(42, &variable).and_then(|names| numbers(&names))
    }

    fn chosen_of(count: &str, names: &str) -> Result<[Option<RawFd>; 3], String> {
        chosen(&[("LISTEN_PID", "42"), ("LISTEN_FDS", count), ("LISTEN_FDNAMES", names)])
    }

    #[test]
    fn variables_of_another_process_are_ignored() {
        for variables in [
            &[][..],
            &[("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "42")],
            &[("LISTEN_PID", "41"), ("LISTEN_FDS", "nonsense")],
            &[("LISTEN_PID", ""), ("LISTEN_FDS", "1")],
            &[("LISTEN_PID", "42"), ("LISTEN_FDS", "0")],
        ] {
            assert_eq!(chosen(variables), Ok([None; 3]), "{variables:?}");
        }
    }

    #[test]
    fn the_socket_for_clients_is_called_protocol_or_has_no_name_of_its_own() {
        for names in ["protocol", "", "unknown", "monolock.socket"] {
            assert_eq!(chosen_of("1", names), Ok([Some(3), None, None]), "{names:?}");
        }
        assert_eq!(chosen(&[("LISTEN_PID", "42"), ("LISTEN_FDS", "1")]), Ok([Some(3), None, None]));
    }

    #[test]
    fn each_name_has_its_purpose_in_any_order() {
        assert_eq!(chosen_of("1", "ops"), Ok([None, Some(3), None]));
        assert_eq!(chosen_of("2", "ops:protocol"), Ok([Some(4), Some(3), None]));
        assert_eq!(chosen_of("3", "admin:ops:protocol"), Ok([Some(5), Some(4), Some(3)]));
    }

    #[test]
    fn what_can_not_be_meant_is_refused_by_a_line_that_names_the_variable() {
        for (count, names, variable) in [
            ("many", "", "LISTEN_FDS"),
            ("-1", "", "LISTEN_FDS"),
            ("65", "", "LISTEN_FDS"),
            ("18446744073709551616", "", "LISTEN_FDS"),
            ("2", "protocol", "LISTEN_FDNAMES"),
            ("1", "protocol:protocol", "LISTEN_FDNAMES"),
            ("1", "http", "LISTEN_FDNAMES"),
            ("2", "protocol:http", "LISTEN_FDNAMES"),
            ("2", "protocol:protocol", "LISTEN_FDS"),
            ("3", "ops:protocol:ops", "LISTEN_FDS"),
            ("2", "protocol:unknown", "LISTEN_FDNAMES"),
            ("2", "", "LISTEN_FDNAMES"),
        ] {
            let line = chosen_of(count, names).expect_err("wrong");
            assert!(line.starts_with(variable), "{count} {names:?}: {line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }
}
