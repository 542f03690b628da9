//! The command's environment, streams and exit code; usage.

use crate::harness::client::Client;
use crate::harness::patience::LONG_LEASE_MS;
use crate::harness::server::Launch;
use crate::wrapper::{Wrapper, finish, monolock_run, shell_under_lock};

#[test]
fn the_exit_code_is_the_commands() {
    let server = Launch::on_loopback().start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        let ran = finish(shell_under_lock(server.address(), [], script));
        assert_eq!(ran.expect_code(code).stderr, "", "{script}");
    }
}

#[test]
fn what_can_not_be_executed_says_so_and_releases() {
    let server = Launch::on_loopback().start();
    let address = server.address().to_string();
    let not_executable = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (command, code) in [("/no/such/command", 127), (not_executable, 126), ("/", 126)] {
        let ran = finish({
            let mut run = monolock_run(["-a", &address, "a", "--"]);
            run.arg(command);
            run
        });
        let stderr = &ran.expect_code(code).stderr;
        assert!(stderr.starts_with("monolock: ") && stderr.contains(command), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    Client::owner_patiently(server.address(), "a");
}

#[test]
fn the_command_finds_lock_token_and_lease_in_its_environment() {
    let server = Launch::on_loopback().start();
    let script = "echo $MONOLOCK_LOCK $MONOLOCK_LEASE_MS $MONOLOCK_TOKEN";
    let ran = finish(shell_under_lock(server.address(), ["--lease", "2s"], script));
    let words: Vec<&str> = ran.expect_code(0).stdout.split_whitespace().collect();
    assert_eq!(words[..2], ["a", "2000"]);
    let token: u64 = words[2].parse().expect("a number");
    let (_, next) = Client::owner(server.address(), "a", LONG_LEASE_MS);
    assert!(token > 0 && token < next);
}

#[test]
fn arguments_and_streams_are_the_commands_alone() {
    let server = Launch::on_loopback().start();
    let address = server.address().to_string();
    let mut command = monolock_run(["-v", "-a", &address, "a", "--", "sh", "-c"]);
    command.args([r#"printf '%s|' "$@"; echo; cat; echo err >&2"#, "sh", "-n", "* $HOME", ""]);
    let mut wrapper = Wrapper::start(command);
    assert_eq!(wrapper.line(), "-n|* $HOME||");
    wrapper.type_line("from stdin");
    assert_eq!(wrapper.line(), "from stdin");
    wrapper.close_stdin();
    let ran = wrapper.finish();
    assert_eq!(ran.expect_code(0).stdout, "");
    let (ours, others): (Vec<&str>, Vec<&str>) =
        ran.stderr.lines().partition(|line| line.starts_with("monolock: "));
    assert_eq!(others, ["err"]);
    assert!(ours.iter().any(|line| line.contains("acquired \"a\" after")), "{ours:?}");
}

#[test]
fn the_lock_is_held_until_the_command_was_reaped() {
    let server = Launch::on_loopback().start();
    let mut wrapper =
        Wrapper::start(shell_under_lock(server.address(), [], "echo here; read line"));
    wrapper.line();
    let mut waiter = Client::waiter(server.address(), "a", LONG_LEASE_MS);
    waiter.expect_queued();
    wrapper.type_line("end");
    waiter.expect_acquired();
    wrapper.finish().expect_code(0);
}

#[test]
fn wrong_usage_is_one_line_and_125() {
    for (options, named) in [
        (&["a"][..], "COMMAND"),
        (&["--nonsense", "a", "--", "true"], "--nonsense"),
        (&["", "--", "true"], "lock name"),
        (&["--lease", "0s", "a", "--", "true"], "lease"),
        (&["--address", "nowhere", "a", "--", "true"], "nowhere"),
    ] {
        let ran = finish(monolock_run(options.iter().copied()));
        let stderr = &ran.expect_code(125).stderr;
        assert!(stderr.starts_with("monolock: ") && stderr.contains(named), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
