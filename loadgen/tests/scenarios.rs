//! Each scenario does what it says, against a correct server.

mod harness;

use std::fs;
use std::thread;

use harness::{FakeServer, Fault, Run, StandIn, load, run, wait_until};
use monolock_loadgen::results::{PhaseResult, Results};

#[track_caller]
fn expect_clean(words: &str) -> Results {
    let server = FakeServer::start(Fault::None);
    let (run, results) = load(&server, words);
    run.expect_exit(0);
    assert!(results.losses.is_empty() && !results.is_cut_short, "{run:?}");
    assert_eq!(results.violations(), 0, "{run:?}");
    // Threads that ended before they were asked took their share with them.
    assert!(results.own.cpu_seconds > 0.0, "{run:?}");
    for phase in &results.phases {
        assert_eq!(phase.errors, 0, "{run:?}");
        let of_seconds: u64 = phase.seconds.iter().map(|second| second.count).sum();
        let is_setup = results.parameters.scenario == "heartbeat" && phase.name != "heartbeat";
        assert!(of_seconds == phase.count || is_setup, "{of_seconds} in seconds; {run:?}");
    }
    results
}

#[track_caller]
fn phase<'a>(results: &'a Results, name: &str) -> &'a PhaseResult {
    results.phase(name).unwrap_or_else(|| panic!("no {name} in {results:#?}"))
}

#[test]
fn heartbeats_come_four_times_a_lease_and_connecting_is_recorded() {
    let results = expect_clean("heartbeat -c 40 -l 1s --ramp 100ms --warmup 100ms -d 2s");
    assert_eq!(phase(&results, "connect").count, 40);
    assert_eq!(phase(&results, "acquire").count, 40);
    // 8 intervals of a quarter of the lease, or a little less.
    let heartbeats = phase(&results, "heartbeat").count;
    assert!((7 * 40..=12 * 40).contains(&heartbeats), "{heartbeats}");
    assert!(results.parameters.is_open_loop && results.server.is_none());
}

#[test]
fn a_rate_is_kept_whatever_it_takes() {
    let words =
        "steady -c 32 -L 16 -R 200 --arrivals poisson --hold 1ms --seed 7 --warmup 100ms -d 1s";
    let results = expect_clean(words);
    let acquired = phase(&results, "acquire");
    assert!((140..=260).contains(&acquired.count), "{}", acquired.count);
    assert!(results.parameters.is_open_loop);
    assert!(acquired.corrected.mean_ms >= acquired.uncorrected.mean_ms - 0.01);
}

#[test]
fn late_operations_are_timed_from_when_they_were_intended() {
    // One lock held for 20 ms can serve 50 a second; 200 are intended.
    let words = "steady -c 2 -L 1 -R 200 --hold 20ms --warmup 0 -d 500ms";
    let server = FakeServer::start(Fault::None);
    let (run, results) = load(&server, words);
    let acquired = phase(&results, "acquire");
    assert_eq!(acquired.count + acquired.errors, 100, "all are accounted for: {run:?}");
    let (corrected, uncorrected) = (acquired.corrected.max_ms, acquired.uncorrected.max_ms);
    assert!(corrected > 1000.0 && uncorrected < corrected / 2.0, "{corrected} {uncorrected}");
    assert!(run.stdout.contains("NOT A CLEAN RESULT: the load generator fell behind"), "{run:?}");
    assert_eq!(run.exit_code, Some(4), "{run:?}");
}

#[test]
fn a_closed_loop_says_so() {
    let server = FakeServer::start(Fault::None);
    let (run, results) = load(&server, "steady -c 4 -L 4 --hold 1ms --warmup 0 -d 300ms");
    assert!(!results.parameters.is_open_loop && phase(&results, "acquire").count > 10);
    assert!(run.stdout.contains("CLOSED LOOP") && run.stdout.contains("(closed loop)"), "{run:?}");
}

#[test]
fn locks_change_hands_at_the_rate_given() {
    let results = expect_clean("handover -c 12 -L 2 -R 50 -l 2s --ramp 50ms --warmup 100ms -d 1s");
    let handovers = phase(&results, "handover").count;
    assert!((45..=50).contains(&handovers), "{handovers}");
    assert!(phase(&results, "wait").count >= 20);
}

#[test]
fn holds_are_drawn_from_their_range() {
    let server = FakeServer::start(Fault::None);
    let words = "handover -c 3 -L 1 --hold 20ms..60ms -l 2s --ramp 0 --warmup 0 -d 2s --seed 1";
    let (run, results) = load(&server, words);
    run.expect_exit(0);
    assert!(run.stdout.contains("1 lock, held for 20ms to 60ms,"), "{run:?}");
    // At 40 ms on the average there are 50 in the measured time; a busy machine has fewer.
    let count = phase(&results, "handover").count;
    assert!((15..=75).contains(&count), "{count}");
}

#[test]
fn storms_follow_each_other() {
    let results = expect_clean("connect-storm -c 50 --warmup 0 -d 1s");
    let connected = phase(&results, "connect").count;
    assert!(connected >= 100 && connected.is_multiple_of(50), "{connected}");
}

#[test]
fn who_does_not_read_is_cut_off_and_comes_back() {
    let server = FakeServer::start(Fault::None);
    let (run, results) = load(&server, "slow-reader -c 10 -l 10s --ramp 50ms --warmup 0 -d 8s");
    run.expect_exit(0);
    let cutoff = phase(&results, "cutoff");
    assert!(cutoff.count >= 1 && cutoff.corrected.mean_ms < 8000.0, "{run:?}");
    assert!(phase(&results, "heartbeat").count >= 9, "the others go on: {run:?}");
    assert!(results.losses.is_empty(), "{run:?}");
}

