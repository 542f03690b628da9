//! What the log tells, and in which order.

use crate::harness::client::Client;
use crate::harness::http;
use crate::harness::patience::LONG_LEASE_MS;
use rustix::process::Signal;

use crate::{end, events, folder, launch, read};

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
