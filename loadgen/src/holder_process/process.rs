//! One process, as the one sees it that has started it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use monolock_core::time::Instant;
use rustix::process::{Pid, Signal, kill_process};

use super::{Job, Told};
use crate::checker::Who;
use crate::clock;
use crate::silence::Silence;
use crate::worker::WorkerError;

/// A line of a process's, or nothing when its stdout is closed.
pub(super) type Line = (u32, Option<io::Result<Told>>);

/// One process, and where its claim stands. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Holder {
    process: Child,
    pub(super) lock: u32,
    /// Tells apart its successive claims.
    pub(super) generation: u32,
    /// When it began to connect.
    pub(super) begun: Instant,
    /// When the ACQUIRE was sent.
    pub(super) asked_at: Instant,
    pub(super) queued_at: Option<Instant>,
    pub(super) is_holding: bool,
    /// When its last message was sent.
    pub(super) sent_at: Instant,
    pub(super) silence: Option<Silence>,
    /// It has been stopped, and not woken up since.
    pub(super) is_stopped: bool,
    /// When it is to be woken up.
    pub(super) wakes_at: Instant,
    /// When it was stopped last.
    stopped_at: Instant,
    /// When it was woken up last.
    pub(super) woken_at: Instant,
    /// When its last write was done.
    pub(super) wrote_at: Instant,
    pub(super) is_settled: bool,
}

impl Holder {
    /// Starts a process, which will tell what happens to it.
    pub(super) fn start(
        index: u32,
        lock: u32,
        job: &Job,
        tell: &Sender<Line>,
    ) -> Result<Holder, WorkerError> {
        Holder::try_start(index, lock, job, tell)
            .map_err(|error| WorkerError::Holder(format!("can't be started: {error}")))
    }

    fn try_start(index: u32, lock: u32, job: &Job, tell: &Sender<Line>) -> io::Result<Holder> {
        // Not by its name, which may mean another file by now. In a group of its own, as a
        // terminal's interrupt is for the one that makes the report.
        let mut process = Command::new("/proc/self/exe")
            .arg("holder-process")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let now = clock::now();
        let holder = Holder {
            process,
            lock,
            generation: 0,
            begun: now,
            asked_at: now,
            queued_at: None,
            is_holding: false,
            sent_at: now,
            silence: None,
            is_stopped: false,
            wakes_at: Instant::NEVER,
            stopped_at: Instant::NEVER,
            woken_at: now,
            wrote_at: now,
            is_settled: false,
        };
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        stdin.expect("it is a pipe").write_all(&line)?;
        let (tell, stdout) = (tell.clone(), stdout.expect("it is a pipe"));
        thread::Builder::new()
            .name("listener".to_owned())
            .spawn(move || pass_on(index, stdout, &tell))?;
        Ok(holder)
    }

    /// A new claim.
    pub(super) fn ask(&mut self, begun: Instant, at: Instant) {
        self.generation += 1;
        self.begun = begun;
        self.asked_at = at;
        self.queued_at = None;
        self.is_holding = false;
        self.sent_at = at;
    }

    /// The claim's name for the judge.
    pub(super) fn who(&self, index: u32) -> Who {
        Who { index, generation: self.generation }
    }

    /// Stops it, wherever it is in its program.
    pub(super) fn stop(
        &mut self,
        length: Duration,
        lease_ms: u32,
        now: Instant,
    ) -> Result<(), WorkerError> {
        self.signal(Signal::STOP)?;
        self.is_stopped = true;
        self.wakes_at = now.after(length);
        self.stopped_at = now;
        self.silence = Some(Silence::new(self.lock, now, length, self.sent_at, lease_ms));
        Ok(())
    }

    /// Lets it run again.
    pub(super) fn wake(&mut self, now: Instant) -> Result<(), WorkerError> {
        self.signal(Signal::CONT)?;
        self.is_stopped = false;
        self.wakes_at = Instant::NEVER;
        self.woken_at = now;
        Ok(())
    }

    /// It sent a message then. If it was stopped before it could tell, that belongs to the time
    /// before its silence.
    pub(super) fn sent(&mut self, at: Instant) {
        self.sent_at = at;
        let was_before = self.is_stopped || at < self.woken_at;
        if let Some(silence) = self.silence.as_mut().filter(|_| was_before) {
            silence.sent_at = at;
        }
    }

    /// Whether it was stopped for a part of the time between these moments.
    pub(super) fn slept_between(&self, from: Instant, until: Instant) -> bool {
        let woken_at = if self.is_stopped { Instant::NEVER } else { self.woken_at };
        self.stopped_at < until && from < woken_at
    }

    /// Whether a write may still come that it was about to make when it was stopped.
    pub(super) fn is_about_to_write(&self, now: Instant, patience: Duration) -> bool {
        let has_slept = self.stopped_at < now && !self.is_stopped;
        has_slept && self.wrote_at < self.woken_at && now.since(self.woken_at) < patience
    }

    /// How it has ended, which it should not have.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    fn signal(&self, signal: Signal) -> Result<(), WorkerError> {
        kill_process(Pid::from_child(&self.process), signal)
            .map_err(|error| WorkerError::Holder(format!("can't be sent {signal:?}: {error}")))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It can only have ended by itself, and is waited for either way.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a process's lines to their end.
fn pass_on(index: u32, stdout: ChildStdout, tell: &Sender<Line>) {
    for line in BufReader::new(stdout).lines() {
        let told = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::other));
        if tell.send((index, Some(told))).is_err() {
            return;
        }
    }
    // Whoever would want to know may be gone too.
    let _ = tell.send((index, None));
}
