//! A server process that is measured, and what the kernel accounts to it.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::processors::{Side, run_on};

/// A started server. It is killed when this is dropped.
pub(crate) struct Subject {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Subject {
    /// Starts the program on a processor of its own and waits until it says where it listens.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Result<Subject, Box<dyn Error>> {
        // A child has the affinity of its parent's thread.
        run_on(Side::Server)?;
        let process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        run_on(Side::Clients)?;
        let mut process = process.map_err(|error| format!("{}: {error}", program.display()))?;
        let mut log = BufReader::new(process.stderr.take().expect("a pipe"));
        // From here on it is killed, whatever happens.
        let mut subject = Subject { process, address: SocketAddr::from(([0; 4], 0)) };
        let mut said = String::new();
        while log.read_line(&mut said)? > 0 {
            if let Some((_, rest)) = said.rsplit_once("listening on ") {
                let address = rest.split([',', '\n', ' ']).next().expect("a first part");
                subject.address = address.parse()?;
                thread::spawn(move || pass_on(log));
                return Ok(subject);
            }
        }
        Err(format!("{} did not start:\n{said}", program.display()).into())
    }

    /// The processor time of all its threads so far.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(self.file("task")).expect("a running server");
        let nanos = tasks.filter_map(|task| {
            // One that has just ended is missing; the servers have no such threads.
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// The part of its processor time that was spent outside the kernel, by the kernel's clock
    /// tick: it says something only over a whole run.
    pub(crate) fn user_share(&self) -> f64 {
        let stat = fs::read_to_string(self.file("stat")).expect("a running server");
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        let ticks: Vec<f64> = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse().expect("a number of ticks"))
            .collect();
        ticks[0] / (ticks[0] + ticks[1])
    }

    /// Resident memory that it has written to, in bytes: heap, stacks, buffers, and not its code.
    pub(crate) fn memory(&self) -> u64 {
        let rollup = fs::read_to_string(self.file("smaps_rollup")).expect("a running server");
        let anonymous = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"))
            .expect("every kernel with io_uring tells");
        let kib: u64 = anonymous.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        kib << 10
    }

    /// Sends it a signal, such as to stop it for a while.
    pub(crate) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        kill_process(Pid::from_child(&self.process), signal)
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.process.id()))
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It can only have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a server says while it is measured is an accident, and shall be seen.
fn pass_on(log: impl BufRead) {
    for line in log.lines().map_while(Result::ok) {
        eprintln!("server: {line}");
    }
}
