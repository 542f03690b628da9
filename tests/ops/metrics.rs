//! What `/metrics` counts, and that others can read it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use monolock::control::metrics::{FAMILIES, Kind};

use crate::harness::client::Client;
use crate::harness::http::get;
use crate::harness::outside;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Server;
use crate::harness::wire::{self, code};
use crate::launch;

/// The value of the sample with this name and these labels.
#[track_caller]
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {sample} in {text}"));
    value.parse().unwrap_or_else(|_| panic!("{sample} is {value:?}"))
}

/// The sum of all samples whose lines begin so.
fn sum(text: &str, start: &str) -> f64 {
    let samples = text.lines().filter(|line| line.starts_with(start));
    samples.map(|line| value(text, line.rsplit_once(' ').expect("a value").0)).sum()
}

fn scrape(server: &Server) -> String {
    let answer = get(server.ops_address(), "/metrics");
    assert_eq!(answer.status, 200);
    let content_type = answer.header("content-type").expect("a content type");
    assert!(content_type.starts_with("text/plain; version=0.0.4"), "{content_type}");
    answer.body
}

#[test]
fn another_implementation_reads_every_family_with_its_type_and_help() {
    // Prints each family in one line: name, type, number of samples, help.
    const SCRIPT: &str = "\
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    print(family.name, family.type, len(family.samples), family.documentation, sep='\\t')
";
    let mut python = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starting python3");
    let server = launch().start();
    let text = scrape(&server);
    let write = python.stdin.take().expect("a pipe").write_all(text.as_bytes());
    let output = python.wait_with_output().expect("the parser ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("No module named 'prometheus_client'") {
        outside::say_skipped("the Python package prometheus-client");
        return;
    }
    write.expect("the parser reads");
    assert!(output.status.success(), "{stderr}");
    let families = String::from_utf8(output.stdout).expect("UTF-8");
    let read: Vec<Vec<&str>> = families.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(read.len(), FAMILIES.len(), "{families}");
    for (family, read) in FAMILIES.iter().zip(&read) {
        // That library leaves the end of a counter's name away.
        let name = match family.kind {
            Kind::Counter => family.name.strip_suffix("_total").expect("a counter is a total"),
            Kind::Gauge | Kind::Histogram => family.name,
        };
        assert_eq!((read[0], read[1]), (name, family.kind.as_str()));
        assert_ne!(read[2], "0", "{name} has samples from the start");
        assert_eq!(read[3], family.help);
    }
}

#[test]
fn every_value_of_a_label_is_there_from_the_start() {
    let server = launch().start();
    let text = scrape(&server);
    for reason in ["graceful", "expired", "io_timeout", "force", "protocol_error", "shutdown"] {
        assert_eq!(value(&text, &format!("monolock_releases_total{{reason=\"{reason}\"}}")), 0.0);
    }
    for code in 0x10..=0x19 {
        let sample = format!("monolock_protocol_errors_total{{code=\"{code:#04x}\"}}");
        assert_eq!(value(&text, &sample), 0.0);
    }
    for histogram in ["monolock_wait_seconds", "monolock_hold_seconds"] {
        for end in ["_bucket{le=\"0.001\"}", "_bucket{le=\"+Inf\"}", "_sum", "_count"] {
            assert_eq!(value(&text, &format!("{histogram}{end}")), 0.0);
        }
    }
}

