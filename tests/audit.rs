//! The audit log: what it tells, in which order, and that no file that misbehaves holds up anybody.

mod harness;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use harness::client::Client;
use harness::http;
use harness::outside::say_skipped;
use harness::patience::{LONG_LEASE_MS, wait_until};
use harness::server::{Launch, Server};
use harness::wire::Frame;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

fn launch(path: &Path) -> Launch {
    let path = path.to_str().expect("a path of this test");
    Launch::on_loopback().args(["--audit-log", path])
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    (folder, path)
}

/// All lines, each of which must be a whole one of valid JSON.
#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut off: {text:?}");
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    text.lines().map(parse).collect()
}

#[track_caller]
fn read(path: &Path) -> Vec<Value> {
    lines(&fs::read_to_string(path).expect("the log"))
}

#[track_caller]
fn wait_for_lines(path: &Path, count: usize) -> Vec<Value> {
    let text = || fs::read_to_string(path).unwrap_or_default();
    wait_until("the lines are written", || text().matches('\n').count() >= count);
    read(path)
}

/// A lock that is granted and released so many times.
fn hold_and_release(server: &Server, times: usize) {
    for _ in 0..times {
        let mut owner = Client::connect(server.address());
        owner.acquire("lock", LONG_LEASE_MS);
        // The one before may not be known to have left yet.
        while owner.read_frame() == Frame::Waiting {}
        owner.close();
    }
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().expect("an event")).collect()
}

#[track_caller]
fn end(mut server: Server) -> Vec<String> {
    server.signal(Signal::TERM);
    assert!(server.wait_for_exit().success());
    server.stderr_to_end()
}

#[test]
fn every_change_of_ownership_is_a_line_and_a_release_precedes_the_next_grant() {
    let (_folder, path) = folder();
    let server = launch(&path).args(["--admin-listen", "127.0.0.1:0"]).start();
    let (owner, first) = Client::owner(server.address(), "a\"\nb", LONG_LEASE_MS);
    let address = owner.local_address().to_string();
    let mut next = Client::waiter(server.address(), "a\"\nb", LONG_LEASE_MS);
    let kicked = Client::waiter(server.address(), "a\"\nb", LONG_LEASE_MS);
    owner.close();
    let second = next.expect_acquired();
    let admin = server.admin_address();
    let path_of_kick = format!("/api/locks/a%22%0Ab/waiters/{}", kicked.local_address());
    assert_eq!(http::request(admin, "DELETE", &path_of_kick, "").status, 200);
    assert_eq!(http::request(admin, "POST", "/api/locks/a%22%0Ab/release", "").status, 200);
    drop((next, kicked));
    end(server);
    let lines = read(&path);
    assert_eq!(
        events(&lines),
        ["granted", "released", "granted", "kick_waiter", "force_release", "released"]
    );
    for line in &lines {
        assert_eq!((&line["lock"], &line["identity"]), (&"a\"\nb".into(), &"".into()));
        assert!(line["time"].as_str().expect("a time").ends_with('Z'));
    }
    assert_eq!((&lines[0]["token"], &lines[0]["wait_ms"]), (&first.into(), &0.into()));
    assert_eq!(lines[0]["remote_addr"], address);
    assert_eq!((&lines[1]["token"], &lines[1]["reason"]), (&first.into(), &"graceful".into()));
    assert_eq!((&lines[4]["token"], &lines[5]["token"]), (&second.into(), &second.into()));
    assert_eq!(lines[5]["reason"], "force");
}

#[test]
fn all_that_is_queued_is_written_before_a_clean_end() {
    let (_folder, path) = folder();
    let server = launch(&path).start();
    let owners: Vec<_> = (0..300)
        .map(|number| Client::owner(server.address(), &format!("lock {number}"), LONG_LEASE_MS))
        .collect();
    server.signal(Signal::TERM);
    drop(owners);
    let mut server = server;
    assert!(server.wait_for_exit().success());
    let lines = read(&path);
    let count = |event: &str| events(&lines).iter().filter(|other| **other == event).count();
    assert_eq!((count("granted"), count("released")), (300, 300));
}

#[test]
fn stdout_is_a_clean_stream() {
    let (_folder, path) = folder();
    let server = Launch::on_loopback()
        .args(["--audit-log", "-"])
        .after_shell(&format!("exec >{}", path.display()))
        .start();
    hold_and_release(&server, 2);
    end(server);
    assert_eq!(events(&read(&path)), ["granted", "released", "granted", "released"]);
}

#[test]
fn a_closed_stdout_ends_nothing() {
    // Closed from the start, and one that takes nothing.
    for prologue in ["exec >&-", "exec >/dev/full"] {
        let mut server =
            Launch::on_loopback().args(["--audit-log", "-"]).after_shell(prologue).start();
        hold_and_release(&server, 3);
        let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
        owner.expect_held(token);
        server.expect_running();
    }
}

#[test]
fn a_path_that_can_not_be_written_is_one_line_at_the_start() {
    let (folder, path) = folder();
    for wrong in [folder.path().to_owned(), path.join("below a file that is not there")] {
        let finished = launch(&wrong).run();
        let line = finished.expect_one_line(1);
        assert!(line.contains(wrong.to_str().expect("a path")), "{line}");
        assert!(line.contains("--audit-log"), "{line}");
    }
}

