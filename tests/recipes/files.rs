//! Files, in a directory that several processes could have open.

use std::fs;
use std::path::PathBuf;

use monolock_client::{Token, Written};

use crate::{Resource, check_at_once, check_in_turn, tokens};

#[path = "../../examples/recipes/files.rs"]
mod recipe;

struct Guarded(PathBuf);

impl Resource for Guarded {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        let written = recipe::change_files(&self.0.join("token"), token, || {
            // In two steps, between which nobody else may come.
            fs::write(self.0.join("first"), text)?;
            fs::write(self.0.join("second"), text)
        });
        written.expect("a write")
    }

    fn content(&mut self) -> String {
        let [first, second] =
            ["first", "second"].map(|name| fs::read_to_string(self.0.join(name)).expect("a file"));
        assert_eq!(first, second);
        first
    }
}

#[test]
fn an_older_token_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    check_in_turn(&mut Guarded(directory.path().to_owned()));
    let directory = tempfile::tempdir().expect("a directory");
    check_at_once(|| Guarded(directory.path().to_owned()));
}

#[test]
fn a_token_file_that_is_none_is_an_error() {
    let [token] = tokens();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    fs::write(&path, "by hand").expect("a file");
    recipe::change_files(&path, token, || Ok(())).expect_err("it is no token");
}

#[test]
fn the_newest_version_is_the_newest_holders() {
    let [first, second, third] = tokens();
    let directory = tempfile::tempdir().expect("a directory");
    let write = |token, text: &str| {
        recipe::write_version(directory.path(), token, text.as_bytes()).expect("a write");
    };
    let newest = || {
        let path = recipe::newest_version(directory.path()).expect("a directory");
        path.map(|path| fs::read_to_string(path).expect("a version"))
    };
    assert_eq!(newest(), None);
    write(first, "first");
    write(second, "second");
    write(first, "asleep");
    assert_eq!(newest().as_deref(), Some("second"));
    write(second, "second, again");
    assert_eq!(newest().as_deref(), Some("second, again"));
    // What a crash has left is no version.
    fs::write(directory.path().join(format!("{:020}.unfinished", third.get())), "half")
        .expect("it");
    assert_eq!(newest().as_deref(), Some("second, again"));
}