#[test]
fn claims_are_counted_from_the_queue_to_the_release() {
    let server = launch().start();
    let (owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let _silent = Client::connect(server.address());
    wait_until("three connections are counted", || {
        value(&scrape(&server), "monolock_connections_active") == 3.0
    });
    let text = scrape(&server);
    assert_eq!(value(&text, "monolock_locks_held"), 1.0);
    assert_eq!(value(&text, "monolock_waiters"), 1.0);
    assert_eq!(value(&text, "monolock_acquires_total"), 1.0);
    assert_eq!(value(&text, "monolock_session_slots{state=\"used\"}"), 3.0);

    // So that it is a wait and a hold beyond the first bound.
    std::thread::sleep(Duration::from_millis(10));
    owner.close();
    assert!(waiter.expect_acquired() > token);
    let text = scrape(&server);
    assert_eq!(value(&text, "monolock_locks_held"), 1.0);
    assert_eq!(value(&text, "monolock_waiters"), 0.0);
    assert_eq!(value(&text, "monolock_acquires_total"), 2.0);
    assert_eq!(value(&text, "monolock_releases_total{reason=\"graceful\"}"), 1.0);
    assert_eq!(value(&text, "monolock_wait_seconds_count"), 2.0);
    assert_eq!(value(&text, "monolock_wait_seconds_bucket{le=\"0.001\"}"), 1.0);
    assert_eq!(value(&text, "monolock_hold_seconds_count"), 1.0);
    assert_eq!(value(&text, "monolock_hold_seconds_bucket{le=\"0.005\"}"), 0.0);
    let (waited, held) =
        (value(&text, "monolock_wait_seconds_sum"), value(&text, "monolock_hold_seconds_sum"));
    assert!(waited >= 0.01 && held >= waited, "{waited} {held}");
}

#[test]
fn heartbeats_are_counted_by_how_much_of_their_lease_was_left() {
    let server = launch().start();
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    owner.expect_held(token);
    owner.send(&[wire::HEARTBEAT; 5]);
    for _ in 0..5 {
        owner.expect_acquired();
    }
    let text = scrape(&server);
    assert_eq!(value(&text, "monolock_heartbeats_total"), 6.0);
    assert_eq!(value(&text, "monolock_lease_remaining_ratio_count"), 6.0);
    assert_eq!(value(&text, "monolock_lease_remaining_ratio_bucket{le=\"1\"}"), 6.0);
    assert!(value(&text, "monolock_lease_remaining_ratio_sum") > 5.5);
}

#[test]
fn ends_are_counted_by_their_reason() {
    let server = launch().args(["--io-timeout", "100ms"]).start();
    let mut expiring = Client::connect(server.address());
    expiring.acquire("a", 50);
    expiring.expect_acquired();
    expiring.expect_eof();
    let (mut wrong, _) = Client::owner(server.address(), "b", LONG_LEASE_MS);
    wrong.send(&[0x7f]);
    wrong.expect_refusal(code::UNKNOWN_TYPE);
    let mut silent = Client::connect(server.address());
    silent.expect_eof();
    let text = scrape(&server);
    assert_eq!(value(&text, "monolock_releases_total{reason=\"expired\"}"), 1.0);
    assert_eq!(value(&text, "monolock_releases_total{reason=\"protocol_error\"}"), 1.0);
    assert_eq!(value(&text, "monolock_protocol_errors_total{code=\"0x13\"}"), 1.0);
    assert_eq!(value(&text, "monolock_first_frame_timeouts_total"), 1.0);
    assert_eq!(value(&text, "monolock_connections_accepted_total"), 3.0);
}

#[test]
fn the_process_and_its_loops_are_measured() {
    let server = launch().args(["--shards", "2"]).start();
    let text = scrape(&server);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let started = value(&text, "process_start_time_seconds");
    assert!(started <= now && now - started < 60.0, "{started} {now}");
    assert!(value(&text, "process_cpu_seconds_total") > 0.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);
    assert!(value(&text, "process_virtual_memory_bytes") > 1e6);
    assert!(value(&text, "process_open_fds") > 3.0);
    assert!(value(&text, "process_max_fds") >= 1024.0);
    assert_eq!(sum(&text, "monolock_loop_responsive{"), 2.0);
    assert_eq!(value(&text, "monolock_last_reload_successful"), 1.0);
    let busy = sum(&text, "monolock_loop_busy_seconds_total{");
    let turns = sum(&text, "monolock_loop_iterations_total{");
    let _owner = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let text = scrape(&server);
    assert!(sum(&text, "monolock_loop_busy_seconds_total{") > busy);
    assert!(sum(&text, "monolock_loop_iterations_total{") > turns);
    assert!(sum(&text, "monolock_loop_completions_total{") >= 2.0);
}
