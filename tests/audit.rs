//! The audit log.
//!
//! | file | topic |
//! |---|---|
//! | `events.rs` | what it tells, and in which order |
//! | `files.rs` | its file from start to end: opened, rotated, truncated; stdout |
//! | `disks.rs` | disks that are full, and that hang |
//! | `pipes.rs` | pipes that nobody reads |
//! | `recipes.rs` | the questions that the manual has for it |
//!
//! Whatever becomes of it, no session notices: bystanders watch, who would lose their locks.

mod harness;

#[path = "audit/disks.rs"]
mod disks;
#[path = "audit/events.rs"]
mod events;
#[path = "audit/files.rs"]
mod files;
#[path = "audit/pipes.rs"]
mod pipes;
#[path = "audit/recipes.rs"]
mod recipes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::bystanders::Bystanders;
use harness::client::Client;
use harness::patience::{LONG_LEASE_MS, wait_until};
use harness::server::{Launch, Server};
use harness::wire::Frame;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

fn launch(path: &Path) -> Launch {
    let path = path.to_str().expect("a path of this test");
    Launch::on_loopback().args(["--audit-log", path])
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    (folder, path)
}

/// All lines, each of which must be a whole one of valid JSON.
#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut off: {text:?}");
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    text.lines().map(parse).collect()
}

#[track_caller]
fn read(path: &Path) -> Vec<Value> {
    lines(&fs::read_to_string(path).expect("the log"))
}

#[track_caller]
fn wait_for_lines(path: &Path, count: usize) -> Vec<Value> {
    let text = || fs::read_to_string(path).unwrap_or_default();
    wait_until("the lines are written", || text().matches('\n').count() >= count);
    read(path)
}

/// A lock that is granted and released so many times.
fn hold_and_release(server: &Server, times: usize) {
    for _ in 0..times {
        let mut owner = Client::connect(server.address());
        owner.acquire("lock", LONG_LEASE_MS);
        // The one before may not be known to have left yet.
        while owner.read_frame() == Frame::Waiting {}
        owner.close();
    }
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().expect("an event")).collect()
}

/// None of them has lost its place, or it would not have come to this; nor waited for the log.
#[track_caller]
fn expect_undisturbed(bystanders: Bystanders) {
    let slowest = bystanders.finish();
    // Most of their rounds would see a loop that waits; a busy machine slows down a few.
    assert!(slowest.percentile(50) < Duration::from_millis(500), "{slowest}");
}

#[track_caller]
fn end(mut server: Server) -> Vec<String> {
    server.signal(Signal::TERM);
    assert!(server.wait_for_exit().success());
    server.stderr_to_end()
}
