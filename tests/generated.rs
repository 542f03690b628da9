//! What is made from the flags: completions that shells load, and manual pages; and the pages of
//! the documentation that say the same.

mod harness;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use harness::outside;

const COMMANDS: [&str; 10] =
    ["serve", "run", "locks", "show", "release", "kick", "info", "completions", "man", "help"];

/// What the program prints with these words, if it ends well.
#[track_caller]
fn monolock(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock"));
    let output = command.args(words).stdin(Stdio::null()).output().expect("the binary");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What bash completes these words to, the last of which is being typed.
fn completed_by_bash(words: &[&str]) -> Vec<String> {
    let script = "source /dev/stdin; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                  _monolock monolock \"${COMP_WORDS[COMP_CWORD]}\" \
                  \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-c", script, "bash"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bash = command.spawn().expect("it was there just now");
    let completions = monolock(&["completions", "bash"]);
    bash.stdin.take().expect("a pipe").write_all(completions.as_bytes()).expect("bash reads");
    let output = bash.wait_with_output().expect("a child");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_flags() {
    if !outside::is_installed("bash", "bash") {
        return;
    }
    let commands = completed_by_bash(&["monolock", ""]);
    for command in COMMANDS {
        assert!(commands.iter().any(|word| word == command), "{command}: {commands:?}");
    }
    assert_eq!(completed_by_bash(&["monolock", "rel"]), ["release"]);
    assert_eq!(completed_by_bash(&["monolock", "--admin-l"]), ["--admin-listen"]);
    assert_eq!(completed_by_bash(&["monolock", "run", "--nonb"]), ["--nonblock"]);
    assert_eq!(completed_by_bash(&["monolock", "release", "--tok"]), ["--token"]);
    assert_eq!(completed_by_bash(&["monolock", "completions", "z"]), ["zsh"]);
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let script = monolock(&["completions", shell]);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
        if !outside::is_installed(shell, shell) {
            continue;
        }
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(script.as_bytes()).expect("writing a file");
        let output = Command::new(shell).arg(check).arg(file.path()).output().expect("the shell");
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn a_shell_that_is_not_known_is_said() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock"));
    let output = command.args(["completions", "tcsh"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(125));
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(line.contains("tcsh") && line.contains("fish") && line.lines().count() == 1, "{line}");
}

/// The text of a page as a terminal shows it, without what makes it bold.
fn rendered(page: &str) -> String {
    let mut command = Command::new("groff");
    command.args(["-man", "-Tascii", "-P-cbou", "-ww"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut groff = command.spawn().expect("it was there just now");
    groff.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("groff reads");
    let output = groff.wait_with_output().expect("a child");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn manual_pages_are_read_by_groff() {
    if !outside::is_installed("groff", "groff-base") {
        return;
    }
    let run = rendered(&monolock(&["man", "run"]));
    for text in [
        "MONOLOCK-RUN(1)",
        "monolock run [OPTIONS] LOCK -- COMMAND [ARG]...",
        "--kill-after",
        "MONOLOCK_ADDRESS",
        "monolock help exit-codes",
    ] {
        assert!(run.contains(text), "{text}: {run}");
    }
    let server = rendered(&monolock(&["man"]));
    for text in ["--admin-listen", "MONOLOCK_LISTEN_ADDRESS", "monolock-run(1)", "OPTIONS"] {
        assert!(server.contains(text), "{text}: {server}");
    }
}

#[test]
fn all_pages_are_written_into_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("UTF-8");
    assert_eq!(monolock(&["man", "--dir", path]), "");
    let names = fs::read_dir(directory.path()).expect("a directory");
    let mut names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort_unstable();
    let mut expected: Vec<String> =
        COMMANDS.iter().map(|command| format!("monolock-{command}.1")).collect();
    expected.push("monolock.1".into());
    expected.sort_unstable();
    assert_eq!(names, expected);
    let run = fs::read_to_string(directory.path().join("monolock-run.1")).expect("a page");
    assert_eq!(run, monolock(&["man", "run"]));

    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock"));
    let output = command.args(["man", "--dir", "/no/such"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}

#[test]
fn every_command_has_help() {
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let by_flag = monolock(&[command, "--help"]);
        assert!(by_flag.contains("Usage: monolock"), "{command}: {by_flag}");
        let by_name = monolock(&["help", command]);
        let options = |text: &str| text[text.find("Options:").expect("options")..].to_owned();
        assert_eq!(options(&by_name), options(&by_flag), "{command}");
        assert!(monolock(&["--help"]).contains(&format!("  {command} ")), "{command}");
    }
    assert!(monolock(&["help", "exit-codes"]).contains("125"));
    assert_eq!(monolock(&["help"]), monolock(&["--help"]));
}

/// Every option is in the reference, and nothing else.
#[test]
fn the_options_are_documented() {
    for (page, commands) in [
        ("docs/reference/run.md", &["run"][..]),
        ("docs/reference/admin-commands.md", &["locks", "show", "release", "kick", "info"]),
    ] {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let page = fs::read_to_string(page).expect("the page");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `-")).collect();
        let helps: String = commands.iter().map(|command| monolock(&[command, "--help"])).collect();
        assert_eq!(long_options(&rows.join("\n")), long_options(&helps));
        let codes = monolock(&["help", "exit-codes"]);
        let documented = page.lines().filter_map(|line| line.strip_prefix("| "));
        let documented: Vec<&str> = documented.filter_map(|row| row.split(" | ").next()).collect();
        for code in documented.iter().filter(|cell| cell.parse::<u8>().is_ok()) {
            assert!(codes.contains(*code), "{code}: {codes}");
        }
        for code in if commands == ["run"] { ["123", "124", "125"] } else { ["0", "1", "125"] } {
            assert!(documented.contains(&code), "{code}: {documented:?}");
        }
    }
}

/// The names of all options in a text, sorted, but for `--help`.
fn long_options(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    let mut names: Vec<String> = words
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}
