//! Holders that fall silent: what is seen of servers and resources that keep their promises, and of
//! those that don't.

mod harness;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use harness::private_cluster::PrivateCluster;
use harness::real_server::monolock;
use harness::{FakeServer, Fault, Run, load, loadgen, run};
use monolock_loadgen::checker::Invariant;
use monolock_loadgen::results::{Fencing, PhaseResult, Results};
use rusqlite::Connection;

/// Two locks with three sessions each, whose holders all sleep through their leases.
const SIMULATED: &str = "gc-pause -c 6 -L 2 -l 300ms --hold 200ms --pause 450ms..700ms \
                         --write-every 20ms --warmup 0 -d 2200ms --seed 5";

fn real(words: &str) -> String {
    format!("{words} --processes")
}

/// A run against this workspace's own server.
#[track_caller]
fn load_real_server(words: &str) -> (Run, Results) {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("results.json");
    let flags = ["--json-out-file".as_ref(), json.as_os_str(), "--server".as_ref()];
    let flags = flags.into_iter().chain([monolock().as_os_str()]).map(OsString::from);
    let run = run(words.split_whitespace().map(OsString::from).chain(flags));
    let results = Results::read(&json).unwrap_or_else(|error| panic!("{error}; {run:?}"));
    (run, results)
}

#[track_caller]
fn phase<'a>(results: &'a Results, name: &str) -> &'a PhaseResult {
    results.phase(name).unwrap_or_else(|| panic!("no {name} in {results:#?}"))
}

fn fencing(results: &Results) -> &Fencing {
    results.fencing.as_ref().expect("the scenario has it")
}

fn broken(results: &Results) -> Vec<Invariant> {
    let invariants = Invariant::ALL.into_iter().zip(&results.invariants);
    invariants.filter(|(_, found)| found.count > 0).map(|(invariant, _)| invariant).collect()
}

/// What must be so wherever leases, tokens and the resource are as they should be.
#[track_caller]
fn expect_fenced(run: &Run, results: &Results) {
    assert!(broken(results).is_empty(), "{run:?}");
    let Fencing { pauses, takeovers, writes, stale_refused, stale_accepted, .. } =
        *fencing(results);
    assert!(pauses >= 4 && takeovers >= 4 && pauses >= takeovers, "{run:?}");
    // A process may have been stopped in the middle of a write, or right after it, and looks first.
    let are_real = results.parameters.pauses.as_ref().is_some_and(|pauses| pauses.are_real);
    let fewer = if are_real { 2 } else { 0 };
    assert!(stale_refused + fewer >= takeovers && stale_accepted == 0, "{run:?}");
    assert!(writes > 50, "{run:?}");
    let takeover = phase(results, "takeover");
    // A heartbeat interval less than the lease, and what a busy machine makes of that.
    assert!(takeover.count >= 3 && takeover.corrected.min_ms > 150.0, "{run:?}");
    assert_eq!(phase(results, "expiry-overrun").count, takeover.count);
    let belief = phase(results, "belief-overlap");
    assert!(belief.count >= takeover.count && belief.corrected.max_ms == 0.0, "{run:?}");
    let unaware = &phase(results, "unaware").corrected;
    assert!(unaware.mean_ms > 100.0 && unaware.max_ms > unaware.min_ms, "{run:?}");
    for kind in ["pause", "resume", "takeover", "refusal"] {
        assert!(results.marks.iter().any(|mark| mark.kind == kind), "no {kind}; {run:?}");
    }
    // That sleepers lose their locks is what is staged, and no loss to speak of.
    let is_own = |words: &String| words.contains("nothing confirmed");
    assert!(results.losses.keys().all(is_own), "{run:?}");
}

#[track_caller]
fn expect_corrupted(run: &Run, results: &Results) {
    assert!(broken(results).is_empty(), "that is the resource's doing: {run:?}");
    let Fencing { stale_refused, stale_accepted, first_accepted, .. } = fencing(results);
    assert!(*stale_refused == 0 && *stale_accepted >= 4, "{run:?}");
    assert!(run.stdout.contains("CORRUPTED: without fencing"), "{run:?}");
    assert!(run.stdout.contains(first_accepted) && first_accepted.contains("token"), "{run:?}");
    assert!(results.marks.iter().any(|mark| mark.kind == "corruption"), "{run:?}");
}

