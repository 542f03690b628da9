//! The files are read back by other readers than their writers.

mod harness;

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::{FakeServer, Fault, Run, run};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use monolock_loadgen::results::{Results, ResultsError};

const WORDS: &str = "heartbeat -c 20 -l 1s --ramp 100ms --warmup 0 -d 2s --seed 11";

/// A run with all files in a directory: `r.json`, `r.svg`, `r-<phase>.hgrm`, `r.hlog`.
fn run_with_files(directory: &Path, words: &str) -> Run {
    let server = FakeServer::start(Fault::None);
    let at = |name: &str| directory.join(name).display().to_string();
    let files = [
        ("--json-out-file", at("r.json")),
        ("--svg-out-file", at("r.svg")),
        ("--hdr-file-prefix", at("r")),
        ("--address", server.address().to_string()),
    ];
    let files = files.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    run(words.split_whitespace().map(str::to_owned).chain(files))
}

fn histogram(base64: &str) -> Histogram<u64> {
    let bytes = STANDARD.decode(base64).expect("Base64");
    Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram")
}

#[test]
fn all_files_tell_the_same_story() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = run_with_files(directory.path(), WORDS);
    run.expect_exit(0);
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).expect("a file");

    let json: serde_json::Value = serde_json::from_str(&read("r.json")).expect("JSON");
    assert_eq!(json["format_version"], 1);
    assert_eq!(json["parameters"]["seed"], 11);
    let phases = json["phases"].as_array().expect("a list");
    let heartbeat = phases.iter().find(|phase| phase["name"] == "heartbeat").expect("recorded");
    let whole = histogram(heartbeat["histogram"].as_str().expect("text"));
    assert_eq!(heartbeat["count"], whole.len());
    let p99_ms = heartbeat["percentiles_ms"]["99"].as_f64().expect("a number");
    let error_ms = (p99_ms - whole.value_at_quantile(0.99) as f64 / 1e6).abs();
    assert!(error_ms < 0.002, "{error_ms}");
    assert!(heartbeat["uncorrected"]["histogram"].is_string());

    check_hgrm(&read("r-heartbeat.hgrm"), &whole);
    check_hlog(&read("r.hlog"), &whole);
    let svg = read("r.svg");
    let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
    let lines = document.descendants().filter(|node| node.has_tag_name("polyline")).count();
    assert_eq!(lines, 3 + 2, "three phases by percentile, and two lines over time");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

/// As the public plotters do: lines of four numbers after the header, until a bracketed comment.
fn check_hgrm(text: &str, whole: &Histogram<u64>) {
    let mut lines = text.lines();
    let header: Vec<_> = lines.next().expect("a header").split_whitespace().collect();
    assert_eq!(header, ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
    let rows: Vec<Vec<f64>> = lines
        .clone()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().map(|word| word.parse().expect("a number")).collect())
        .collect();
    let comments: Vec<_> = lines.filter(|line| line.starts_with("#[")).collect();
    assert_eq!(comments.len(), 3, "{text}");
    assert!(comments[1].contains(&format!("Total count    = {:>12}]", whole.len())), "{text}");
    for pair in rows.windows(2) {
        assert!(pair[0][0] <= pair[1][0] && pair[0][1] < pair[1][1] && pair[0][2] <= pair[1][2]);
    }
    let last = rows.last().expect("rows");
    assert_eq!((last[1], last[2], last[3]), (1.0, whole.len() as f64, f64::INFINITY));
    assert!((last[0] - whole.max() as f64 / 1e6).abs() < 0.001, "{last:?}");
}

fn check_hlog(text: &str, whole: &Histogram<u64>) {
    let mut sum = Histogram::<u64>::new(3).expect("a histogram");
    let mut last_start = None;
    let mut has_base_time = false;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        match entry.expect("a valid line") {
            LogEntry::BaseTime(_) => has_base_time = true,
            LogEntry::Interval(interval) => {
                assert!(last_start <= Some(interval.start_timestamp()), "in the order of time");
                last_start = Some(interval.start_timestamp());
                assert_eq!(interval.duration().as_secs(), 1);
                let part = histogram(interval.encoded_histogram());
                let max_ms = part.max() as f64 / 1e6;
                assert!((interval.max() - max_ms).abs() < 0.001, "{}", interval.max());
                if interval.tag().is_some_and(|tag| tag.as_str() == "heartbeat") {
                    sum.add(&part).expect("room");
                }
            }
            LogEntry::StartTime(_) => {}
        }
    }
    assert!(has_base_time);
    assert_eq!(sum.len(), whole.len(), "the seconds add up to the whole");
}

