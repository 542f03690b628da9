//! The clients of this repository pass every scenario, and for every scenario there is a client
//! with one fault that fails it.

#[expect(dead_code, reason = "its main is the example's")]
#[path = "../examples/conforming.rs"]
mod conforming;
mod simple;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, exit};
use std::sync::Mutex;
use std::thread;

use crate::simple::Fault;

/// Set for a process that is to be a client; empty for one of `monolock-client`.
const FAULT: &str = "TEST_FAULT_OF_CLIENT";

/// Each fault, and what it must fail.
const FAILURES: &[(Fault, &[&str])] = &[
    (Fault::NeverHeartbeats, &["granted-at-once", "granted-after-waiting"]),
    (Fault::HeartbeatsTooOften, &["granted-at-once"]),
    (Fault::SecondAcquire, &["granted-at-once"]),
    (Fault::ReleasesEarly, &["granted-at-once"]),
    (Fault::ReadsPackets, &["frames-in-pieces", "frames-glued"]),
    (Fault::OneAnswerEach, &["promotion-overtakes-answer"]),
    (Fault::TwoInFlight, &["answers-late", "silent-after-acquired"]),
    (
        Fault::TrustsSilence,
        &[
            "silent-after-acquired",
            "silent-after-heartbeats",
            "silent-after-waiting",
            "silent-from-the-start",
        ],
    ),
    (Fault::CountsFromReceipt, &["granted-late"]),
    (Fault::IgnoresGarbage, &["garbage-after-acquire", "token-zero", "garbage-while-held"]),
    (Fault::IgnoresToken, &["another-token"]),
    (Fault::IgnoresWaiting, &["waiting-after-acquired"]),
    (Fault::ClaimsAgain, &["shutdown-while-held", "forced-while-held", "reset-while-held"]),
    (Fault::IgnoresEnd, &["half-close-while-held"]),
    (Fault::RetriesEverything, &["refused", "unknown-client-error"]),
    (
        Fault::NoBackoff,
        &["unknown-condition", "kicked-from-queue", "shutdown-again-and-again", "hangs-up"],
    ),
    (Fault::NeverRetries, &["shutdown-then-closed-port"]),
];

/// A client that is not run for longer than its lease loses it: on a machine that does much else
/// at a time, only a long one tells of the client.
const PATIENT: [&str; 2] = ["--lease-ms", "6000"];

/// Not a test but the client's process.
#[test]
fn client_process() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    if fault.is_empty() {
        exit(conforming::run().into());
    }
    exit(simple::run(Fault::named(&fault)));
}

#[test]
fn the_rust_client_passes() {
    expect_pass(&run(&PATIENT, &[], ""));
}

#[test]
fn a_client_of_some_hundred_lines_passes() {
    expect_pass(&run(&PATIENT, &[], &Fault::None.name()));
}

#[test]
fn the_python_client_passes() {
    let has_python = Command::new("python3").arg("--version").output();
    if !has_python.is_ok_and(|output| output.status.success()) {
        // Past the capture of a test's output.
        writeln!(std::io::stderr(), "SKIPPED: install python3").expect("stderr");
        return;
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python");
    let script = client.join("examples/conforming.py");
    let mut command = kit(&PATIENT);
    command.args(["--", "python3"]).arg(script).env("PYTHONPATH", client.join("src"));
    expect_pass(&command.env("PYTHONDONTWRITEBYTECODE", "1").output().expect("starting the kit"));
}

#[test]
fn every_fault_is_found() {
    let cases: Vec<(Fault, &str)> = FAILURES
        .iter()
        .flat_map(|(fault, scenarios)| scenarios.iter().map(|scenario| (*fault, *scenario)))
        .collect();
    let left = Mutex::new(cases.into_iter());
    let next = || left.lock().expect("no thread panics while it takes one").next();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((fault, scenario)) = next() {
                    let options = ["--lease-ms", "1500", "--scenario", scenario];
                    let output = run(&options, &[], &fault.name());
                    let said = text(&output);
                    assert_eq!(output.status.code(), Some(1), "{fault:?} passed: {said}");
                    // Behind what the test runner of the client's process has printed.
                    let verdict = said.split_once("FAILED  ").unwrap_or_else(|| panic!("{said}"));
                    println!("{fault:?}: {}", verdict.1.lines().next().unwrap_or_default());
                }
            });
        }
    });
}

#[test]
fn every_scenario_can_be_failed() {
    let failed: Vec<&str> =
        FAILURES.iter().flat_map(|(_, scenarios)| *scenarios).copied().collect();
    let mut list = Command::new(env!("CARGO_BIN_EXE_monolock-conformance"));
    let listed = text(&list.arg("list").output().expect("starting the kit"));
    assert!(listed.lines().count() > 20, "{listed}");
    for name in listed.lines().map(|line| line.split(' ').next().expect("a word")) {
        assert!(failed.contains(&name), "no client fails {name}");
    }
}

#[test]
fn the_page_names_every_scenario() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/writing-a-client.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut list = Command::new(env!("CARGO_BIN_EXE_monolock-conformance"));
    for line in text(&list.arg("list").output().expect("starting the kit")).lines() {
        let (name, summary) = line.split_once(' ').expect("a name and a summary");
        let row = format!("| `{name}` | {} |", summary.trim());
        assert!(page.contains(&row), "docs/guide/writing-a-client.md lacks {row}");
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    for (args, said) in [
        (&["run", "--scenario", "x", "--", "true"][..], "no such scenario"),
        (&["run", "--lease-ms", "1", "--", "true"], "200"),
        (&["run"], "CLIENT-COMMAND"),
        (&["serve", "refused", "--listen", "nowhere"], "--listen"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_monolock-conformance"));
        let output = command.args(args).output().expect("starting the kit");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output).contains(said), "{args:?}: {}", text(&output));
    }
    // A client that can't be started has failed, and the reason is said.
    let output = kit(&["--scenario", "refused"]).args(["--", "/nowhere"]).output();
    let output = output.expect("starting the kit");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("can't start /nowhere"), "{}", text(&output));
}

/// Runs the kit with this program as the client.
fn run(options: &[&str], args: &[&str], fault: &str) -> Output {
    let mut command = kit(options);
    command.arg("--").arg(std::env::current_exe().expect("this program")).args(args);
    command.args(["--exact", "client_process", "--nocapture", "--test-threads=1"]);
    command.env(FAULT, fault).output().expect("starting the kit")
}

fn kit(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock-conformance"));
    command.args(["run", "--jobs", "12"]).args(options);
    command
}

#[track_caller]
fn expect_pass(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
    let passed = text(output).matches("ok      ").count();
    assert!(passed > 20, "{}", text(output));
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