#[test]
fn stale_writes_are_refused_in_memory() {
    let (run, results) = load_real_server(SIMULATED);
    expect_fenced(&run, &results);
    assert!(run.stdout.contains("450ms to 700ms, simulated"), "{run:?}");
}

#[test]
fn stale_writes_are_refused_by_a_database_beside_the_ring() {
    let (run, results) = load_real_server(&format!("{SIMULATED} --resource sqlite -t 2"));
    expect_fenced(&run, &results);
}

#[test]
fn processes_that_are_stopped_are_refused_by_sqlite() {
    let (run, results) = load_real_server(&real(SIMULATED));
    expect_fenced(&run, &results);
    assert!(run.stdout.contains("by SIGSTOP, a process each; writes every 20ms to SQLite"));
}

#[test]
fn stale_writes_are_refused_by_postgresql() {
    let Some(cluster) = PrivateCluster::start(20) else {
        return;
    };
    for words in [SIMULATED.to_owned(), real(SIMULATED)] {
        let (run, results) = load_real_server(&format!("{words} --resource {}", cluster.url()));
        expect_fenced(&run, &results);
    }
    let words = format!("{} --no-fencing --resource {}", real(SIMULATED), cluster.url());
    let (run, results) = load_real_server(&words);
    expect_corrupted(&run, &results);
}

#[test]
fn pauses_come_at_the_rate_given() {
    let words = "gc-pause -c 24 -L 8 -R 8 -l 300ms --pause 400ms --ramp 50ms --warmup 0 -d 3s \
                 --expect takeover.count>0 --expect belief-overlap.max<1ms";
    let (run, results) = load_real_server(words);
    assert!(broken(&results).is_empty(), "{run:?}");
    // None is begun in the last 400 ms.
    let pauses = fencing(&results).pauses;
    assert!((12..=24).contains(&pauses), "{pauses} of about 20; {run:?}");
    assert!(results.parameters.is_open_loop);
    assert!(results.expectations.iter().all(|expectation| expectation.is_met), "{run:?}");
}

#[test]
fn a_run_that_stages_nothing_says_so() {
    // The holders work for longer than the run lasts.
    let words = "gc-pause -c 4 -L 2 -l 200ms --hold 5s --pause 300ms --warmup 0 -d 500ms";
    let (run, results) = load_real_server(words);
    assert_eq!(fencing(&results).pauses, 0, "{run:?}");
    assert!(run.stdout.contains("NOT A CLEAN RESULT: no silent holder's lock"), "{run:?}");
}

#[test]
fn a_short_pause_costs_nothing() {
    let words = SIMULATED.replace("--pause 450ms..700ms", "--pause 1ms..301ms");
    for words in [words.clone(), real(&words)] {
        let (run, results) = load_real_server(&words);
        assert!(broken(&results).is_empty(), "{run:?}");
        let Fencing { pauses, takeovers, .. } = *fencing(&results);
        assert!(pauses > takeovers, "most of them have kept their locks: {run:?}");
        assert!(phase(&results, "heartbeat").corrected.min_ms < 300.0, "{run:?}");
    }
}

#[test]
fn without_fencing_a_sleeper_destroys_its_successors_writes() {
    for words in [SIMULATED.to_owned(), real(SIMULATED)] {
        let (run, results) = load_real_server(&format!("{words} --no-fencing"));
        assert!(run.exit_code != Some(1), "{run:?}");
        expect_corrupted(&run, &results);
    }
}

#[test]
fn a_takeover_before_the_lease_is_over_is_seen() {
    let server = FakeServer::start(Fault::ExpiresEarly);
    for words in [SIMULATED.to_owned(), real(SIMULATED)] {
        let (run, results) = load(&server, &words);
        assert_eq!(broken(&results), [Invariant::GrantBeforeExpiry], "{run:?}");
        assert_eq!(run.exit_code, Some(1), "{run:?}");
        assert!(phase(&results, "belief-overlap").corrected.max_ms > 0.0, "{run:?}");
    }
}

