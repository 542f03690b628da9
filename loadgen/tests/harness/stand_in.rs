//! A program for `--server` that says that it listens where a fake server does.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use super::wait_until;

/// A script in a directory of its own, which is gone when this is dropped.
pub(crate) struct StandIn {
    directory: TempDir,
    path: String,
}

impl StandIn {
    /// Says that it listens there, and then does what the line of shell says.
    pub(crate) fn new(listening: SocketAddr, then: &str) -> StandIn {
        let directory = tempfile::tempdir().expect("a directory");
        let (script, seen) = (directory.path().join("server"), directory.path().join("seen"));
        let text = format!(
            "#!/bin/sh\necho \"$$ $*\" > {seen}.new\nmv {seen}.new {seen}\n\
             echo \"INFO listening on {listening}, fine\" >&2\n{then}\n",
            seen = seen.display(),
        );
        fs::write(&script, text).expect("writing");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
        StandIn { path: script.to_str().expect("text").to_owned(), directory }
    }

    /// The program.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Where files may be put that are gone with it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it was started with, when it was.
    pub(crate) fn arguments(&self) -> String {
        self.seen().1
    }

    /// Whether its process is still there, as more than a dead child that nobody has asked for.
    pub(crate) fn is_running(&self) -> bool {
        let pid = self.pid();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        let is_dead = stat.is_ok_and(|stat| stat.contains(") Z "));
        test_kill_process(pid).is_ok() && !is_dead
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.seen().0).expect("a process")
    }

    fn seen(&self) -> (i32, String) {
        let path = self.directory.path().join("seen");
        wait_until("the program runs", || path.exists());
        let seen = fs::read_to_string(path).expect("what it has written");
        let (pid, arguments) = seen.trim().split_once(' ').expect("both");
        (pid.parse().expect("a number"), arguments.to_owned())
    }
}
