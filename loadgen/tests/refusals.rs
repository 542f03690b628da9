//! What can't work is said in one line, with the exit code that was promised.

mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use harness::{FakeServer, Fault, run};

/// A server that answers every connection with these bytes, and closes it.
fn server_saying(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 512];
            if stream.read(&mut request).is_ok() {
                // Whether it arrives is not this thread's business.
                let _ = stream.write_all(answer);
            }
        }
    });
    address
}

#[track_caller]
fn expect_refusal(words: &str, exit_code: i32, parts: &[&str]) {
    let run = run(words.split(' '));
    let line = run.expect_one_line(exit_code);
    assert!(line.starts_with("monolock-loadgen: "), "{line}");
    for part in parts {
        assert!(line.contains(part), "no {part:?} in {line:?}");
    }
}

#[test]
fn a_wrong_command_line_is_usage() {
    expect_refusal("sturm", 2, &["\"sturm\"", "connect-storm", "steady"]);
    expect_refusal("gc-paus", 2, &["\"gc-paus\"", "gc-pause"]);
    expect_refusal("heartbeat -c 0", 2, &["'0'", "--sessions"]);
    for words in ["heartbeat -c -1", "heartbeat -c 1e6", "heartbeat -c 4000001"] {
        expect_refusal(words, 2, &["--sessions", "a whole number from 1 to 4000000"]);
    }
    expect_refusal("steady -R -5", 2, &["'-5'", "--rate"]);
    expect_refusal("steady -d -5s", 2, &["'-5s'", "--duration"]);
    expect_refusal("steady --seed x", 2, &["'x'", "--seed", "a whole number"]);
    expect_refusal("steady --ramp 1s", 2, &["--ramp", "steady"]);
    expect_refusal("steady --arrivals poisson", 2, &["--arrivals", "--rate"]);
    expect_refusal("connect-storm -R 5 --arrivals poisson", 2, &["--arrivals"]);
    expect_refusal("steady -a 127.0.0.1", 2, &["'127.0.0.1'", "--address", "host:7070"]);
    expect_refusal("heartbeat -l 5", 2, &["'5'", "--lease", "not a duration"]);
    expect_refusal("heartbeat -l 50000000s", 2, &["--lease"]);
    expect_refusal("heartbeat -R 5", 2, &["--rate", "heartbeat"]);
    expect_refusal("handover -c 2 -L 3", 2, &["--locks"]);
    expect_refusal("connect-storm --hold 1s", 2, &["--hold"]);
    expect_refusal("steady --hold 5", 2, &["'5'", "--hold", "1s..5s"]);
    expect_refusal("steady --hold 2s..1s", 2, &["--hold", "ends before it begins"]);
    expect_refusal("steady -R 5 --arrivals bursts", 2, &["'bursts'", "poisson"]);
    expect_refusal("steady --expect handover.p99=5ms", 2, &["--expect", "PHASE.WHAT<BOUND"]);
    expect_refusal("steady --expect handovers.p99<5ms", 2, &["\"handovers\"", "handover"]);
    expect_refusal("steady --percentiles 50,101", 2, &["101"]);
    expect_refusal("steady -a nowhere", 2, &["--address"]);
    expect_refusal("steady --no-such-flag", 2, &["--no-such-flag"]);
    expect_refusal("compare a.json", 2, &["FILE"]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    for flag in ["--json-out-file", "--svg-out-file", "--hdr-file-prefix"] {
        // Nobody listens there either, which would be found next.
        let words = format!("steady -a 127.0.0.1:1 {flag} /no/such/place");
        expect_refusal(&words, 2, &["cannot write /no/such/place", "No such file"]);
        let words = format!("steady -a 127.0.0.1:1 {flag} /proc/x");
        expect_refusal(&words, 2, &["cannot write /proc/x"]);
    }
    expect_refusal("compare a b --svg-out-file /", 2, &["cannot write /: Is a directory"]);
}

#[test]
fn a_run_that_cannot_be_leaves_files_as_they_were() {
    let directory = tempfile::tempdir().expect("a directory");
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    std::fs::write(&old, "precious").expect("writing");
    let words = format!(
        "steady -a 127.0.0.1:1 --json-out-file {} --svg-out-file {}",
        old.display(),
        new.display()
    );
    expect_refusal(&words, 4, &["no server at 127.0.0.1:1"]);
    assert_eq!(std::fs::read_to_string(&old).expect("still there"), "precious");
    assert!(!new.exists());
}

#[test]
fn a_server_on_one_address_of_its_host_is_found() {
    let server = FakeServer::start(Fault::None);
    let port = server.address().port();
    let words = format!("heartbeat -c 2 -l 1s --ramp 0 --warmup 0 -d 300ms -a localhost:{port}");
    run(words.split(' ')).expect_exit(0);
}

#[test]
fn help_is_there_for_who_asks() {
    for words in ["help", "-h", "help heartbeat", "compare --help"] {
        let run = run(words.split(' '));
        assert_eq!((run.exit_code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        assert!(run.stdout.contains("Usage: monolock-loadgen"), "{run:?}");
    }
}

#[test]
fn pauses_that_would_show_nothing_are_usage() {
    expect_refusal("gc-pause --pause 5", 2, &["--pause", "1s..5s"]);
    expect_refusal("gc-pause --pause 3s..2s", 2, &["--pause", "ends before it begins"]);
    expect_refusal("gc-pause -l 2s --pause 1s..2s", 2, &["--pause", "2s", "lose a lock"]);
    expect_refusal("gc-pause -l 2s --pause 3s..20s", 2, &["--duration", "20s"]);
    expect_refusal("gc-pause -c 5 -L 3", 2, &["--locks", "nobody to take them over"]);
    expect_refusal("gc-pause -c 8 -L 2 -l 500ms -R 5", 2, &["--rate", "4 pauses a second"]);
    expect_refusal("gc-pause -R 5 --hold 1s", 2, &["--hold", "--rate"]);
    expect_refusal("gc-pause --write-every 0s", 2, &["--write-every"]);
    expect_refusal("gc-pause --resource disk", 2, &["--resource", "sqlite:FILE"]);
    expect_refusal("gc-pause --resource postgres://h:x/d", 2, &["--resource", "port"]);
    expect_refusal("gc-pause --processes -c 501", 2, &["--processes", "500"]);
    expect_refusal("gc-pause --processes --resource memory", 2, &["--resource", "no memory"]);
    expect_refusal("steady --pause 5s", 2, &["--pause"]);
    expect_refusal("holder-process", 2, &["only for gc-pause"]);
}

#[test]
fn a_resource_that_can_not_be_used_is_said_so() {
    let server = FakeServer::start(Fault::None);
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("text"), "this is no database, but it is long enough to be looked at")
        .expect("writing");
    let expect = |resource: &str, parts: &[&str]| {
        for processes in ["", " --processes"] {
            let words =
                format!("gc-pause{processes} --resource {resource} -a {}", server.address());
            expect_refusal(&words, 4, parts);
        }
    };
    let missing = path("no/such.db");
    expect(&format!("sqlite:{missing}"), &["--resource", &missing, "unable to open"]);
    expect(&format!("sqlite:{}", directory.path().display()), &["--resource", "unable to open"]);
    expect(&format!("sqlite:{}", path("text")), &["--resource", "not a database"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let url = format!("postgres://me:secret@127.0.0.1:{port}/db");
    expect(&url, &["--resource", "PostgreSQL", "refused"]);
    let run = run(["gc-pause", "--resource", &url, "-a", &server.address().to_string()]);
    assert!(!run.stderr.contains("secret"), "{run:?}");
}

#[test]
fn failures_that_cannot_be_staged_are_usage() {
    let own = "--server /bin/true";
    expect_refusal("failover", 2, &["failover needs --server", "makes them fail"]);
    expect_refusal("restart -a 127.0.0.1:1", 2, &["restart needs --server"]);
    expect_refusal("steady --kill-every 1s", 2, &["--kill-every"]);
    let listening = format!("failover {own} -- --listen 127.0.0.1:7070");
    expect_refusal(&listening, 2, &["--listen", "chooses itself"]);
    let stopped = format!("restart {own} --kill-with kill,stop");
    expect_refusal(&stopped, 2, &["--kill-with", "takes kill and term"]);
    expect_refusal(&format!("failover {own} --kill-with hup"), 2, &["\"hup\"", "term"]);
    expect_refusal(&format!("failover {own} --kill-every 6s"), 2, &["--kill-every", "10s twice"]);
    let late = format!("failover {own} --takeover-after 4500ms");
    expect_refusal(&late, 2, &["--takeover-after", "at most 4s"]);
    let alone = format!("failover {own} --wake-after 3s");
    expect_refusal(&alone, 2, &["--wake-after", "only with --kill-with stop"]);
    for wake_after in ["500ms", "4100ms"] {
        let words = format!("failover {own} --kill-with stop --wake-after {wake_after}");
        expect_refusal(&words, 2, &["--wake-after", "from 1s", "to 4s"]);
    }
    expect_refusal(&format!("failover {own} --standby-clock soon"), 2, &["--standby-clock", "-5s"]);
    expect_refusal(&format!("restart {own} --standby-clock -5s"), 2, &["--standby-clock"]);
    expect_refusal(&format!("restart {own} --clock-step -5s"), 2, &["--clock-step", "-5s@10s"]);
    let after = format!("failover {own} --clock-step -5s@10s");
    expect_refusal(&after, 2, &["--clock-step", "not within --duration 10s"]);
    expect_refusal(&format!("failover {own} -R 5"), 2, &["--rate", "--hold"]);
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    expect_refusal(&format!("steady -a {address}"), 4, &[&address, "refused"]);
    expect_refusal("steady --server /no/such/program", 4, &["/no/such/program", "No such file"]);
    let silent = ["/bin/false", "before it listened (exit status: 1) and said nothing"];
    expect_refusal("steady --server /bin/false", 4, &silent);
}

#[test]
fn a_server_of_another_kind_is_said_so() {
    let http = server_saying(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    expect_refusal(&format!("steady -a {http}"), 4, &["not a version 1 lock server", "0x48"]);
    let newer = server_saying(b"\x13\x10\x09version 2");
    expect_refusal(&format!("steady -a {newer}"), 4, &["not a version 1", "ERROR 0x10"]);
    let mute = server_saying(b"");
    expect_refusal(&format!("steady -a {mute}"), 4, &["not a version 1", "closes"]);
    let strict = server_saying(b"\x13\x18\x06denied");
    expect_refusal(&format!("steady -a {strict}"), 4, &["refuses", "0x18", "denied"]);
}

#[test]
fn a_queue_beyond_the_descriptors_is_refused_and_not_cut() {
    let server = FakeServer::start(Fault::None);
    let command = format!(
        "ulimit -n 150; exec {} handover -c 200 -L 1 -d 1s -a {}",
        env!("CARGO_BIN_EXE_monolock-loadgen"),
        server.address()
    );
    let output = Command::new("sh").args(["-c", &command]).output().expect("a shell");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("RLIMIT_NOFILE") && stderr.contains("ulimit -n"), "{stderr}");
}

#[test]
fn a_missed_expectation_has_its_own_exit_code() {
    let server = FakeServer::start(Fault::None);
    let words = format!(
        "heartbeat -c 4 -l 1s --ramp 10ms --warmup 0 -d 400ms -q -a {} --expect heartbeat.p50<1ns \
         --expect heartbeat.errors<=0 --expect heartbeat.count>=1e9 --expect cutoff.p50<1s",
        server.address()
    );
    let run = run(words.split_whitespace());
    run.expect_exit(3);
    assert!(run.stdout.contains("expected heartbeat.p50<1ns: MISSED, found"), "{run:?}");
    assert!(run.stdout.contains("expected heartbeat.errors<=0: met, found 0.0"), "{run:?}");
    assert!(run.stdout.contains("expected heartbeat.count>=1e9: MISSED, found"), "{run:?}");
    let unrecorded = "expected cutoff.p50<1s: MISSED, nothing was recorded";
    assert!(run.stdout.contains(unrecorded), "{run:?}");
}
