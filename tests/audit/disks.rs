//! Disks that are full, and that hang.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::harness::bystanders::Bystanders;
use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::outside::say_skipped;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Server;
use crate::{end, expect_undisturbed, hold_and_release, launch, lines, read, wait_for_lines};
use rustix::process::Signal;
use tempfile::TempDir;

/// A mounted file system, for as long as this lives.
struct Disk(TempDir);

impl Disk {
    /// A few kilobytes in memory.
    fn small() -> Option<Disk> {
        Disk::mount(&["-t", "tmpfs", "-o", "size=16k"], Path::new("tmpfs"), "run as root")
    }

    /// One that can be made to hang.
    fn frozen_at_will() -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        File::create(&image).expect("a file").set_len(8 << 20).expect("its length");
        let mut format = Command::new("mkfs.ext4");
        let is_formatted = format.arg("-q").arg(&image).status().is_ok_and(|is| is.success());
        if !is_formatted {
            say_skipped("e2fsprogs");
            return None;
        }
        // Once it is mounted, the image needs no name.
        Disk::mount(&["-o", "loop"], &image, "run as root, with loop devices")
    }

    fn mount(options: &[&str], source: &Path, wanted: &str) -> Option<Disk> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(options).arg(source).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        if !is_mounted {
            say_skipped(&format!("nothing, but {wanted}: it takes a mounted file system"));
        }
        is_mounted.then_some(Disk(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn is_full(&self) -> bool {
        rustix::fs::statvfs(self.0.path()).expect("the disk").f_bavail == 0
    }

    /// From now on whoever writes waits, and can't even be killed.
    fn freeze(&self) -> Frozen<'_> {
        fsfreeze("--freeze", self.0.path());
        Frozen(self)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "unmounting");
    }
}

/// A disk that hangs, for as long as this lives.
struct Frozen<'a>(&'a Disk);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        fsfreeze("--unfreeze", self.0.0.path());
    }
}

fn fsfreeze(what: &str, disk: &Path) {
    let status = Command::new("fsfreeze").arg(what).arg(disk).status();
    assert!(status.is_ok_and(|status| status.success()), "fsfreeze {what}");
}

#[test]
fn a_full_disk_delays_nobody_and_its_cut_line_is_completed() {
    let Some(disk) = Disk::small() else { return };
    let path = disk.path("audit.jsonl");
    let ballast = disk.path("ballast");
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
    let mut seen = valid_lines(&text);
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
        seen += valid_lines(&text);
    }
    assert_eq!(seen, 201, "each event is there once");
    server.wait_for_line("the audit log is written again");
    // Room for what is still to come.
    OpenOptions::new().write(true).truncate(true).open(&path).expect("truncating");
    drop(owner);
    end(server);
}

/// How many whole lines are there, all of which must be valid; behind them one may be cut off.
#[track_caller]
fn valid_lines(text: &str) -> usize {
    lines(&text[..=text.rfind('\n').expect("a line")]).len()
}

#[test]
fn a_disk_that_hangs_delays_nobody_and_is_not_waited_for_without_end() {
    let Some(disk) = Disk::frozen_at_will() else { return };
    let path = disk.path("audit.jsonl");
    let mut server = launch(&path).args(["--ops-listen", "127.0.0.1:0"]).start();
    let bystanders = Bystanders::beside(server.address());
    wait_for_lines(&path, 50);
    let frozen = disk.freeze();
    hold_and_release(&server, 50);
    // For longer than the bystanders' lease.
    thread::sleep(Duration::from_secs(4));
    assert_eq!(http::get(server.ops_address(), "/healthz").status, 200);
    let (mut owner, token) = Client::owner(server.address(), "other", LONG_LEASE_MS);
    owner.expect_held(token);
    owner.close();
    expect_undisturbed(bystanders);
    // While the disk hangs the process can't end, so by then it must have let go of everything.
    server.signal(Signal::TERM);
    let address = server.address();
    wait_until("the port is gone", || std::net::TcpStream::connect(address).is_err());
    let waiting = number_before(" events are not written", &mut server);
    let lost = number_before(" events of the audit log are lost", &mut server);
    assert!(waiting >= 102 && lost == waiting, "{waiting} {lost}");
    drop(frozen);
    assert_eq!(server.wait_for_exit().code(), Some(1));
    assert!(read(&path).len() >= 50, "what was written before is there");
}

/// The number that stands before these words in a line of the server's log.
#[track_caller]
fn number_before(words: &str, server: &mut Server) -> u64 {
    let line = server.wait_for_line(words);
    let (before, _) = line.split_once(words).expect("they are in it");
    let number = before.rsplit(' ').next().expect("a word");
    number.parse().unwrap_or_else(|_| panic!("no number before {words:?}: {line}"))
}
