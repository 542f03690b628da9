//! The command: a process, and the process group that it leads.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::exit_code;
use super::guard::Guard;
use super::sys;

/// A child that leads a process group of its own, so that signals reach its children too.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs, as far as is known.
    Running,
    /// It was stopped by this signal.
    Stopped(Signal),
    /// It has ended, and is there to be reaped.
    Ended,
}

impl Child {
    /// Starts it, on a thread that lives as long as this process.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, String)>,
        guard: Option<&Guard>,
    ) -> io::Result<Child> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(variables).process_group(0);
        sys::end_with_this_thread(&mut command, guard.map(Guard::stream).transpose()?);
        let child = command.spawn()?;
        Ok(Child { pid: Pid::from_child(&child) })
    }

    /// Its number, which is its group's too.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to its group.
    pub(crate) fn signal(&self, signal: Signal) {
        match kill_process_group(self.pid, signal) {
            // It can only be that nobody is left. What has made itself another user's can't be
            // signalled by anybody here.
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
            Err(errno) => super::say(format_args!("cannot signal the command: {errno}")),
        }
    }

    /// What has changed since it was asked last.
    ///
    /// # Errors
    /// If the kernel knows no such child.
    pub(crate) fn state(&self) -> io::Result<State> {
        // Not reaped, so that its number stays its own.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(self.pid), ended)?.is_some() {
            return Ok(State::Ended);
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let stopped = waitid(WaitId::Pid(self.pid), stopped)?;
        let signal = stopped.and_then(|status| status.stopping_signal());
        Ok(signal.and_then(Signal::from_named_raw).map_or(State::Running, State::Stopped))
    }

    /// Reaps it, when it has ended, and tells its exit code: its own, or 128 and the signal's.
    ///
    /// # Errors
    /// If the kernel knows no such child.
    pub(crate) fn reap(self) -> io::Result<u8> {
        let status = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED)?;
        let status = status.ok_or(io::ErrorKind::NotFound)?;
        let code = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => u8::try_from(code),
            (None, signal) => u8::try_from(signal.unwrap_or(0) + i32::from(exit_code::SIGNAL_BASE)),
        };
        Ok(code.expect("the kernel keeps eight bits of an exit code, and a signal is below 65"))
    }
}
