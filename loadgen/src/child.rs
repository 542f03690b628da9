//! Child processes that don't outlive this one, however it ends.
//!
//! The kernel kills a process when the thread that has started it ends, but only if the process has
//! asked for that itself. So a child is first this program again, which asks, and then becomes what
//! it should be, under the same number.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The first argument of this program when it is to become another.
const BECOME: &str = "become-child-of";

/// The exit status of a child whose program can't be started; what it says then is why.
pub const NOT_STARTED: u8 = 127;

/// A command that starts `program` so that it ends with the thread that starts it, at the latest.
/// More arguments can be added.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(BECOME).arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes another program, if these arguments of this one say so. Returns only if they don't, or
/// if that has failed.
pub fn become_another(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.next()? != BECOME {
        return None;
    }
    let (parent, program) = (arguments.next()?, arguments.next()?);
    let error = match set_parent_process_death_signal(Some(Signal::KILL)) {
        // A parent that has ended before has killed nobody.
        Ok(()) if getppid().is_none_or(|pid| *pid.to_string() != *parent) => {
            return Some(ExitCode::from(NOT_STARTED));
        }
        Ok(()) => Command::new(&program).args(arguments).exec(),
        Err(error) => error.into(),
    };
    eprintln!("cannot start {}: {error}", program.display());
    Some(ExitCode::from(NOT_STARTED))
}
