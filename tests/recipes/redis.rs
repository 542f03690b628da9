//! A Redis server of the test's own, spoken to by `redis-cli`, as a shell script would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monolock_client::{Token, Written};

use crate::harness::outside::{self, Killed};
use crate::harness::patience::wait_until;
use crate::{Resource, check_at_once, check_in_turn};

const SCRIPT: &str = include_str!("../../examples/recipes/write.lua");

struct Hash(PathBuf);

/// What the server answers to this command.
fn ask(socket: &Path, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.arg("-s").arg(socket).arg("--raw").args(words).stdin(Stdio::null());
    let output = command.output().expect("redis-cli comes with redis-server");
    String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
}

impl Resource for Hash {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        match ask(&self.0, &["EVAL", SCRIPT, "1", "report", &token.to_string(), text]).as_str() {
            "1" => Written::Done(()),
            "0" => Written::Refused,
            other => panic!("{other}"),
        }
    }

    fn content(&mut self) -> String {
        ask(&self.0, &["HGET", "report", "body"])
    }
}

#[test]
fn an_older_token_changes_nothing() {
    if !outside::is_installed("redis-server", "redis-server") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let _server = Killed(command.spawn().expect("it was there just now"));
    wait_until("Redis answers", || ask(&socket, &["PING"]) == "PONG");
    check_in_turn(&mut Hash(socket.clone()));
    ask(&socket, &["DEL", "report"]);
    check_at_once(|| Hash(socket.clone()));
}
