//! Clients that are stopped for longer than their lease, and clients that are killed.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use monolock_client::{Client as LockClient, Held};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::Launch;

const ADDRESS: &str = "TEST_ADDRESS_OF_SERVER";
const LEASE_MS: u64 = 1_000;

/// Not a test but the other process: holds a lock, and for each line that it reads says whether it
/// still has a token.
#[test]
fn holder_process() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let client = LockClient::new(&address).expect("an address");
    let lock = client.lock("a").lease(Duration::from_millis(LEASE_MS));
    let ran = lock.run_blocking(|held: Held| {
        say(&format!("held with {:?}", held.token()));
        for _ in std::io::stdin().lines() {
            say(&format!("now {:?}", held.token()));
        }
    });
    say(&format!("ended {ran:?}"));
}

fn say(line: &str) {
    // Past the test runner, which keeps what tests print.
    let mut stdout = std::io::stdout();
    writeln!(stdout, "\nholder: {line}").and_then(|()| stdout.flush()).expect("stdout");
}

struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(server: SocketAddr) -> Holder {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "processes::holder_process", "--nocapture", "--test-threads=1"]);
        command.env(ADDRESS, server.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starting this program again");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut holder = Holder { child, input, output };
        let held = holder.line();
        assert!(held.starts_with("held with Ok("), "{held}");
        holder
    }

    /// The next thing that it says.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("a pipe"), 0, "it has ended");
            if let Some(said) = line.strip_prefix("holder: ") {
                return said.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self) -> String {
        self.input.write_all(b"?\n").expect("it reads");
        self.line()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signalling a child");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_that_slept_through_its_lease_knows_it_before_its_next_write() {
    let server = Launch::on_loopback().start();
    let mut holder = Holder::start(server.address());
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    holder.signal(Signal::STOP);
    wait_until("all threads of the holder are stopped", || procfs::is_stopped(holder.pid()));
    // What it is to be asked is there when it wakes up: its very first step is to want a token.
    holder.input.write_all(b"?\n").expect("a pipe has room");
    waiter.expect_acquired();
    holder.signal(Signal::CONT);
    let first = holder.line();
    assert!(first.starts_with("now Err("), "{first}");
    assert!(holder.ask().starts_with("now Err("), "for ever");
}

#[test]
fn a_client_that_was_stopped_for_less_than_its_lease_goes_on() {
    let server = Launch::on_loopback().start();
    let mut holder = Holder::start(server.address());
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    for _ in 0..2 {
        holder.signal(Signal::STOP);
        waiter.expect_silence(Duration::from_millis(LEASE_MS / 5));
        holder.signal(Signal::CONT);
        let said = holder.ask();
        assert!(said.starts_with("now Ok("), "{said}");
    }
}

#[test]
fn the_lock_of_a_killed_client_is_free_at_once() {
    let server = Launch::on_loopback().start();
    let holder = Holder::start(server.address());
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    holder.signal(Signal::KILL);
    waiter.expect_acquired();
}
