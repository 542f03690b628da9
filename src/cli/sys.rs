//! What a child must do between fork and exec: no safe interface gives that, since few things may
//! be done there.
#![allow(unsafe_code, reason = "only the caller can promise what a closure after fork does")]

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::guard::introduction;

/// Has the kernel kill the command's process when the calling thread ends, and with it this
/// process, in whatever way; and has the guard know it before it does anything, if there is one.
/// The command must be spawned by the calling thread.
pub(crate) fn end_with_this_thread(command: &mut Command, guard: Option<UnixStream>) {
    let parent = getpid();
    let prepare = move || {
        ask_for_death_with(parent)?;
        guard.as_ref().map_or(Ok(()), introduce)
    };
    // SAFETY: between fork and exec in a process of several threads only what is async-signal-safe
    // may be called. These are plain system calls, nothing is allocated, and no lock is taken.
    unsafe { command.pre_exec(prepare) };
}

/// So few bytes go into a stream in one step.
fn introduce(guard: &UnixStream) -> io::Result<()> {
    match send(guard, &introduction(getpid()), SendFlags::NOSIGNAL) {
        // It was killed. That must not keep the command from running.
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn ask_for_death_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Whoever ended before that request has killed nobody.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
