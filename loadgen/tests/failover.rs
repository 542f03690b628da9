//! Servers that fail under load, with the real server: who comes back when, what overlaps, and
//! which tokens grow.

mod harness;

use std::collections::HashSet;
use std::fs;
use std::process::{Child, Stdio};

use harness::real_server::monolock;
use harness::{FakeServer, Fault, Run, StandIn, loadgen, run, wait_until};
use monolock_loadgen::checker::Invariant;
use monolock_loadgen::results::{OutageResult, Results};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Forty clients of ten locks.
const CROWD: &str = "-c 40 -L 10 --ramp 100ms --warmup 0";

/// Runs a scenario with the real server, and reads its JSON.
#[track_caller]
fn stage(words: &str) -> (Run, Results) {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("r.json").display().to_string();
    let server = monolock().to_str().expect("UTF-8");
    let fixed = ["--json-out-file", &json, "--server", server];
    let run = run(words.split_whitespace().chain(CROWD.split(' ')).chain(fixed));
    let results = Results::read(json.as_ref()).unwrap_or_else(|error| panic!("{error}; {run:?}"));
    (run, results)
}

/// Nothing was broken, and everybody came back after each of so many failures.
#[track_caller]
fn expect_recovered((run, results): &(Run, Results), failures: usize) {
    assert_eq!(results.violations(), 0, "{run:?}");
    assert_eq!(results.outages.len(), failures, "{run:?}");
    for outage in &results.outages {
        assert_eq!(outage.back, 40, "{run:?}");
        assert!(outage.succeeded_ms.is_some() && outage.first_grant_ms.is_some(), "{run:?}");
        assert!(outage.back_99_ms <= outage.back_all_ms, "{run:?}");
        assert_eq!(outage.tokens_behind, 0, "{run:?}");
    }
    run.expect_exit(0);
}

fn marks(results: &Results, kind: &str) -> usize {
    results.marks.iter().filter(|mark| mark.kind == kind).count()
}

fn lost(results: &Results, part: &str) -> u64 {
    let reasons = results.losses.iter().filter(|(reason, _)| reason.contains(part));
    reasons.map(|(_, count)| count).sum()
}

/// How often tokens were found not to grow, and nothing else may be found.
#[track_caller]
fn not_growing((run, results): &(Run, Results)) -> u64 {
    for invariant in &results.invariants {
        let is_it = invariant.name == Invariant::TokenNotGrowing.name();
        assert!(is_it || invariant.count == 0, "{run:?}");
    }
    results.violations()
}

#[test]
fn a_standby_takes_over_from_a_killed_server_and_all_come_back() {
    let words = "failover -l 2s --hold 100ms --kill-every 1s --takeover-after 200ms -d 3s \
                 --expect recovery.count>79 --expect first-grant.count>1 --expect overlap.count<1";
    let staged = stage(words);
    expect_recovered(&staged, 2);
    let (run, results) = staged;
    assert_eq!((marks(&results, "kill"), marks(&results, "takeover")), (2, 2), "{run:?}");
    assert_eq!(results.phase("recovery").expect("recorded").errors, 0, "{run:?}");
    assert!(results.expectations.iter().all(|expectation| expectation.is_met), "{run:?}");
    for outage in &results.outages {
        assert!(outage.succeeded_ms >= Some(200.0) && outage.first_grant_ms >= Some(200.0));
    }
    let told = "failures: every 1s by kill; a standby takes over after 200ms";
    assert!(run.stdout.contains(told), "{run:?}");
}

#[test]
fn nobody_dials_a_dead_port_more_often_than_the_rules_permit() {
    let words = "failover -l 4s --hold 300ms --kill-every 2500ms --takeover-after 2s -d 5s";
    let (run, results) = stage(words);
    assert_eq!(results.violations(), 0, "{run:?}");
    let OutageResult { dials, dials_a_second_max, .. } = results.outages[0];
    // At once, and then after waits of at least 100, 200, 400, 800 ms.
    assert!((40..=40 * 5).contains(&dials), "{dials}");
    assert!((1..=40 * 4).contains(&dials_a_second_max), "{dials_a_second_max}");
}

