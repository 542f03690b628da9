//! A kernel that refuses to accept for a while, and then does: strace runs the server and answers
//! the first calls in the kernel's place. (For kernels that refuse for ever see
//! `accept_faults.rs`.)

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Launch;

/// How many accepts fail, one after the other.
const FAILURES: usize = 12;

/// What is waited after each of them, if the next would fail as well: together more than a second.
const PAUSES_MS: [u64; FAILURES] = [5, 10, 20, 40, 80, 160, 200, 200, 200, 200, 200, 200];

/// What is said of a failed accept, once a second.
const WARNING: &str = "cannot accept a connection, will try again";

#[test]
fn it_answers_who_waited_while_the_process_had_no_descriptors() {
    expect_patience("EMFILE", &PAUSES_MS);
}

#[test]
fn it_answers_who_waited_while_the_system_had_no_descriptors() {
    expect_patience("ENFILE", &PAUSES_MS);
}

#[test]
fn it_answers_who_waited_while_there_was_no_room_for_buffers() {
    expect_patience("ENOBUFS", &PAUSES_MS);
}

#[test]
fn it_answers_who_waited_while_there_was_no_memory() {
    expect_patience("ENOMEM", &PAUSES_MS);
}

#[test]
fn it_answers_who_waited_behind_connections_that_were_aborted() {
    // Each failure has taken a connection out of the queue, so that the next call is about another.
    expect_patience("ECONNABORTED", &[0; FAILURES]);
}

/// A connection is there before the server is, which is told `errno` so many times when it wants to
/// accept it. After each time it pauses for so long at least; then the connection is served.
#[track_caller]
fn expect_patience(errno: &str, pauses_ms: &[u64; FAILURES]) {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: there is no strace to fail accepts with; install the package strace");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut early = Client::connect(listener.local_addr().expect("an address"));
    early.acquire("early lock", LONG_LEASE_MS);

    let trace = Trace::new(errno);
    let mut server = Launch::bare()
        .stdin(listener)
        .after_shell("exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1")
        .run_by(trace.strace(errno))
        .start();
    early.expect_acquired();
    let calls = trace.calls();
    let (failed, later) = calls.split_at(FAILURES);
    for (call, pause_ms) in failed.iter().zip(pauses_ms) {
        assert_eq!(call.error.as_deref(), Some(errno), "{calls:#?}");
        let pause = call.until_next.expect("it was tried again");
        assert!(pause >= Duration::from_millis(*pause_ms), "{pause:?} for {pause_ms} ms");
    }
    assert_eq!(later[0].error, None, "it is accepted as soon as it can be: {calls:#?}");

    // All is well again: the next one doesn't wait, and nothing is tried that must fail.
    Client::owner(server.address(), "late lock", LONG_LEASE_MS);
    wait_until("the acceptor waits for the next connection", || {
        trace.calls().last().is_some_and(|call| call.error.as_deref() == Some("EAGAIN"))
    });
    let calls = trace.calls();
    let successes = calls.iter().filter(|call| call.error.is_none()).count();
    let in_vain = calls.len() - FAILURES - successes;
    assert_eq!(successes, 2, "{calls:#?}");
    assert!(in_vain <= successes, "it looks again only after a connection: {calls:#?}");

    let last_failure = failed[..FAILURES - 1].iter().filter_map(|call| call.until_next).sum();
    early.close();
    server.expect_running();
    server.signal(Signal::TERM);
    server.wait_for_exit();
    expect_counted(&server.stderr_to_end(), last_failure);
}

/// It says at once that accepting fails, and then once a second how often it has. The last failure
/// came so long after the first.
#[track_caller]
fn expect_counted(stderr: &[String], last_failure: Duration) {
    let warnings = stderr.iter().filter(|line| line.contains(WARNING));
    let counts = warnings.map(|line| {
        let (_, count) = line.rsplit_once("errors=").expect("a count");
        count.parse().expect("a number")
    });
    let counts: Vec<usize> = counts.collect();
    assert_eq!(counts.first(), Some(&1), "{stderr:#?}");
    assert!(counts.is_sorted() && counts[counts.len() - 1] <= FAILURES, "{counts:?}");
    let seconds = usize::try_from(last_failure.as_secs()).expect("a few");
    let repeated = counts.len() - 1;
    assert!((seconds.min(1)..=seconds).contains(&repeated), "{counts:?} in {last_failure:?}");
}

/// A call of `accept4`.
#[derive(Debug)]
struct Call {
    error: Option<String>,
    until_next: Option<Duration>,
}

/// The file in which strace notes every accept of a server.
struct Trace {
    file: PathBuf,
}

impl Trace {
    fn new(errno: &str) -> Trace {
        let name = format!("accepts-{}-{errno}", process::id());
        Trace { file: Path::new(env!("CARGO_TARGET_TMPDIR")).join(name) }
    }

    /// How to start strace for a server whose first accepts fail.
    fn strace(&self, errno: &str) -> Vec<String> {
        let fault = format!("inject=accept4:error={errno}:when=1..{FAILURES}");
        let words = ["strace", "-D", "-f", "--seccomp-bpf", "-qqq", "-ttt"];
        let options = ["-e", "signal=none", "-e", "trace=accept4", "-e", &fault];
        let mut words: Vec<String> = words.into_iter().chain(options).map(String::from).collect();
        let file = self.file.to_str().expect("a path in UTF-8");
        words.extend(["-o".into(), file.into()]);
        words
    }

    /// Takes apart what strace has written so far: whole lines like
    /// `77 1795987969.2 accept4(5, 0x7f62, [128], SOCK_CLOEXEC) = -1 EMFILE (Too many ...)`.
    #[track_caller]
    fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(&self.file).expect("strace's output");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let calls = whole.lines().filter_map(|line| {
            let (before, result) = line.split_once("SOCK_CLOEXEC) = ")?;
            let secs: f64 = before.split_whitespace().nth(1)?.parse().ok()?;
            let error = result.strip_prefix("-1 ").and_then(|error| error.split(' ').next());
            Some((secs, error.map(String::from)))
        });
        let calls: Vec<(f64, Option<String>)> = calls.collect();
        let next = calls.iter().skip(1).map(|(secs, _)| Some(*secs)).chain([None]);
        let gaps = calls.iter().zip(next).map(|((secs, error), next)| Call {
            error: error.clone(),
            until_next: next.map(|next| Duration::from_secs_f64(next - secs)),
        });
        gaps.collect()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It is not there if strace didn't start, which the test has failed for.
        let _ = fs::remove_file(&self.file);
    }
}
