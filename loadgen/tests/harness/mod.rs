//! The real binary as a child process, and a lock server that can be told to break its promises.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) mod fake_server;
pub(crate) mod private_cluster;
pub(crate) mod real_server;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use monolock_loadgen::results::Results;

pub(crate) use fake_server::{FakeServer, Fault};

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
