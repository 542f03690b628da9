//! A loss, a wrapper that is killed or stopped, `--max-hold`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::Launch;
use crate::wrapper::{Wrapper, finish, shell_under_lock, wait_until_gone};

#[test]
fn a_loss_ends_the_command_and_is_123() {
    let server = Launch::on_loopback().start();
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let options = ["--kill-after", "1h"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    wrapper.line();
    drop(server);
    assert_eq!(wrapper.line(), "told");
    let ran = wrapper.finish();
    // The shell may have said something of its own about its `sleep`.
    let said = &ran.expect_code(123).stderr;
    let ours: Vec<&str> = said.lines().filter(|line| line.starts_with("monolock: ")).collect();
    assert!(matches!(ours[..], [line] if line.contains("lost \"a\"")), "{said}");
}

#[test]
fn what_ignores_the_loss_is_killed_with_its_children() {
    let server = Launch::on_loopback().start();
    let script = "trap '' USR1; sleep 30 & echo $!; echo $$; wait; sleep 30";
    let options = ["-q", "--lease", "1s", "--signal", "USR1", "--lost-exit-code", "9"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    let (grandchild, command) = (wrapper.pid_line(), wrapper.pid_line());
    drop(server);
    assert_eq!(wrapper.finish().expect_code(9).stderr, "");
    wait_until_gone(command);
    wait_until_gone(grandchild);
}

/// A command that obeys leaves children that don't.
#[test]
fn what_the_command_leaves_behind_is_killed_after_a_loss() {
    let server = Launch::on_loopback().start();
    let script = "(trap '' TERM; echo ready; exec sleep 30) & echo $!; wait";
    let options = ["--kill-after", "1h"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    let lines = [wrapper.line(), wrapper.line()];
    let pid = lines.iter().find_map(|line| line.parse().ok()).expect("a number");
    drop(server);
    wrapper.finish().expect_code(123);
    wait_until_gone(rustix::process::Pid::from_raw(pid).expect("not zero"));
}

/// And after an ordinary end it may go on: it is the command's own business.
#[test]
fn what_the_command_leaves_behind_goes_on_after_an_ordinary_end() {
    let server = Launch::on_loopback().start();
    let script = "sleep 30 >/dev/null 2>&1 & echo $!";
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), [], script));
    let left = wrapper.pid_line();
    wrapper.finish().expect_code(0);
    rustix::process::kill_process(left, Signal::TERM).expect("it is still there");
}

#[test]
fn a_killed_wrapper_takes_the_command_with_it() {
    let server = Launch::on_loopback().start();
    // What is ignored stays ignored over an exec.
    let script = "trap '' TERM INT HUP; echo $$; exec sleep 30";
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), [], script));
    let command = wrapper.pid_line();
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    wrapper.signal(Signal::KILL);
    wait_until_gone(command);
    waiter.expect_acquired();
}

/// The programs of a script are the command's children, which the kernel knows nothing of.
#[test]
fn a_killed_wrapper_takes_the_commands_children_with_it() {
    let server = Launch::on_loopback().start();
    let script = "trap '' TERM INT HUP; sleep 30 & echo $!; echo $$; sleep 30; echo no";
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), [], script));
    let (grandchild, command) = (wrapper.pid_line(), wrapper.pid_line());
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let guard = wait_for_guard(&wrapper);
    // A supervisor that ends everything asks first.
    rustix::process::kill_process(guard, Signal::TERM).expect("it is there");
    wrapper.signal(Signal::KILL);
    wait_until_gone(command);
    wait_until_gone(grandchild);
    wait_until_gone(guard);
    waiter.expect_acquired();
}

/// Its other child, which waits for its end.
fn wait_for_guard(wrapper: &Wrapper) -> Pid {
    let mut found = None;
    wait_until("there is a guard", || {
        let pid = wrapper.pid().as_raw_nonzero();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).expect("a running process");
        found = children.split_whitespace().find_map(|child| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).ok()?;
            let is_ready =
                procfs::threads_and_handling(Pid::from_raw(child.parse().ok()?)?, Signal::TERM);
            (line == b"monolock\0guard\0" && is_ready.1).then(|| child.parse().expect("a number"))
        });
        found.is_some()
    });
    Pid::from_raw(found.expect("just found")).expect("not zero")
}

#[test]
fn a_wrapper_that_slept_through_its_lease_ends_the_command_when_it_wakes() {
    let server = Launch::on_loopback().start();
    let script = "trap '' TERM; echo $$; sleep 30; sleep 30";
    let options = ["--lease", "500ms"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    let command = wrapper.pid_line();
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    wrapper.signal(Signal::STOP);
    wait_until("it is stopped", || procfs::is_stopped(wrapper.pid()));
    waiter.expect_acquired();
    wrapper.signal(Signal::CONT);
    wait_until_gone(command);
    wrapper.finish().expect_code(123);
}

#[test]
fn a_command_is_ended_when_it_has_held_for_long_enough() {
    let server = Launch::on_loopback().start();
    let options = ["--max-hold", "50ms", "--kill-after", "0"];
    let ran = finish(shell_under_lock(server.address(), options, "trap '' TERM; sleep 30"));
    assert!(ran.expect_code(123).stderr.contains("--max-hold"), "{ran:?}");
    Client::owner_patiently(server.address(), "a");
    // Who is done before has nothing to do with it.
    finish(shell_under_lock(server.address(), ["--max-hold", "1h"], "exit 3")).expect_code(3);
}

#[test]
fn an_administrator_ends_the_command() {
    let server = Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0"]).start();
    let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let options = ["--kill-after", "1h"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    assert_eq!(wrapper.line(), "ready");
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    let mut release = Command::new(env!("CARGO_BIN_EXE_monolock"));
    let admin = server.admin_address().to_string();
    let released = release.args(["release", "a", "--admin-address", &admin]).output();
    assert!(released.expect("the binary").status.success());
    waiter.expect_acquired();
    assert_eq!(wrapper.line(), "told");
    let ran = wrapper.finish();
    assert!(ran.expect_code(123).stderr.contains("an administrator ended the claim"), "{ran:?}");
}

/// Something that is no lock server, before the grant and after it.
#[test]
fn a_server_that_answers_garbage_is_left() {
    for (answer, code) in [
        (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], 125),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 125),
        (b"", 125),
    ] {
        let address = answering(answer);
        let ran = finish(shell_under_lock(address, ["--no-retry"], "echo ran"));
        assert_eq!(ran.expect_code(code).stdout, "");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
    // Not tried again: it would only come again.
    let ran = finish(shell_under_lock(answering(b"220 mail ESMTP\r\n"), [], "echo ran"));
    assert!(ran.expect_code(125).stderr.contains("does not keep to the protocol"), "{ran:?}");
    let granted_first = b"\x12\0\0\0\0\0\0\0\x07";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let options = ["--lease", "1s", "--kill-after", "1h"];
    let mut wrapper = Wrapper::start(shell_under_lock(
        address,
        options,
        "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done",
    ));
    let (mut server, _) = listener.accept().expect("a client");
    server.write_all(granted_first).expect("it reads");
    assert_eq!(wrapper.line(), "ready");
    server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it reads");
    let ran = wrapper.finish();
    assert!(ran.expect_code(123).stderr.contains("does not keep to the protocol"), "{ran:?}");
}

/// Where every connection gets this, and is closed.
fn answering(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepting");
            // The ACQUIRE first, or the kernel would break the connection off.
            let _ = stream.read(&mut [0; 64]);
            // It may have left.
            let _ = stream.write_all(answer);
        }
    });
    address
}
