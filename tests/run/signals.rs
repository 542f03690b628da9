//! What is passed on, and to whom.

use rustix::process::Signal;

use crate::harness::client::Client;
use crate::harness::patience::{LONG_LEASE_MS, wait_until};
use crate::harness::procfs;
use crate::harness::server::Launch;
use crate::wrapper::{Wrapper, shell_under_lock};

#[test]
fn signals_reach_the_command() {
    let server = Launch::on_loopback().start();
    let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"];
    let traps: String = names.map(|name| format!("trap 'echo {name}' {name}; ")).concat();
    // Children of a shell in the background are interrupted by no key, and reading is interrupted.
    let script = format!("{traps} echo ready; while :; do sleep 0.05; done");
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), [], &script));
    assert_eq!(wrapper.line(), "ready");
    let signals =
        [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for (signal, name) in signals.into_iter().zip(names) {
        wrapper.signal(signal);
        assert_eq!(wrapper.line(), name);
    }
}

#[test]
fn the_lock_is_kept_while_the_command_takes_its_time_to_end() {
    let server = Launch::on_loopback().start();
    let script = "trap 'echo stopping; read line; exit 5' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    let options = ["--lease", "500ms"];
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), options, script));
    wrapper.line();
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    wrapper.signal(Signal::TERM);
    assert_eq!(wrapper.line(), "stopping");
    // Longer than the lease.
    waiter.expect_silence(std::time::Duration::from_millis(700));
    wrapper.type_line("end");
    waiter.expect_acquired();
    wrapper.finish().expect_code(5);
}

#[test]
fn a_signal_reaches_the_commands_children() {
    let server = Launch::on_loopback().start();
    let script = "sleep 30 & echo $!; wait";
    let mut wrapper = Wrapper::start(shell_under_lock(server.address(), [], script));
    let grandchild = wrapper.pid_line();
    wrapper.signal(Signal::TERM);
    crate::wrapper::wait_until_gone(grandchild);
    wrapper.finish().expect_code(143);
}

#[test]
fn what_nohup_ignores_is_not_passed_on() {
    let server = Launch::on_loopback().start();
    let run = shell_under_lock(server.address(), [], "echo ready; read line");
    let mut command = std::process::Command::new("sh");
    // Without what would give the signal its usual meaning back.
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).args(run.get_args().skip(1));
    let mut wrapper = Wrapper::start(command);
    assert_eq!(wrapper.line(), "ready");
    wrapper.signal(Signal::HUP);
    wrapper.type_line("end");
    wrapper.finish().expect_code(0);
}

/// Without a terminal there is no shell that would resume this process.
#[test]
fn a_command_that_is_stopped_keeps_its_lock_and_can_be_resumed() {
    let server = Launch::on_loopback().start();
    let script = "echo $$; read line; echo resumed";
    let mut command = std::process::Command::new("setsid");
    let run = shell_under_lock(server.address(), ["--lease", "500ms"], script);
    command.arg("--wait").arg(run.get_program()).args(run.get_args());
    let mut wrapper = Wrapper::start(command);
    let command = wrapper.pid_line();
    rustix::process::kill_process(command, Signal::STOP).expect("stopping the command");
    wait_until("it is stopped", || procfs::is_stopped(command));
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    waiter.expect_silence(std::time::Duration::from_millis(700));
    rustix::process::kill_process(command, Signal::CONT).expect("resuming the command");
    wrapper.type_line("end");
    assert_eq!(wrapper.line(), "resumed");
    wrapper.finish().expect_code(0);
}
