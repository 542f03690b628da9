//! What a child must do between fork and exec: no safe interface gives that, since few things may
//! be done there.
#![allow(unsafe_code, reason = "only the caller can promise what a closure after fork does")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel kill the command's process when the calling thread ends, and with it this
/// process, in whatever way. The command must be spawned by the calling thread.
pub(crate) fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec in a process of several threads only what is async-signal-safe
    // may be called. These are two plain system calls, nothing is allocated, and no lock is taken.
    unsafe { command.pre_exec(move || ask_for_death_with(parent)) };
}

fn ask_for_death_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Whoever ended before that request has killed nobody.
    if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}
