//! What needs unsafe code: something that is done between fork and exec.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Lets the kernel kill the command's process as soon as the thread that starts it has ended, and
/// so in any case as soon as this process has, however that comes about. The command's own children
/// are not covered.
pub(crate) fn kill_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before it was asked for.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure makes system calls and touches nothing else: no lock, no allocation, no
    // memory of the parent.
    unsafe { command.pre_exec(before_exec) };
}
