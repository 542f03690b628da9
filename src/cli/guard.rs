//! A second process, which kills the command's group when this one was killed.
//!
//! The kernel itself kills the command then (`sys`), but not what the command has started: the
//! programs of a shell script would go on without the lock. So another process waits for the end of
//! this one, which it sees by the end of the stream between them.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// What this program is called with to be that process. It is of no use to people.
pub(crate) const COMMAND: &str = "guard";

/// What this process says when the command has ended in good order.
const DISMISSED: &[u8] = b"dismissed";

/// What the leader of the group says: its number.
pub(crate) fn introduction(leader: Pid) -> [u8; 4] {
    leader.as_raw_nonzero().get().to_ne_bytes()
}

/// The other process. Whatever becomes of this one, it ends too.
#[derive(Debug)]
pub(crate) struct Guard {
    stream: UnixStream,
}

impl Guard {
    /// Starts it. It is not in the terminal's way, and keeps nothing of this process open.
    pub(crate) fn start() -> io::Result<Guard> {
        let (stream, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("monolock").arg(COMMAND).process_group(0).current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn()?;
        Ok(Guard { stream })
    }

    /// Where the leader of the group says who it is, before it does anything else.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    /// Has it end without doing anything.
    pub(crate) fn dismiss(mut self) {
        // It can only have ended before, and then does nothing either.
        let _ = self.stream.write_all(DISMISSED);
    }
}

/// Is that process, until the one that has started it ends.
pub(crate) fn stand() -> ExitCode {
    match wait_and_kill() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn wait_and_kill() -> io::Result<()> {
    // Whoever ends a whole group of services has to end those that it guards.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let mut said = Vec::new();
    io::stdin().read_to_end(&mut said)?;
    // There may be nothing to guard yet, or any more.
    if let Ok(leader) = said.try_into().map(i32::from_ne_bytes)
        && let Some(group) = Pid::from_raw(leader).filter(|group| !group.is_init())
    {
        kill_process_group(group, Signal::KILL)?;
    }
    Ok(())
}
