//! What is in `packaging/` fits the binary: flags exist, and it runs as it is to be run.

mod harness;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::client::Client;
use harness::http;
use harness::outside::is_installed;
use harness::patience::{LONG_LEASE_MS, wait_until};
use harness::server::{Launch, Server};
use monolock::config::FLAGS;
use rustix::process::Signal;

const BINARY: &str = env!("CARGO_BIN_EXE_monolock");

fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    fs::read_to_string(path).expect("the file is there")
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("writing");
    path
}

#[test]
fn flags_and_paths_exist() {
    let mut seen = 0;
    for (file, mark) in [
        ("monolock.service", "ExecStart="),
        ("Dockerfile", "CMD ["),
        ("kubernetes.yaml", "            - --"),
    ] {
        let text = packaged(file);
        for line in text.lines().filter(|line| line.starts_with(mark)) {
            for word in line.split(|c: char| !(c.is_ascii_lowercase() || c == '-')) {
                if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
                    assert!(FLAGS.iter().any(|flag| flag.name == name), "{file}: --{name}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen >= 9, "there are flags to check: {seen}");
    let text = packaged("kubernetes.yaml");
    for path in ["/readyz", "/healthz"] {
        assert!(text.contains(&format!("path: {path},")), "{path}");
    }
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations/audit.md");
    let manual = fs::read_to_string(manual).expect("the document is there");
    assert!(manual.contains(&packaged("monolock.logrotate")), "the manual shows the file");
}

#[test]
fn systemd_understands_the_units() {
    if !is_installed("systemd-analyze", "the Debian package systemd") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let service = packaged("monolock.service");
    assert!(service.contains("ExecStart=/usr/bin/monolock "));
    let service = service.replace("/usr/bin/monolock", BINARY);
    let units = [
        write(folder.path(), "monolock.service", &service),
        write(folder.path(), "monolock.socket", &packaged("monolock.socket")),
    ];
    let verify = Command::new("systemd-analyze").arg("verify").args(&units).output();
    let output = verify.expect("running systemd-analyze");
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at units of this machine as well, which are not ours to mend.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("monolock")).collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
    for call in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert!(service.contains(call), "{call} is permitted");
    }
}

#[test]
fn logrotate_has_the_log_opened_again() {
    if !is_installed("logrotate", "the Debian package logrotate") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let server = Launch::on_loopback().args(["--audit-log", log.to_str().expect("a path")]).start();
    Client::owner(server.address(), "before", LONG_LEASE_MS);
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    wait_until("it is written", || lines(&log).contains("\"released\""));

    let signal = "systemctl kill --signal=HUP --kill-whom=main monolock.service";
    let config = packaged("monolock.logrotate");
    assert!(config.contains(signal));
    let kill = format!("kill -HUP {}", server.pid().as_raw_nonzero());
    let config = config
        .replace(signal, &kill)
        .replace("/var/log/monolock/audit.jsonl", log.to_str().expect("a path"));
    let config = write(folder.path(), "config", &config);
    let rotated = Command::new("logrotate")
        .args(["--force", "--state"])
        .arg(folder.path().join("state"))
        .arg(&config)
        .output()
        .expect("running logrotate");
    assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
    assert!(lines(&folder.path().join("audit.jsonl.1")).contains("before"));
    wait_until("it is opened again", || log.exists());
    Client::owner(server.address(), "after", LONG_LEASE_MS);
    wait_until("it is written", || lines(&log).contains("\"released\""));
    assert!(!lines(&log).contains("before") && lines(&log).contains("after"));
}

/// All that the server does in its life is permitted by the profile.
#[test]
fn the_seccomp_profile_is_enough() {
    if !is_installed("strace", "the Debian package strace") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (log, calls) = (folder.path().join("audit.jsonl"), folder.path().join("calls"));
    let calls_file = calls.to_str().expect("a path");
    let mut server = Launch::on_loopback()
        .args(["--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .args(["--audit-log", log.to_str().expect("a path"), "--shards", "2"])
        .run_by(["strace", "-D", "-f", "-qqq", "-o", calls_file])
        .start();
    live(&mut server, &log);
    server.signal(Signal::TERM);
    assert!(server.wait_for_exit().success());
    let permitted = permitted_calls();
    let text = || fs::read_to_string(&calls).expect("strace's output");
    // The tracer is another process, and may be behind.
    wait_until("all is written", || text().lines().any(|line| line.contains("exit_group(")));
    let made: BTreeSet<String> = names_of_calls(&text()).collect();
    let forbidden: Vec<_> = made.iter().filter(|call| !permitted.contains(call)).collect();
    assert!(forbidden.is_empty(), "not permitted: {forbidden:?}");
    assert!(text().contains("io_uring_setup("));
}

/// A bit of everything.
fn live(server: &mut Server, log: &Path) {
    let (mut owner, token) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
    let mut waiter = Client::waiter(server.address(), "lock", LONG_LEASE_MS);
    let mut expiring = Client::connect(server.address());
    expiring.acquire("other", 30);
    expiring.expect_acquired();
    expiring.expect_eof();
    owner.expect_held(token);
    for path in ["/healthz", "/metrics"] {
        assert_eq!(http::get(server.ops_address(), path).status, 200, "{path}");
    }
    let admin = server.admin_address();
    for path in ["/api/info", "/api/locks", "/api/sessions", "/api/top"] {
        assert_eq!(http::get(admin, path).status, 200, "{path}");
    }
    assert_eq!(http::request(admin, "POST", "/api/locks/lock/release", "").status, 200);
    assert!(waiter.expect_acquired() > token);
    fs::rename(log, log.with_extension("1")).expect("moving the log");
    server.signal(Signal::HUP);
    wait_until("the log is opened again", || log.exists());
}

/// The names in lines such as `4711  openat(AT_FDCWD, …`.
fn names_of_calls(trace: &str) -> impl Iterator<Item = String> {
    trace.lines().filter_map(|line| {
        let rest = line.split_once(' ')?.1.trim_start();
        let rest = rest.strip_prefix("<... ").unwrap_or(rest);
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let end = rest.find(|c| !is_of_name(c))?;
        (end > 0).then(|| rest[..end].to_owned())
    })
}

/// The names in the profile, all of which are permitted whatever their arguments are.
fn permitted_calls() -> Vec<String> {
    let profile: serde_json::Value =
        serde_json::from_str(&packaged("seccomp.json")).expect("valid JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let [group] = profile["syscalls"].as_array().expect("a list").as_slice() else {
        panic!("one group")
    };
    assert_eq!(group["action"], "SCMP_ACT_ALLOW");
    let names = group["names"].as_array().expect("a list");
    let names: Vec<String> =
        names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "in order, each once");
    assert!(!names.iter().any(|name| ["ptrace", "mount", "bpf"].contains(&&**name)));
    names
}