#[test]
fn plans_are_split_over_threads() {
    let results = expect_clean("heartbeat -c 41 -t 3 -l 1s --ramp 50ms --warmup 0 -d 600ms");
    assert_eq!(results.parameters.threads, 3);
    assert_eq!(phase(&results, "connect").count, 41);
}

#[test]
fn a_server_that_is_started_is_looked_at_and_stopped() {
    let fake = FakeServer::start(Fault::None);
    let server = StandIn::new(fake.address(), "exec sleep 60");
    let json = server.directory().join("a.json");
    let words = "heartbeat -c 5 -l 1s --ramp 10ms --warmup 0 -d 500ms --json-out-file";
    let run = run(words
        .split(' ')
        .chain([json.to_str().expect("text"), "--server", server.path()])
        .chain(["--", "--io-timeout", "2s"]));
    run.expect_exit(0);
    assert!(run.stdout.contains("resident bytes a session"), "{run:?}");
    let results = Results::read(&json).expect("results");
    let share = results.server.expect("of the server");
    assert!(share.resident_bytes > 0 && share.descriptors > 0);
    // The sessions are not with the process that was started, and nobody has told them.
    let shutdown = results.shutdown.expect("the server is shut down");
    assert!(!shutdown.is_clean, "it was ended by the signal");
    assert_eq!(shutdown.endings["there although the server is gone"], 5);
    assert_eq!(server.arguments(), "--listen 127.0.0.1:0 --io-timeout 2s");
    let process = format!("/proc/{}", server.pid().as_raw_nonzero());
    assert!(!fs::exists(process).expect("looking"), "it is stopped and reaped");
}

#[test]
fn a_shutdown_with_all_sessions_is_timed_and_is_no_loss() {
    let fake = FakeServer::start(Fault::None);
    // It waits for the fake server, which has the sessions.
    let script = "cd \"$(dirname \"$0\")\"; trap 'touch asked' TERM\n\
                  until [ -e done ]; do sleep 0.02; done; exit 0";
    let server = StandIn::new(fake.address(), script);
    let json = server.directory().join("a.json");
    let words = "heartbeat -c 8 -t 2 -l 1s --ramp 10ms --warmup 0 -d 500ms --json-out-file";
    let words = words.split(' ').chain([json.to_str().expect("text"), "--server", server.path()]);
    let run = thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the server is asked", || server.directory().join("asked").exists());
            fake.shut_down();
            fs::write(server.directory().join("done"), "").expect("writing");
        });
        run(words)
    });
    run.expect_exit(0);
    let results = Results::read(&json).expect("results");
    assert!(results.losses.is_empty() && results.violations() == 0, "{run:?}");
    let shutdown = results.shutdown.expect("the server is shut down");
    assert!(shutdown.is_clean && shutdown.took_ms > 0, "{shutdown:?}");
    let told = "ERROR 0x01 (server is shutting down), while holding";
    assert_eq!(shutdown.endings.into_iter().collect::<Vec<_>>(), [(told.to_owned(), 8)]);
    assert!(run.stdout.contains("shutdown with all sessions: the server ended after"), "{run:?}");
}

#[test]
fn sessions_that_the_server_ends_are_errors_with_a_reason() {
    let server = FakeServer::start(Fault::HeartbeatsRefused);
    let words = "heartbeat -c 5 -l 1s --ramp 10ms --warmup 0 -d 600ms";
    let (run, results) = load(&server, words);
    let lost: u64 = results.losses.values().sum();
    assert_eq!(lost, 5, "{run:?}");
    assert_eq!(phase(&results, "heartbeat").errors, 5, "{run:?}");
    let Run { stdout, exit_code, .. } = run;
    assert!(stdout.contains("while holding"), "{stdout}");
    // From then on nobody was asked anything, so that what was timed says too little.
    let line = "NOT A CLEAN RESULT: 5 of 5 sessions ended";
    assert!(stdout.contains(line) && exit_code == Some(4), "{stdout}");
}

#[test]
fn rates_of_a_closed_loop_are_not_quoted_where_client_and_server_share_a_machine() {
    let server = FakeServer::start(Fault::None);
    let words = "steady -c 4 -L 4 --hold 1ms --warmup 0 -d 300ms";
    let (run, results) = load(&server, words);
    assert!(results.environment.is_shared_with_server);
    let row = run.stdout.lines().find(|line| line.starts_with("acquire ")).expect("a row");
    assert_eq!(row.split_whitespace().nth(2), Some("-"), "{row}");
    let quiet = load(&server, &format!("{words} -q")).0;
    assert!(quiet.stdout.contains("acquire: ") && !quiet.stdout.contains("/s"), "{quiet:?}");
    let csv = load(&server, &format!("{words} --csv")).0;
    let row = csv.stdout.lines().find(|line| line.starts_with("\"acquire\"")).expect("a row");
    assert_eq!(row.split(',').nth(2), Some(""), "{row}");
    let open = load(&server, &format!("{words} -R 50 -q")).0;
    assert!(open.stdout.contains("/s"), "{open:?}");
}

#[test]
fn a_run_in_which_nothing_was_timed_is_no_success() {
    let server = FakeServer::start(Fault::None);
    let (run, _) = load(&server, "heartbeat -c 2 -l 60s --ramp 0 --warmup 0 -d 100ms");
    assert_eq!(run.exit_code, Some(4), "{run:?}");
    assert!(run.stdout.contains("NOT A CLEAN RESULT: not one heartbeat"), "{run:?}");
}
