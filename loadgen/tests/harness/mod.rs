//! The real binary as a child process, and a lock server that can be told to break its promises.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) mod fake_server;
pub(crate) mod private_cluster;
pub(crate) mod real_server;
pub(crate) mod stand_in;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use monolock_loadgen::results::Results;

pub(crate) use fake_server::{FakeServer, Fault};
pub(crate) use stand_in::StandIn;

/// How long a busy machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The load generator's own binary.
pub(crate) fn loadgen() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock-loadgen"));
    command.stdin(std::process::Stdio::null());
    command
}

/// Runs the load generator to its end. All arguments bound its time.
#[track_caller]
pub(crate) fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    let Output { status, stdout, stderr } = loadgen().args(args).output().expect("the binary");
    Run {
        exit_code: status.code(),
        stdout: String::from_utf8(stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(stderr).expect("stderr is UTF-8"),
    }
}

/// Runs a scenario, given as words, against a server, and reads its JSON.
#[track_caller]
pub(crate) fn load(server: &FakeServer, words: &str) -> (Run, Results) {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("results.json");
    let run = run_with_json(server, words, &json);
    let results = Results::read(&json).unwrap_or_else(|error| panic!("{error}; {run:?}"));
    (run, results)
}

/// Runs a scenario, given as words, against a server.
#[track_caller]
pub(crate) fn run_with_json(server: &FakeServer, words: &str, json: &Path) -> Run {
    let address = server.address().to_string();
    let json = json.to_str().expect("UTF-8");
    let fixed = ["--address", &address, "--json-out-file", json];
    run(words.split_whitespace().chain(fixed))
}

/// What a run has left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) exit_code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The run must have ended with this exit code. On a machine that is busy with other tests it
    /// may have been late for its own plan, which has another one, and isn't what tests are about.
    #[track_caller]
    pub(crate) fn expect_exit(&self, exit_code: i32) {
        let mut limits = self.stdout.lines().filter(|line| line.starts_with("NOT A CLEAN RESULT"));
        let was_late = limits.all(|line| line.contains("its plan") || line.contains("busy"));
        let is_late = self.exit_code == Some(4) && was_late;
        assert!(is_late || self.exit_code == Some(exit_code), "{self:?}");
    }

    /// The one line of a run that has failed.
    #[track_caller]
    pub(crate) fn expect_one_line(&self, exit_code: i32) -> &str {
        assert_eq!(self.exit_code, Some(exit_code), "{self:?}");
        let lines = self.stderr.lines().filter(|line| !line.starts_with("seed "));
        match lines.collect::<Vec<_>>().as_slice() {
            [line] => line,
            _ => panic!("not one line: {self:?}"),
        }
    }
}
