//! `monolock locks`, `show`, `release`, `kick` and `info` as processes: what they print where, and
//! what the exit code says.
//!
//! | file | topic |
//! |---|---|
//! | `rows.rs` | what comes out in a pipe, and as JSON |
//! | `steering.rs` | taking a lock away, and a waiter out of a queue |
//! | `screens.rs` | tables, on a terminal that `script` makes |
//! | `strangers.rs` | no admin API on that address, or one that fails in the middle |
//! | `crowds.rs` | more locks than a process should hold |

mod harness;

#[path = "admin_commands/crowds.rs"]
mod crowds;
#[path = "admin_commands/fake_api.rs"]
mod fake_api;
#[path = "admin_commands/rows.rs"]
mod rows;
#[path = "admin_commands/screens.rs"]
mod screens;
#[path = "admin_commands/steering.rs"]
mod steering;
#[path = "admin_commands/strangers.rs"]
mod strangers;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use harness::server::{Launch, Server};

/// The server with its admin API on a free port, and two event loops.
fn start() -> Server {
    Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0", "--shards", "2"]).start()
}

/// The program with these words, asking on this address.
fn monolock(api: SocketAddr, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock"));
    // What the developer's own shell sets must not decide a test.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(name);
        }
    }
    command.args(words).env("MONOLOCK_ADMIN_ADDRESS", api.to_string()).stdin(Stdio::null());
    command
}

/// What a command has printed, and how it ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }

    /// What it has printed, if it has ended well and said nothing.
    #[track_caller]
    fn expect_done(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The one line on stderr, if it has ended with this code.
    #[track_caller]
    fn expect_failure(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let line = self.stderr.strip_prefix("monolock: ").and_then(|rest| rest.strip_suffix('\n'));
        match line {
            Some(line) if !line.contains('\n') => line.to_owned(),
            _ => panic!("not one line: {self:?}"),
        }
    }
}

#[track_caller]
fn ask(api: SocketAddr, words: &[&str]) -> Ended {
    Ended::of(monolock(api, words).output().expect("the binary"))
}

/// The fields of each line.
fn fields(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split('\t').collect()).collect()
}
