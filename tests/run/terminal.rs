//! Keys, Ctrl-Z and job control in a shell: bash on a terminal of its own, which `script` makes.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::server::{Launch, Server};
use crate::wrapper::as_in_the_foreground;

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const CTRL_Z: &str = "\u{1a}";

/// A person at a shell.
struct Typist {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    seen: usize,
}

impl Typist {
    /// `None`, with a word on stderr, if there is no `script` or no bash.
    fn sit_down() -> Option<Typist> {
        if Command::new("script").arg("--version").output().is_err() {
            writeln!(std::io::stderr(), "SKIPPED: install util-linux").expect("stderr");
            return None;
        }
        let mut command = as_in_the_foreground("script");
        command.args(["--quiet", "--command", "bash --norc --noprofile -i", "/dev/null"]);
        command.env("TERM", "dumb");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = command.spawn().expect("it was there just now");
        let keys = script.stdin.take().expect("a pipe");
        let mut output = script.stdout.take().expect("a pipe");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("a screen").push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        let mut typist = Typist { script, keys, screen, seen: 0 };
        // Shown as it is typed, which is not how it looks as a prompt.
        typist.enter("PS1='prompt'\\>\\ ");
        typist.expect("prompt> ");
        Some(typist)
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until this is shown, behind what was expected before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let mut found = None;
        let screen = Arc::clone(&self.screen);
        let is_shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(text, || {
                let screen = screen.lock().expect("a screen");
                found = screen[self.seen..].find(text).map(|at| self.seen + at + text.len());
                found.is_some()
            });
        }));
        match found {
            Some(seen) if is_shown.is_ok() => self.seen = seen,
            _ => panic!("{text:?} is not shown: {:?}", self.screen.lock().expect("a screen")),
        }
    }

    /// The number up to the next dot.
    #[track_caller]
    fn number(&mut self) -> i32 {
        let begin = self.seen;
        self.expect(".");
        let screen = self.screen.lock().expect("a screen");
        screen[begin..self.seen - 1].parse().expect("a number")
    }

    /// Runs a command under the lock `a`. What it prints must not be in the command line, which is
    /// shown as well.
    fn run(&mut self, server: &Server, options: &str, command: &str) {
        let program = env!("CARGO_BIN_EXE_monolock");
        let address = server.address();
        self.enter(&format!("{program} run -a {address} {options} a -- {command}"));
    }

    fn expect_exit_code(&mut self, code: u8) {
        self.expect("prompt> ");
        self.enter("echo code=$?.");
        self.expect(&format!("code={code}."));
    }
}

impl Drop for Typist {
    fn drop(&mut self) {
        // It may have left already.
        let _ = self.keys.write_all(b"\x03\nkill -9 %1; exit\n");
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn the_command_reads_the_keyboard_and_is_interrupted_by_ctrl_c() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    typist.run(&server, "", "sh -c 'echo rea\"\"dy; read line; echo got=$line.; exec cat'");
    typist.expect("ready");
    typist.enter("hello");
    typist.expect("got=hello.");
    // Once as it is typed, and once by who reads it: the shell is done with starting it.
    typist.enter("more");
    typist.expect("more\r\nmore");
    typist.press(CTRL_C);
    typist.expect_exit_code(130);
    // The shell's own again.
    typist.enter("read line; echo got=$line.");
    typist.enter("again");
    typist.expect("got=again.");
    Client::owner_patiently(server.address(), "a");
}

#[test]
fn ctrl_z_stops_both_and_fg_resumes_them() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    typist.run(&server, "--lease 1h", "sed -u 's/^/got=/'");
    typist.enter("one");
    typist.expect("got=one");
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    for round in ["two", "three"] {
        typist.press(CTRL_Z);
        typist.expect("Stopped");
        typist.expect("prompt> ");
        waiter.expect_queued();
        typist.enter("fg");
        typist.enter(round);
        typist.expect(&format!("got={round}"));
    }
    waiter.expect_queued();
    typist.press(CTRL_D);
    typist.expect_exit_code(0);
    waiter.expect_acquired();
}

#[test]
fn ctrl_z_stops_a_job_in_the_queue_and_fg_resumes_it() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    typist.run(&server, "-v --lease 1h", "sh -c 'echo r\"\"an'");
    typist.expect("waiting in its queue");
    typist.press(CTRL_Z);
    typist.expect("Stopped");
    typist.expect("prompt> ");
    typist.enter("fg");
    holder.close();
    typist.expect("ran");
    typist.expect_exit_code(0);
}

#[test]
fn a_job_that_was_stopped_for_longer_than_its_lease_ends_with_fg() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    typist.run(&server, "--lease 500ms", "sed -u 's/^/got=/'");
    // A shell would not do: one that is stopped while it starts a program does not stop as a whole.
    typist.enter("one");
    typist.expect("got=one");
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    typist.press(CTRL_Z);
    typist.expect("Stopped");
    waiter.expect_acquired();
    typist.enter("fg");
    typist.expect("lost \"a\"");
    typist.expect_exit_code(123);
}

#[test]
fn a_job_in_the_background_goes_on_and_gets_the_terminal_with_fg() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    typist.run(&server, "", "sh -c 'echo rea\"\"dy; read line; echo got=$line.' &");
    typist.expect("ready");
    // It wants to read, and may not: the shell is told that the job is stopped.
    wait_until("the job is stopped", || {
        typist.enter("jobs");
        thread::sleep(Duration::from_millis(50));
        typist.screen.lock().expect("a screen").contains("Stopped")
    });
    typist.enter("fg");
    typist.enter("hello");
    typist.expect("got=hello.");
    typist.expect_exit_code(0);
}

#[test]
fn others_in_a_pipeline_can_still_read_the_terminal() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().start();
    let command = "echo hello | (read word; read line </dev/tty; echo got=$word,$line.)";
    typist.run(&server, "", command);
    typist.enter("keys");
    typist.expect("got=hello,keys.");
    typist.expect("prompt> ");
}

/// As an editor does that is killed.
#[test]
fn a_terminal_is_left_as_it_was_by_a_command_that_is_killed() {
    let Some(mut typist) = Typist::sit_down() else { return };
    let server = Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0"]).start();
    for way in ["kill", "loss"] {
        typist.enter("stty -a | grep -o '[-]*icanon'");
        typist.expect("\nicanon");
        typist.run(
            &server,
            "--kill-after 0s",
            "sh -c 'trap \"\" TERM; stty raw -echo; echo rea\"\"dy=$$.; exec sleep 30'",
        );
        typist.expect("ready=");
        if way == "kill" {
            let command = typist.number();
            let command = rustix::process::Pid::from_raw(command).expect("not zero");
            rustix::process::kill_process(command, rustix::process::Signal::KILL).expect("kill");
        } else {
            let admin = server.admin_address();
            let answer = crate::harness::http::request(
                admin,
                "POST",
                "/api/locks/a/release",
                "Content-Length: 0\r\n",
            );
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        typist.expect("prompt> ");
        typist.enter("stty -a | grep -o '[-]*icanon'");
        typist.expect("\nicanon");
    }
}