/// Prints a line for each interval: phase, count, and the maximum in nanoseconds.
const PYTHON_READER: &str = "
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
log = HistogramLogReader(sys.argv[1], HdrHistogram(1, 10**12, 3))
while interval := log.get_next_interval_histogram():
    print(interval.get_tag(), interval.get_total_count(), interval.get_max_value())
";

#[test]
fn another_implementation_reads_the_interval_log() {
    let python = |code: &str, args: &[&Path]| {
        Command::new("python3").args(["-c", code]).args(args).output().ok()
    };
    if !python("import hdrh", &[]).is_some_and(|output| output.status.success()) {
        println!("SKIPPED: python3 with the package hdrhistogram (PyPI) is needed");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    run_with_files(directory.path(), WORDS).expect_exit(0);
    let results = Results::read(&directory.path().join("r.json")).expect("the results");
    let output = python(PYTHON_READER, &[&directory.path().join("r.hlog")]).expect("python3");
    let read = String::from_utf8(output.stdout).expect("text");
    let heartbeat = results.phase("heartbeat").expect("recorded");
    let lines: Vec<&str> = read.lines().filter(|line| line.starts_with("heartbeat ")).collect();
    assert_eq!(lines.len(), heartbeat.seconds.len(), "{read} {:?}", output.stderr);
    for (line, second) in lines.iter().zip(&heartbeat.seconds) {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1].parse(), Ok(second.count), "{line}");
        let max_ms = words[2].parse::<f64>().expect("a number") / 1e6;
        assert!((max_ms / second.max_ms - 1.0).abs() < 0.002, "{line} {}", second.max_ms);
    }
}

#[test]
fn two_runs_are_compared() {
    let (one, other) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    run_with_files(one.path(), WORDS).expect_exit(0);
    let fewer = WORDS.replace("-c 20", "-c 10").replace("-d 2s", "-d 1s");
    run_with_files(other.path(), &fewer).expect_exit(0);
    let (a, b) = (one.path().join("r.json"), other.path().join("r.json"));
    let svg = one.path().join("compare.svg");
    let files = [a.as_os_str(), b.as_os_str()];

    let same = run(["compare".as_ref(), files[0], files[0]]);
    assert_eq!(same.exit_code, Some(0), "{same:?}");
    // On a machine that is busy with other tests a run may have fallen behind its plan.
    let head = same.stdout.split("phase, ms").next().expect("the head");
    for reservation in head.lines().filter(|line| line.starts_with("  ")) {
        assert!(reservation.contains("is not a clean result"), "{same:?}");
    }
    assert!(same.stdout.contains("heartbeat.p99") && same.stdout.contains("(=)"), "{same:?}");

    let flags = ["--svg-out-file".as_ref(), svg.as_os_str()];
    let differing = run(["compare".as_ref()].into_iter().chain(files).chain(flags));
    assert_eq!(differing.exit_code, Some(0), "{differing:?}");
    for part in ["NOT COMPARABLE", "sessions: 20 / 10", "measured time: 2000 ms / 1000 ms", "(x"] {
        assert!(differing.stdout.contains(part), "no {part:?} in {differing:?}");
    }
    let svg = fs::read_to_string(&svg).expect("the plot");
    let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
    let lines = document.descendants().filter(|node| node.has_tag_name("polyline")).count();
    assert_eq!(lines, 2 + 4, "a line a run by percentile, and two over time");

    let text = fs::read_to_string(&a).expect("the results");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    json["parameters"]["kills"] =
        serde_json::json!({ "every_ms": 500, "ways": ["kill", "term"], "clock_step_ms": null });
    json["parameters"]["warmup_ms"] = 7.into();
    json["parameters"]["pauses"] = serde_json::json!({
        "shortest_ms": -1e300, "longest_ms": 1e300, "are_real": false, "write_every_ms": -5.0,
        "resource": "memory", "is_fenced": true,
    });
    fs::write(&b, json.to_string()).expect("writing");
    let differing = run(["compare".as_ref()].into_iter().chain(files));
    for part in ["servers: none / every 500ms by kill or term", "warm-up: 0 ms / 7 ms"] {
        assert!(differing.stdout.contains(part), "no {part:?} in {differing:?}");
    }
}

