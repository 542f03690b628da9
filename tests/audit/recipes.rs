//! The questions of the manual, asked by the commands that it gives.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::client::Client;
use crate::harness::outside::is_installed;
use crate::harness::patience::LONG_LEASE_MS;
use crate::{end, folder, launch};

/// The commands of the manual, each with the question above it.
fn recipes() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations/audit.md");
    let text = fs::read_to_string(path).expect("the document is there");
    let (_, questions) = text.split_once("## Questions to ask it").expect("the chapter");
    let block = questions.split("```").nth(1).expect("the commands");
    let paragraphs = block.strip_prefix("sh\n").expect("a shell's").split("\n\n");
    let parts = paragraphs.map(|paragraph| paragraph.split_once('\n').expect("a command"));
    parts.map(|(question, command)| (question.to_owned(), command.to_owned())).collect()
}

#[test]
fn the_manuals_questions_are_answered() {
    if !is_installed("jq", "the Debian package jq") {
        return;
    }
    let (folder, path) = folder();
    let server = launch(&path).args(["--shards", "1"]).start();
    let (owner, token) = Client::owner(server.address(), "nightly/import", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "nightly/import", LONG_LEASE_MS);
    let address = owner.local_address().to_string();
    owner.close();
    waiter.expect_acquired();
    let mut silent = Client::connect(server.address());
    silent.acquire("report", 30);
    silent.expect_acquired();
    silent.expect_eof();
    drop(waiter);
    end(server);
    let recipes = recipes();
    let ask = |about: &str| -> String {
        let found = recipes.iter().find(|(question, _)| question.contains(about));
        let (question, command) = found.unwrap_or_else(|| panic!("no question about {about}"));
        // The manual's example becomes this test's token.
        let command = command.replace("1872956391710720", &token.to_string());
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &command]).current_dir(folder.path()).output();
        let output = output.expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{question}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    };
    let held = ask("Who held nightly/import");
    assert_eq!(held.lines().count(), 2, "{held}");
    assert!(held.lines().next().is_some_and(|line| line.contains(&address)), "{held}");
    let silent = ask("went silent");
    assert!(silent.lines().count() == 1 && silent.contains("\treport\t"), "{silent}");
    let waits = ask("longest waits");
    assert_eq!(waits.matches("\"wait_ms\"").count(), 3, "{waits}");
    assert!(waits.find("nightly/import") < waits.find("report"), "{waits}");
    let whose = ask("Whose was this token");
    assert_eq!(whose.matches(&address).count(), 2, "{whose}");
    assert_eq!(ask("Who holds what now").trim(), "", "everything was released");
    let busiest = ask("changed hands most");
    assert!(busiest.starts_with("2\tnightly/import\n1\treport"), "{busiest}");
    assert_eq!(ask("anything missing"), "0\n");
    assert_eq!(recipes.len(), 7, "all of them are asked here");
}