#[test]
fn a_server_that_shuts_down_sends_its_clients_away_at_once() {
    let words = "failover -l 2s --hold 100ms --kill-with term --kill-every 1500ms \
                 --takeover-after 300ms -d 3s";
    let staged = stage(words);
    expect_recovered(&staged, 1);
    let (run, results) = staged;
    assert!(lost(&results, "ERROR 0x01") > 0, "{run:?}");
    assert_eq!(marks(&results, "shutdown"), 1, "{run:?}");
}

#[test]
fn without_a_fence_a_server_that_wakes_up_has_holders_beside_its_successors() {
    // Those that release after the takeover come to the standby, whose locks are free. The others
    // wait where they are, for less than they believe, and are promoted when their server wakes.
    let words = "failover -l 4s --hold 1s --kill-with stop --no-fence --kill-every 3s \
                 --takeover-after 200ms --wake-after 1200ms -d 6s";
    let (run, results) = &stage(words);
    assert_eq!(results.violations(), 0, "an overlap breaks no promise: {run:?}");
    let outage = &results.outages[0];
    assert!(outage.overlaps > 0 && outage.overlap_longest_ms > 0.0, "{run:?}");
    let overlap = results.phase("overlap").expect("recorded");
    assert_eq!(overlap.count, outage.overlaps, "{run:?}");
    assert_eq!((marks(results, "pause"), marks(results, "resume")), (1, 1), "{run:?}");
    run.expect_exit(0);
}

#[test]
fn with_a_fence_a_server_that_wakes_up_finds_nobody() {
    let words = "failover -l 4s --hold 200ms --kill-with stop --kill-every 1500ms \
                 --takeover-after 200ms --wake-after 600ms -d 3s";
    let staged = stage(words);
    expect_recovered(&staged, 1);
    let (run, results) = staged;
    assert_eq!(results.phase("overlap").expect("a result too").count, 0, "{run:?}");
    assert!(results.outages.iter().all(|outage| outage.overlaps == 0), "{run:?}");
    assert_eq!(marks(&results, "resume"), 1, "{run:?}");
}

#[test]
fn tokens_of_a_standby_whose_clock_is_behind_grow_once_it_has_caught_up() {
    let words = "failover -l 2s --hold 100ms --kill-every 2s --takeover-after 200ms -d 4s \
                 --standby-clock -1s";
    let staged = stage(words);
    assert!(not_growing(&staged) > 0, "{:?}", staged.0);
    let (run, results) = staged;
    assert_eq!(run.exit_code, Some(1), "{run:?}");
    let outage = &results.outages[0];
    assert!(outage.tokens_behind > 0 && outage.tokens_grown_since > 0, "{run:?}");
    assert!(outage.tokens_behind_until_ms.is_some(), "{run:?}");
    assert!(run.stdout.contains("the standby's clock is 1s behind"), "{run:?}");
    assert!(run.stdout.contains("BROKEN: token not growing"), "{run:?}");
}

#[test]
fn a_clock_that_is_behind_by_less_than_the_takeover_takes_does_no_harm() {
    let words = "failover -l 2s --hold 100ms --kill-every 2s --takeover-after 1s -d 4s \
                 --standby-clock -700ms";
    let (run, results) = stage(words);
    assert_eq!(results.violations(), 0, "{run:?}");
    let outage = &results.outages[0];
    assert!(outage.first_grant_ms >= Some(1000.0) && outage.tokens_behind == 0, "{run:?}");
    assert!(outage.tokens_grown_since > 0, "there were tokens to compare: {run:?}");
    run.expect_exit(0);
}

