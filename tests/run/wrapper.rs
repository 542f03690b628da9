//! `monolock run` as a child process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::harness::patience::wait_until;

/// `monolock run` with these options.
pub(crate) fn monolock_run<'a>(options: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = as_in_the_foreground(env!("CARGO_BIN_EXE_monolock"));
    // What the developer's own shell sets must not decide a test.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(name);
        }
    }
    command.arg("run").args(options);
    command
}

/// A program for which signals mean what they do in the foreground of a terminal: where the tests
/// run under nohup or in the background of a shell, some are ignored, and so they would be by
/// whatever a test starts.
pub(crate) fn as_in_the_foreground(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", program]);
    command
}

/// `monolock run` that holds the lock `a` of this server while a shell runs this script.
pub(crate) fn shell_under_lock<'a>(
    server: SocketAddr,
    options: impl IntoIterator<Item = &'a str>,
    script: &str,
) -> Command {
    let mut command = monolock_run(["--address", &server.to_string()]);
    command.args(options).args(["a", "--", "sh", "-c", script]);
    command
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn finish(mut command: Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().expect("the binary");
    Finished {
        status: output.status,
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Finished {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }
}

/// One that runs. Its command is killed with it, when it is dropped.
pub(crate) struct Wrapper {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Wrapper {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Wrapper {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Wrapper { child, stdin, stdout, stderr }
    }

    /// The next line that the command prints.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a pipe");
        assert!(line.ends_with('\n'), "it has ended: {line:?}");
        line.trim_end().to_owned()
    }

    /// The next line on stderr.
    #[track_caller]
    pub(crate) fn stderr_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("a pipe");
        assert!(line.ends_with('\n'), "it has ended: {line:?}");
        line.trim_end().to_owned()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line is the number of a process.
    #[track_caller]
    pub(crate) fn pid_line(&mut self) -> Pid {
        let line = self.line();
        Pid::from_raw(line.parse().expect("a number")).expect("not zero")
    }

    /// Types a line for the command.
    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.stdin.as_ref().expect("not closed"), "{line}").expect("it reads");
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signalling a child");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for its end, and reads what is left.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        wait_until("monolock run ends", || self.has_ended());
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).expect("stdout is UTF-8");
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).expect("stderr is UTF-8");
        Finished { status: self.child.wait().expect("a child"), stdout, stderr }
    }
}

impl Drop for Wrapper {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is no such process any more.
#[track_caller]
pub(crate) fn wait_until_gone(pid: Pid) {
    wait_until("the process is gone", || {
        let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
        // One that nobody reaps is gone all the same.
        test_kill_process(pid).is_err()
            || std::fs::read_to_string(path).map_or(true, |stat| stat.contains(") Z "))
    });
}