#[test]
fn a_fragment_that_a_crash_left_is_closed_first() {
    let (_folder, path) = folder();
    fs::write(&path, "{\"event\":\"whole\"}\n{\"event\":\"fra").expect("writing");
    let server = launch(&path).start();
    hold_and_release(&server, 1);
    end(server);
    let text = fs::read_to_string(&path).expect("the log");
    let rest = text.strip_prefix("{\"event\":\"whole\"}\n{\"event\":\"fra\n").expect("closed");
    assert_eq!(events(&lines(rest)), ["granted", "released"]);
}

#[test]
fn sighup_opens_the_file_again_after_it_was_moved_away() {
    let (folder, path) = folder();
    let server = launch(&path).args(["--ops-listen", "127.0.0.1:0"]).start();
    hold_and_release(&server, 1);
    wait_for_lines(&path, 2);
    let moved = folder.path().join("audit.1");
    fs::rename(&path, &moved).expect("moving the log");
    server.signal(Signal::HUP);
    wait_until("the file is there again", || path.exists());
    hold_and_release(&server, 1);
    assert_eq!(wait_for_lines(&path, 2).len(), 2);
    assert_eq!(read(&moved).len(), 2);

    // What can't be opened leaves everything as it was.
    fs::rename(&path, &moved).expect("moving the log");
    fs::create_dir(&path).expect("something in its place");
    server.signal(Signal::HUP);
    let reload = "monolock_last_reload_successful 0\n";
    wait_until("the failure is known", || {
        http::get(server.ops_address(), "/metrics").body.contains(reload)
    });
    hold_and_release(&server, 1);
    assert_eq!(wait_for_lines(&moved, 4).len(), 4);
    end(server);
}

#[test]
fn a_copy_and_truncate_leaves_no_hole() {
    let (_folder, path) = folder();
    let server = launch(&path).start();
    hold_and_release(&server, 5);
    wait_for_lines(&path, 10);
    OpenOptions::new().write(true).truncate(true).open(&path).expect("truncating");
    hold_and_release(&server, 1);
    assert_eq!(wait_for_lines(&path, 2).len(), 2);
    assert!(!fs::read(&path).expect("the log").contains(&0));
    end(server);
}

/// A small file system in memory, for as long as this lives.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn is_full(&self) -> bool {
        rustix::fs::statvfs(self.0.path()).expect("the disk").f_bavail == 0
    }

    fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"])
            .arg(folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            say_skipped("nothing, but run as root: it takes a mounted tmpfs");
        }
        mounted.then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "unmounting");
    }
}

#[test]
fn a_full_disk_delays_nobody_and_its_cut_line_is_completed() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path().join("audit.jsonl");
    let ballast = disk.0.path().join("ballast");
    fs::write(&ballast, vec![0; 8 << 10]).expect("writing");
    let mut server = launch(&path).start();
    hold_and_release(&server, 100);
    server.wait_for_line("the audit log can't be written");
    let (mut owner, token) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    owner.expect_held(token);
    // The cut line is completed, and the next one is cut where there is no room again.
    let before = fs::metadata(&path).expect("the log").len();
    fs::remove_file(&ballast).expect("making room");
    wait_until("the room is used", || {
        disk.is_full() && fs::metadata(&path).is_ok_and(|log| log.len() > before)
    });
    let text = fs::read_to_string(&path).expect("the log");
    let mut seen = lines(&text[..=text.rfind('\n').expect("a line")]).len();
    assert!(seen > 50, "{seen}");
    // Whoever truncates a full disk's log in the middle of a line gets that line as a whole.
    while seen < 201 {
        OpenOptions::new().write(true).truncate(true).open(&path).expect("truncating");
        // Truncated while it is written to, a file can begin with half a line.
        wait_until("there is no room again, or nothing left to write", || {
            let written = fs::read_to_string(&path).expect("the log").lines().count();
            written > 0 && disk.is_full() || seen + written >= 201
        });
        let text = fs::read_to_string(&path).expect("the log");
        seen += lines(&text[..=text.rfind('\n').expect("a line")]).len();
    }
    assert_eq!(seen, 201, "each event is there once");
    server.wait_for_line("the audit log is written again");
    // Room for what is still to come.
    OpenOptions::new().write(true).truncate(true).open(&path).expect("truncating");
    drop(owner);
    end(server);
}

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
    hold_and_release(&server, 5);
    let (mut owner, token) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    owner.expect_held(token);
    // Who opens it later gets it all.
    let mut reader = BufReader::new(File::open(&path).expect("opening the pipe"));
    let mut text = String::new();
    for _ in 0..11 {
        reader.read_line(&mut text).expect("a line");
    }
    let lines = lines(&text);
    // Two locks may belong to two event loops, and only the events of one have an order.
    let of_other = lines.iter().filter(|line| line["lock"] == "other").count();
    assert_eq!((lines.len(), of_other), (11, 1));
    drop(owner);
    let mut server = server;
    server.signal(Signal::TERM);
    reader.read_line(&mut text).expect("the last line");
    assert!(server.wait_for_exit().success());
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
