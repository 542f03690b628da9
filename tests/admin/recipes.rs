//! The commands of the manual.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::client::Client;
use crate::harness::outside::is_installed;
use crate::harness::patience::LONG_LEASE_MS;
use crate::launch;

#[test]
fn the_manuals_commands_work() {
    if !is_installed("curl", "the Debian package curl")
        || !is_installed("jq", "the Debian package jq")
    {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations/admin.md");
    let manual = fs::read_to_string(path).expect("the document is there");
    let server = launch().start();
    let (_owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let [_next, last] =
        [(); 2].map(|()| Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS));
    let mut commands = 0;
    for line in manual.lines().filter(|line| line.starts_with("curl ")) {
        // The manual's examples become what is there.
        let command = line
            .replace("localhost:7071", &server.admin_address().to_string())
            .replace("1872956384870401", &token.to_string())
            .replace("10.0.0.6:41230", &last.local_address().to_string());
        let output = Command::new("sh").args(["-c", &command]).output().expect("a shell");
        let [said, answer] =
            [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(output.status.success() && said.is_empty(), "{line}: {said}");
        assert!(!answer.is_empty() && !answer.contains("\"error\""), "{line}: {answer}");
        commands += 1;
    }
    assert_eq!(commands, 8);
}