#[test]
fn a_token_that_is_given_twice_lets_stale_writes_in() {
    let server = FakeServer::start(Fault::TokenRepeats);
    for words in [SIMULATED.to_owned(), real(SIMULATED)] {
        let (run, results) = load(&server, &words);
        assert!(broken(&results).contains(&Invariant::StaleWriteAccepted), "{run:?}");
        assert!(fencing(&results).stale_accepted > 0, "{run:?}");
        assert_eq!(run.exit_code, Some(1), "{run:?}");
    }
}

/// A resource that checks tokens, and forgets which it has seen.
fn forgetful_database(path: &Path) {
    let database = Connection::open(path).expect("a file");
    database
        .execute_batch(
            "CREATE TABLE monolock_guarded (name TEXT PRIMARY KEY, value BIGINT, token BIGINT,
                 author BIGINT, granted BIGINT, author_before BIGINT, granted_before BIGINT);
             CREATE TRIGGER forget AFTER UPDATE ON monolock_guarded WHEN NEW.token > 0 BEGIN
                 UPDATE monolock_guarded SET token = 0 WHERE name = NEW.name;
             END;",
        )
        .expect("a table and a trigger");
}

#[test]
fn a_resource_that_takes_a_stale_write_is_seen() {
    for (number, words) in [SIMULATED.to_owned(), real(SIMULATED)].into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(format!("{number}.db"));
        forgetful_database(&path);
        let words = format!("{words} --resource sqlite:{}", path.display());
        let (run, results) = load_real_server(&words);
        assert_eq!(broken(&results), [Invariant::StaleWriteAccepted], "{run:?}");
        assert_eq!(run.exit_code, Some(1), "{run:?}");
        let accepted = fencing(&results).stale_accepted;
        assert!(accepted > 0, "{run:?}");
        assert!(run.stdout.contains(&format!("{accepted} accepted")), "{run:?}");
        assert!(run.stdout.contains("BROKEN: stale write accepted"), "{run:?}");
    }
}

#[test]
fn a_database_can_be_looked_at_afterwards() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kept.db");
    let words = format!("{SIMULATED} --resource sqlite:{}", path.display());
    let (run, results) = load_real_server(&words);
    expect_fenced(&run, &results);
    let database = Connection::open(&path).expect("it is still there");
    let sum = "SELECT count(*), min(token), min(author = token) FROM monolock_guarded";
    let (rows, token, is_whole): (u32, i64, bool) = database
        .query_row(sum, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("the table");
    assert!(rows == 2 && token > 0 && is_whole, "{rows} {token} {is_whole}");
}

/// The processes that have this in their environment, with their state: `S`, `T` for stopped.
fn processes_with(mark: &str) -> Vec<char> {
    let state = |directory: &Path| {
        let environment = fs::read(directory.join("environ")).ok()?;
        let is_it = environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes());
        let stat = fs::read_to_string(directory.join("stat")).ok().filter(|_| is_it)?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    let directories = fs::read_dir("/proc").expect("/proc").flatten();
    directories.filter_map(|entry| state(&entry.path())).collect()
}

#[track_caller]
fn wait_for(mark: &str, is_it: impl Fn(&[char]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let states = processes_with(mark);
        if is_it(&states) {
            return;
        }
        assert!(Instant::now() < deadline, "{states:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn no_process_outlives_a_run_that_is_killed() {
    let server = FakeServer::start(Fault::None);
    let value = format!("{}-{}", std::process::id(), server.address().port());
    let words = "gc-pause --processes -c 4 -L 2 -l 200ms --pause 10s --warmup 0 -d 30s -a";
    let mut run = loadgen()
        .args(words.split_whitespace().chain([server.address().to_string().as_str()]))
        .env("LOADGEN_TEST_RUN", &value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    let mark = format!("LOADGEN_TEST_RUN={value}");
    wait_for(&mark, |states| states.len() == 5 && states.contains(&'T'));
    run.kill().expect("it is ours");
    run.wait().expect("it is killed");
    wait_for(&mark, <[char]>::is_empty);
}
