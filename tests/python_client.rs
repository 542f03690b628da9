//! The Python client (`clients/python`) against the real server: its own tests, a module each, and
//! its types.

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::outside;
use crate::harness::server::Launch;

#[test]
fn frames_are_those_of_the_vectors() {
    run_module("test_wire");
}

#[test]
fn what_can_not_be_is_refused() {
    run_module("test_input");
}

#[test]
fn a_claim_is_kept_and_given_up_in_time() {
    run_module("test_claim");
}

#[test]
fn acquiring() {
    run_module("test_acquiring");
}

#[test]
fn running() {
    run_module("test_running");
}

#[test]
fn together() {
    run_module("test_together");
}

#[test]
fn electing() {
    run_module("test_electing");
}

#[test]
fn losing() {
    run_module("test_losing");
}

#[test]
fn processes() {
    run_module("test_processes");
}

#[test]
fn handovers() {
    run_module("test_handovers");
}

/// So that no module is forgotten above.
#[test]
fn every_module_is_run() {
    let here = include_str!("python_client.rs");
    for entry in client().join("tests").read_dir().expect("the tests are there") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        if let Some(module) = name.strip_suffix(".py").filter(|name| name.starts_with("test_")) {
            assert!(here.contains(&format!("run_module(\"{module}\")")), "{module} is not run");
        }
    }
}

#[test]
fn types_are_right() {
    if !outside::is_installed("python3", "python3") {
        return;
    }
    let cache = tempfile::tempdir().expect("a directory");
    let mut mypy = python();
    mypy.args(["-m", "mypy", "--strict", "--python-version=3.10", "--cache-dir"]);
    let output = mypy
        .arg(cache.path())
        .args(["src", "tests", "examples"])
        .output()
        .expect("starting python3");
    if text(&output).contains("No module named mypy") {
        outside::say_skipped("the Python package mypy");
        return;
    }
    assert!(output.status.success(), "{}", text(&output));
}

/// Runs one module of the client's tests with a server of its own.
#[track_caller]
fn run_module(module: &str) {
    if !outside::is_installed("python3", "python3") {
        return;
    }
    let server = Launch::on_loopback().args(["--admin-listen", "127.0.0.1:0"]).start();
    let mut unittest = python();
    unittest.args(["-m", "unittest", "--verbose", &format!("tests.{module}")]);
    unittest.env("MONOLOCK_TEST_ADDR", server.address().to_string());
    unittest.env("MONOLOCK_TEST_ADMIN_ADDR", server.admin_address().to_string());
    unittest.env("MONOLOCK_TEST_SERVER", env!("CARGO_BIN_EXE_monolock"));
    let output = unittest.output().expect("starting python3");
    let said = text(&output);
    assert!(output.status.success(), "{module}: {}\n{said}", output.status);
    assert!(!said.contains("Ran 0 tests"), "{module} has tests");
}

fn python() -> Command {
    let mut python = Command::new("python3");
    python.current_dir(client()).stdin(Stdio::null());
    python.env("PYTHONPATH", "src").env("PYTHONDONTWRITEBYTECODE", "1");
    // A socket or a coroutine that is left behind is a warning, and a failure here.
    python.env("PYTHONWARNINGS", "error");
    python
}

fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}
