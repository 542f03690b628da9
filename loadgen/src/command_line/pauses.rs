//! The flags that only `gc-pause` has.

use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use super::{duration, one, value};
use crate::duration;
use crate::failure::Failure;
use crate::lengths::LengthRange;
use crate::resource::Choice;
use crate::settings::{Load, Pauses};

const PAUSE_HELP: &str = "how long a holder falls silent, drawn from this range [default: 1.2 to 3 \
                          leases]";
const RESOURCE_HELP: &str = "what holders write to: memory, sqlite, sqlite:FILE or \
                             postgres://USER@HOST/DATABASE [default: memory, with --processes \
                             sqlite]";
/// Each session of `--processes` is a process, with two threads and some megabytes.
const PROCESSES_MAX: u32 = 500;

pub(super) fn args() -> [Arg; 5] {
    [
        value("pause", "DURATION[..DURATION]", PAUSE_HELP).value_parser(LengthRange::from_str),
        Arg::new("processes")
            .long("processes")
            .action(ArgAction::SetTrue)
            .help("make each session a process, and stop it by SIGSTOP; else that is simulated"),
        duration("write-every", "from one write of a holder to the next").default_value("100ms"),
        value("resource", "RESOURCE", RESOURCE_HELP).value_parser(Choice::from_str),
        Arg::new("no-fencing")
            .long("no-fencing")
            .action(ArgAction::SetTrue)
            .help("let the resource take any token, to see what goes wrong"),
    ]
}

pub(super) fn settings(matches: &ArgMatches, lease: Duration) -> Result<Pauses, Failure> {
    let are_real = matches.get_flag("processes");
    let lengths = matches.get_one::<LengthRange>("pause").copied();
    let resource = matches.get_one::<Choice>("resource").cloned();
    let write_every = *one::<Duration>(matches, "write-every");
    if write_every.is_zero() {
        return Err(Failure::usage("--write-every: must be more than nothing"));
    }
    Ok(Pauses {
        lengths: lengths
            .unwrap_or(LengthRange { shortest: lease.mul_f64(1.2), longest: lease * 3 }),
        are_real,
        write_every,
        resource: resource.unwrap_or(if are_real { Choice::Sqlite(None) } else { Choice::Memory }),
        is_fenced: !matches.get_flag("no-fencing"),
    })
}

/// What would run, and show nothing.
pub(super) fn check(load: &Load) -> Result<(), Failure> {
    let Some(pauses) = &load.pauses else {
        return Ok(());
    };
    let lease = Duration::from_millis(u64::from(load.lease_ms.get()));
    let (longest, leases) = (duration::show(pauses.lengths.longest), duration::show(lease));
    let lock_rate_max = f64::from(load.locks) / lease.as_secs_f64();
    if pauses.lengths.longest <= lease {
        return Err(Failure::usage(format_args!(
            "--pause: the longest one, {longest}, is not above the lease of {leases}, so that \
             nobody would lose a lock"
        )));
    }
    if load.duration < pauses.lengths.longest {
        return Err(Failure::usage(format_args!(
            "--duration: a pause may last for {longest}, and none is begun that would not end in \
             the measured time"
        )));
    }
    if load.sessions / load.locks < 2 {
        return Err(Failure::usage(format_args!(
            "--locks: {} locks and {} sessions leave locks with nobody to take them over",
            load.locks, load.sessions
        )));
    }
    if load.rate.is_some_and(|rate| rate > lock_rate_max) {
        return Err(Failure::usage(format_args!(
            "--rate: a lock is taken over once a lease at most, which makes {lock_rate_max} pauses \
             a second with {} locks",
            load.locks
        )));
    }
    if pauses.are_real && load.sessions > PROCESSES_MAX {
        return Err(Failure::usage(format_args!(
            "--processes: each session is one, and {PROCESSES_MAX} are the most: lower --sessions, \
             or leave pauses simulated"
        )));
    }
    if pauses.are_real && pauses.resource == Choice::Memory {
        return Err(Failure::usage(
            "--resource: processes share no memory; use sqlite or postgres",
        ));
    }
    Ok(())
}
