//! A run that ends before its time: it still reports where it can, and leaves no server behind.

mod harness;

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use harness::{FakeServer, Fault, StandIn, loadgen, run, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Goes on for far longer than any test waits.
const LONG: &str = "heartbeat -c 5 -l 1s --ramp 10ms --warmup 0 -d 10m";

/// A run with a server of its own, in a process group of its own, as a shell starts one.
fn start(words: &str, server: &StandIn) -> Child {
    let mut command: Command = loadgen();
    command.args(words.split(' ')).args(["--server", server.path()]);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary")
}

/// What a run says and its exit code; none if a signal has ended it.
fn ending(mut child: Child) -> (String, Option<i32>) {
    let mut stdout = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
    (stdout, child.wait().expect("the end").code())
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a signal");
}

#[test]
fn a_server_that_ends_in_the_middle_cuts_the_run_short() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "sleep 1; exit 3");
    let run = run(LONG.split(' ').chain(["--server", server.path()]));
    assert_eq!(run.exit_code, Some(4), "{run:?}");
    let line = "NOT A CLEAN RESULT: the server ended while measuring (exit status: 3)";
    assert!(run.stdout.contains(line), "{run:?}");
}

#[test]
fn a_server_of_somebody_else_that_ends_in_the_middle_is_no_success() {
    for words in ["steady -c 8 -R 50", "steady -c 8", "handover -c 8 -L 2 -R 50", "heartbeat -c 8"]
    {
        let server = FakeServer::start(Fault::None);
        let words = format!(
            "{words} -l 1s --warmup 0 -d 1500ms --csv --json-out-file /dev/null -a {}",
            server.address()
        );
        let child = loadgen()
            .args(words.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary");
        wait_until("locks are granted", || server.grants() >= 8);
        server.end();
        let output = child.wait_with_output().expect("the end");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(4), "{words}: {stderr}");
        let is_said = |text: &str| stderr.contains(text);
        let why = "NOT A CLEAN RESULT: no server was there for a part of the run";
        let gone = "NOT A CLEAN RESULT: 8 of 8 sessions ended";
        assert!(is_said(why) || words.starts_with("heartbeat") && is_said(gone), "{stderr}");
        assert!(is_said("lost: "), "{stderr}");
    }
}

#[test]
fn an_interrupt_ends_the_measuring_and_still_reports() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "exec sleep 600");
    let json = server.directory().join("r.json");
    let words = "steady -c 4 -L 4 --warmup 0 -d 10m --json-out-file";
    let child = start(&format!("{words} {}", json.display()), &server);
    wait_until("locks are granted", || fake.grants() >= 200);
    // As from a terminal: to all processes of the group. The server must not be among them.
    kill_process_group(Pid::from_child(&child), Signal::INT).expect("a signal");
    let (stdout, exit_code) = ending(child);
    assert_eq!(exit_code, Some(4), "{stdout}");
    assert!(stdout.contains("NOT A CLEAN RESULT: interrupted while measuring"), "{stdout}");
    assert!(stdout.contains("acquire") && !stdout.contains("the server ended"), "{stdout}");
    assert!(stdout.contains("\nserver: "), "{stdout}");
    let json = fs::read_to_string(json).expect("the results");
    assert!(json.contains("\"is_cut_short\": true"), "{json}");
    wait_until("the server is stopped", || !server.is_running());
}

#[test]
fn an_interrupt_of_the_warm_up_is_called_so() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "exec sleep 600");
    let child = start("steady -c 4 -L 4 --warmup 10m --json-out-file /dev/null", &server);
    wait_until("locks are granted", || fake.grants() >= 200);
    kill(&child, Signal::INT);
    let (stdout, exit_code) = ending(child);
    assert_eq!(exit_code, Some(4), "{stdout}");
    assert!(stdout.contains("NOT A CLEAN RESULT: interrupted while warming up"), "{stdout}");
    assert!(stdout.contains("nothing was recorded"), "{stdout}");
}

#[test]
fn who_does_not_wait_for_the_last_answers_needs_one_interrupt() {
    // When measuring is over can't be seen from outside; what comes too early is tried again.
    for delay_ms in [300, 1000, 4000] {
        let fake = FakeServer::start(Fault::None);
        let server = StandIn::new(fake.address(), "exec sleep 600");
        // The first session holds the only lock, and the others wait until the run gives up.
        let child = start("steady -c 4 -L 1 -R 100 --hold 10m --warmup 0 -d 50ms", &server);
        wait_until("a lock is granted", || fake.grants() >= 1);
        thread::sleep(Duration::from_millis(delay_ms));
        kill(&child, Signal::INT);
        let (stdout, exit_code) = ending(child);
        assert_eq!(exit_code, Some(4), "{stdout}");
        if stdout.contains("interrupted while waiting for the last answers") {
            // On a busy machine the others may not even have been told to wait.
            assert!(stdout.contains(" not done by the end of the run"), "{stdout}");
            return;
        }
    }
    panic!("the last answers are waited for whatever the user wants");
}

#[test]
fn a_termination_is_an_interrupt_and_two_of_them_are_one() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "exec sleep 600");
    let child = start(LONG, &server);
    wait_until("locks are granted", || fake.grants() >= 5);
    kill(&child, Signal::TERM);
    kill(&child, Signal::TERM);
    let (stdout, exit_code) = ending(child);
    assert_eq!(exit_code, Some(4), "{stdout}");
    assert!(stdout.contains("NOT A CLEAN RESULT: interrupted"), "{stdout}");
    wait_until("the server is stopped", || !server.is_running());
}

#[test]
fn whatever_ends_it_at_once_ends_the_server_too() {
    // USR1 stands for HUP, which is ignored from the start where the tests run under nohup.
    for (signal, twice) in [(Signal::INT, true), (Signal::USR1, false), (Signal::KILL, false)] {
        let fake = FakeServer::start(Fault::None);
        // It takes no notice of a request to stop, so only the kernel can end it.
        let server = StandIn::new(fake.address(), "trap '' TERM INT HUP; exec sleep 600");
        let child = start(LONG, &server);
        wait_until("locks are granted", || fake.grants() >= 5);
        kill(&child, signal);
        if twice {
            // One that is caught while another one waits to be would be lost.
            wait_until("the first one is caught", || !is_pending(&child, signal));
            kill(&child, signal);
        }
        let (stdout, exit_code) = ending(child);
        assert_eq!(exit_code, twice.then_some(130), "{signal:?}: {stdout}");
        wait_until("the server is killed", || !server.is_running());
    }
}

/// Whether a signal was sent to the process and not taken yet.
fn is_pending(child: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("ShdPnd:").or_else(|| line.strip_prefix("SigPnd:")));
    let mut pending = pending.map(|mask| u64::from_str_radix(mask.trim(), 16).expect("a mask"));
    pending.any(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

#[test]
fn an_interrupt_while_the_server_starts_is_obeyed() {
    let fake = FakeServer::start(Fault::None);
    let silent = StandIn::new(fake.address(), "exec sleep 600");
    let text = fs::read_to_string(silent.path()).expect("the script").replace("listening on", "at");
    fs::write(silent.path(), text).expect("writing");
    let mut child = start(LONG, &silent);
    assert!(silent.is_running());
    kill(&child, Signal::INT);
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    let (stdout, exit_code) = ending(child);
    assert_eq!((stdout.as_str(), exit_code), ("", Some(4)), "{stderr}");
    assert!(stderr.contains("interrupted before") && stderr.contains("listened"), "{stderr}");
    wait_until("the server is stopped", || !silent.is_running());
}
