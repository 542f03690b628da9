//! The queue, and a server that is not there.

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::own_port::own_address;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;
use crate::wrapper::{Wrapper, finish, shell_under_lock};

#[test]
fn a_taken_lock_is_124_for_who_does_not_wait() {
    let server = Launch::on_loopback().start();
    let (_holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    for (options, code) in [
        (&["-n"][..], 124),
        (&["--nonblock", "-E", "9"], 9),
        (&["--wait", "50ms"], 124),
        (&["-w", "0", "--conflict-exit-code", "0"], 0),
    ] {
        let ran = finish(shell_under_lock(server.address(), options.iter().copied(), "echo ran"));
        assert_eq!(ran.expect_code(code).stdout, "", "{options:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{options:?}: {}", ran.stderr);
    }
    let quiet = finish(shell_under_lock(server.address(), ["-q", "-n"], "echo ran"));
    assert_eq!(quiet.expect_code(124).stderr, "");
}

#[test]
fn a_signal_leaves_the_queue_at_once() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        // A server each: what is closed at the end of a turn may be released after the next begins.
        let server = Launch::on_loopback().start();
        let (holder, _) = Client::owner(server.address(), "a", LONG_LEASE_MS);
        let mut queued = Wrapper::start(shell_under_lock(server.address(), ["-v"], "echo ran"));
        let said = queued.stderr_line();
        assert!(said.contains("held by somebody else"), "{said}");
        // Says nothing to who is in the queue.
        queued.signal(Signal::USR1);
        queued.signal(signal);
        let ran = queued.finish();
        assert_eq!(ran.expect_code(code).stdout, "");
        let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
        holder.close();
        waiter.expect_acquired();
    }
}

#[test]
fn a_server_that_is_not_there_is_waited_for_unless_told_otherwise() {
    let address = (own_address(252), 7070).into();
    for option in ["--no-retry", "-n"] {
        let failed = finish(shell_under_lock(address, [option], "echo ran"));
        let stderr = &failed.expect_code(125).stderr;
        let is_said = stderr.contains(&address.to_string()) && stderr.lines().count() == 1;
        assert!(is_said, "{option}: {stderr}");
    }

    let mut waiting = Wrapper::start(shell_under_lock(address, [], "echo ran"));
    let said = waiting.stderr_line();
    assert!(said.contains("trying again"), "{said}");
    let _server = Launch::on(&address).start();
    assert_eq!(waiting.line(), "ran");
    let ran = waiting.finish();
    assert_eq!(ran.expect_code(0).stderr, "", "said once");
}

#[test]
fn a_refusal_is_125() {
    let server = Launch::on_loopback().args(["--max-lease", "1s"]).start();
    let ran = finish(shell_under_lock(server.address(), ["--lease", "5s"], "echo ran"));
    assert!(ran.expect_code(125).stderr.contains("0x19"), "{ran:?}");
}
