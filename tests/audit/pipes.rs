//! Pipes that nobody reads.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::harness::bystanders::Bystanders;
use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Launch;
use crate::{expect_undisturbed, folder, hold_and_release, launch, lines};
use rustix::process::Signal;
use serde_json::Value;

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
}

fn open_for_reading(path: &Path) -> File {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(nonblocking).open(path).expect("opening a pipe")
}

#[test]
fn a_pipe_that_nobody_reads_holds_up_neither_the_start_nor_anybody() {
    let (_folder, path) = folder();
    fifo(&path);
    let server = launch(&path).start();
    let bystanders = Bystanders::beside(server.address());
    hold_and_release(&server, 5);
    let (mut owner, token) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    owner.expect_held(token);
    expect_undisturbed(bystanders);
    // Who opens it later gets it all. Two locks may belong to two event loops, and only the events
    // of one have an order.
    let mut reader = BufReader::new(File::open(&path).expect("opening the pipe"));
    let mut text = String::new();
    let count = |text: &str, lock| lines(text).iter().filter(|line| line["lock"] == lock).count();
    while (count(&text, "lock"), count(&text, "other")) != (10, 1) {
        assert!(reader.read_line(&mut text).expect("a line") > 0);
    }
    drop(owner);
    let mut server = server;
    server.signal(Signal::TERM);
    reader.read_to_string(&mut text).expect("the rest");
    assert_eq!((count(&text, "lock"), count(&text, "other")), (10, 2));
    assert!(server.wait_for_exit().success());
}

#[test]
fn who_reads_a_pipe_next_gets_whole_lines() {
    let (_folder, path) = folder();
    fifo(&path);
    let reader = open_for_reading(&path);
    let server = launch(&path).start();
    hold_and_release(&server, 2);
    let mut reader = BufReader::new(reader);
    let mut text = String::new();
    wait_until("all is read", || {
        // There may be nothing yet.
        let _ = reader.read_line(&mut text);
        text.matches('\n').count() == 4
    });
    drop(reader);
    hold_and_release(&server, 3);
    let mut reader = BufReader::new(File::open(&path).expect("opening the pipe"));
    for _ in 0..6 {
        reader.read_line(&mut text).expect("a line");
    }
    assert_eq!(lines(&text).len(), 10);
}

#[test]
fn a_stdout_that_nobody_reads_delays_nobody() {
    let (_folder, path) = folder();
    fifo(&path);
    // It is given a reader that does not read, or has one that leaves.
    for (prologue, is_told) in [("3<>$f 4<$f >$f 3<&-", false), ("3<>$f >$f 3<&-", true)] {
        let prologue = format!("f={}; exec {prologue}", path.display());
        let mut server =
            Launch::on_loopback().args(["--audit-log", "-"]).after_shell(&prologue).start();
        let bystanders = Bystanders::beside(server.address());
        // More than there is room for in a pipe.
        hold_and_release(&server, 500);
        if is_told {
            server.wait_for_line("the audit log can't be written");
        }
        expect_undisturbed(bystanders);
        server.expect_running();
    }
}

#[test]
fn a_log_that_hangs_at_the_end_is_waited_for_and_its_loss_is_told() {
    let (_folder, path) = folder();
    fifo(&path);
    let mut reader = open_for_reading(&path);
    let mut server = launch(&path).start();
    hold_and_release(&server, 400);
    server.signal(Signal::TERM);
    let start = Instant::now();
    let address = server.address();
    wait_until("the port is gone", || std::net::TcpStream::connect(address).is_err());
    assert_eq!(server.wait_for_exit().code(), Some(1));
    assert!((5..10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let said = server.stderr_to_end();
    let loss = said.iter().find(|line| line.contains("are lost")).expect("the loss");
    let words: Vec<&str> = loss.split_whitespace().collect();
    let lost: usize = words.iter().find_map(|word| word.parse().ok()).expect("a number");
    let mut written = vec![0; 1 << 20];
    let len = reader.read(&mut written).expect("what is in the pipe");
    let whole = written[..len].iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(whole + lost, 800, "{loss}");
}

#[test]
fn what_there_is_no_room_for_is_counted_and_its_gap_marked() {
    const GRANTS: usize = 40_000;
    let (_folder, path) = folder();
    fifo(&path);
    let server = launch(&path).args(["--ops-listen", "127.0.0.1:0", "--shards", "1"]).start();
    hold_and_release(&server, GRANTS);
    let dropped = || {
        let metrics = http::get(server.ops_address(), "/metrics").body;
        let line = metrics.lines().find_map(|line| {
            line.strip_prefix("monolock_audit_dropped_total ")?.parse::<usize>().ok()
        });
        line.expect("the metric")
    };
    wait_until("events are dropped", || dropped() > 0);
    let mut reader = BufReader::new(File::open(&path).expect("opening the pipe"));
    let (mut told, mut gaps) = (0, 0);
    let mut line = String::new();
    while told + gaps < 2 * GRANTS {
        line.clear();
        assert!(reader.read_line(&mut line).expect("a line") > 0);
        let value: Value = serde_json::from_str(&line).expect("valid JSON");
        match value["event"].as_str().expect("an event") {
            "dropped" => {
                let count = value["count"].as_u64().expect("a count");
                gaps += usize::try_from(count).expect("few");
            }
            _ => told += 1,
        }
    }
    assert_eq!((told + gaps, gaps), (2 * GRANTS, dropped()));
}