#[test]
fn nothing_in_a_file_or_its_name_reaches_the_terminal_as_more_than_text() {
    let directory = tempfile::tempdir().expect("a directory");
    run_with_files(directory.path(), "heartbeat -c 2 -l 1s --ramp 0 --warmup 0 -d 300ms");
    let text = fs::read_to_string(directory.path().join("r.json")).expect("the results");
    let forged = text.replace("\"scenario\": \"heartbeat\"", "\"scenario\": \"\\u001b[2J\\nok\"");
    assert_ne!(forged, text);
    let path = directory.path().join("\u{1b}[31m\n.json");
    fs::write(&path, forged).expect("writing");
    let run = run(["compare".as_ref(), path.as_os_str(), path.as_os_str()]);
    assert_eq!(run.exit_code, Some(0), "{run:?}");
    assert!(run.stdout.contains("\\u{1b}[2J\\nok"), "{run:?}");
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(run.stdout.chars().all(is_plain), "{run:?}");
    assert!(run.stdout.lines().any(|line| line.starts_with("A: ") && line.contains("server")));
}

#[test]
fn a_file_that_is_no_results_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let run_of =
        run_with_files(directory.path(), "heartbeat -c 2 -l 1s --ramp 0 --warmup 0 -d 300ms");
    run_of.expect_exit(0);
    let good = directory.path().join("r.json");
    let text = fs::read_to_string(&good).expect("the results");
    let bad = directory.path().join("bad.json");
    let expect = |text: &str, part: &str| {
        fs::write(&bad, text).expect("writing");
        let run = run(["compare".as_ref(), good.as_os_str(), bad.as_os_str()]);
        let line = run.expect_one_line(2);
        assert!(line.contains("bad.json") && line.contains(part), "no {part:?} in {line:?}");
    };
    expect(&text[..text.len() / 2], "is cut off");
    for at in (1..text.len() - 2).step_by(7) {
        fs::write(&bad, &text[..at]).expect("writing");
        let read = Results::read(&bad);
        assert!(matches!(read, Err(ResultsError::Cut { .. })), "{at}: {read:?}");
    }
    expect(&text.replace("\"format_version\": 1", "\"format_version\": 2"), "format version 2");
    expect("{\"format_version\": 99, \"other\": true}", "format version 99");
    expect("{\"some\": \"thing\"}", "is not a results file");
    expect("HTTP/1.1 400\r\n\r\n", "is not a results file");
    expect(&text.replace("\"histogram\": \"H", "\"histogram\": \"X"), "damaged histogram");
    let missing = run(["compare".as_ref(), good.as_os_str(), "/no/such.json".as_ref()]);
    assert!(missing.expect_one_line(2).contains("/no/such.json cannot be read"));
}

#[test]
fn a_file_from_before_grants_and_marks_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = "handover -c 4 -L 1 -l 1s --hold 5ms --ramp 0 --warmup 0 -d 300ms";
    assert_eq!(run_with_files(directory.path(), words).exit_code, Some(0));
    let path = directory.path().join("r.json");
    let text = fs::read_to_string(&path).expect("the results");
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for name in ["grants", "marks", "marks_left_out"] {
        json.as_object_mut().expect("an object").remove(name).expect("it is written");
    }
    fs::write(&path, json.to_string()).expect("writing");
    let old = Results::read(&path).expect("it is of the same format");
    assert!(old.grants.counts.is_empty() && old.marks.is_empty());
    let files = [path.as_os_str(), path.as_os_str()];
    assert_eq!(run(["compare".as_ref()].into_iter().chain(files)).exit_code, Some(0));
}

#[test]
fn csv_and_quiet_are_one_line_a_phase() {
    let server = FakeServer::start(Fault::None);
    let words =
        format!("heartbeat -c 4 -l 1s --ramp 0 --warmup 0 -d 600ms -a {}", server.address());
    let csv = run(words.split(' ').chain(["--csv"]));
    let lines: Vec<_> = csv.stdout.lines().collect();
    assert!(lines[0].starts_with("\"phase\",\"count\","), "{csv:?}");
    assert_eq!(lines.len(), 4, "{csv:?}");
    for line in &lines {
        assert_eq!(line.split(',').count(), 12, "{line}");
    }
    let quiet = run(words.split(' ').chain(["-q"]));
    let notes = |line: &&str| line.starts_with("The server is on this machine");
    assert_eq!(quiet.stdout.lines().filter(notes).count(), 1, "{quiet:?}");
    assert_eq!(quiet.stdout.lines().filter(|line| !notes(line)).count(), 3, "{quiet:?}");
    assert!(csv.stderr.contains("The server is on this machine"), "{csv:?}");
}