#[test]
fn a_clock_that_was_set_back_does_harm_until_it_has_caught_up() {
    // The first restart comes 0.7 s after the step, the others when it is made up for.
    let words = "restart -l 2s --hold 100ms --kill-every 1s -d 4s --clock-step -1500ms@300ms";
    let staged = stage(words);
    assert!(not_growing(&staged) > 0, "{:?}", staged.0);
    let (run, results) = staged;
    assert_eq!(run.exit_code, Some(1), "{run:?}");
    let behind: Vec<bool> = results.outages.iter().map(|outage| outage.tokens_behind > 0).collect();
    assert_eq!(behind, [true, false, false], "{run:?}");
    assert!(results.outages[0].tokens_grown_since > 0, "{run:?}");
    assert_eq!(marks(&results, "clock step"), 1, "{run:?}");
}

#[test]
fn thirty_restarts_in_place_repeat_no_token() {
    let words = "restart -l 2s --hold 50ms --kill-every 180ms -d 5580ms --seed 3";
    let (run, results) = stage(words);
    assert_eq!(results.violations(), 0, "{run:?}");
    run.expect_exit(0);
    // A busy machine may not be done with all of them in time.
    assert!(results.outages.len() >= 20, "{run:?}");
    let ways: HashSet<&str> = results.outages.iter().map(|outage| &*outage.way).collect();
    assert_eq!(ways, HashSet::from(["kill", "term"]), "{run:?}");
    // Most of them are what this is about: two processes that grant in one second.
    let within = results.outages.iter().filter(|outage| outage.is_within_a_second).count();
    assert!(within > 0, "{run:?}");
    assert!(marks(&results, "start") >= 20, "{run:?}");
}

/// The children of a process that are still running, stopped or not.
fn children(pid: u32) -> Vec<Pid> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        // A thread may end while we look.
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    children
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
}

/// A run for minutes, at a moment when a server is stopped.
fn start_and_wait_for_a_stop() -> (Child, Vec<Pid>) {
    let words = "failover -l 2s --hold 100ms --kill-with stop --kill-every 1500ms --wake-after 1200ms \
                 -d 10m --server";
    let mut child = loadgen()
        .args(words.split_whitespace().take(1).chain(CROWD.split(' ')))
        .args(words.split_whitespace().skip(1))
        .arg(monolock())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    let mut servers = Vec::new();
    wait_until("a server is stopped", || {
        servers = children(child.id());
        assert!(child.try_wait().expect("a child").is_none(), "the run goes on");
        servers.iter().any(|&server| is_stopped(server))
    });
    assert!(servers.len() >= 2, "{servers:?}");
    (child, servers)
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid).is_err()
}

#[test]
fn no_server_outlives_a_killed_load_generator_stopped_or_not() {
    let (mut child, servers) = start_and_wait_for_a_stop();
    child.kill().expect("a kill");
    child.wait().expect("the end");
    wait_until("all servers are gone", || servers.iter().all(|&server| is_gone(server)));
}

#[test]
fn an_interrupt_during_a_failure_still_reports_and_ends_all_servers() {
    let (child, servers) = start_and_wait_for_a_stop();
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    let output = child.wait_with_output().expect("the end");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(4), "{stdout}");
    assert!(stdout.contains("NOT A CLEAN RESULT: interrupted while measuring"), "{stdout}");
    assert!(stdout.contains("failures: every"), "{stdout}");
    assert!(servers.iter().all(|&server| is_gone(server)), "{stdout}");
}

#[test]
fn a_server_that_ends_by_itself_cuts_the_run_short() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "sleep 1; exit 3");
    let words = "failover -c 4 -l 1s --ramp 10ms --warmup 0 --kill-every 30s -d 60s --server";
    let run = run(words.split(' ').chain([server.path()]));
    assert_eq!(run.exit_code, Some(4), "{run:?}");
    let part = "ended though nobody had killed it (exit status: 3)";
    assert!(run.stdout.contains(part), "{run:?}");
}

#[test]
fn a_server_whose_clock_cannot_be_staged_is_refused() {
    // Its tokens come from this process, and not from the one that is started.
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "exec sleep 600");
    let words = "failover -c 4 --standby-clock -5s --server";
    let run = run(words.split(' ').chain([server.path()]));
    let line = run.expect_one_line(4);
    assert!(line.contains("cannot stage this server's clock"), "{line}");
}
