//! The log's file from the start to the end.

use std::fs::{self, OpenOptions};

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::Launch;
use crate::{end, events, folder, hold_and_release, launch, lines, read, wait_for_lines};
use rustix::process::Signal;

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
        let (mut owner, token) = Client::owner(server.address(), "another lock", LONG_LEASE_MS);
        owner.expect_held(token);
        server.expect_running();
    }
}
