//! A PostgreSQL server of the test's own, in a directory of its own.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// How long it may take to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A running server. It is stopped when this is dropped.
pub(crate) struct PrivateCluster {
    server: Child,
    directory: tempfile::TempDir,
}

impl PrivateCluster {
    /// Starts one that is reached by a socket in its directory. None, which it says, if there is no
    /// such program here.
    pub(crate) fn start(connections: u32) -> Option<PrivateCluster> {
        let Some(programs) = programs() else {
            println!("SKIPPED: needs Debian's package postgresql");
            return None;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let owner = owner();
        if let Some((uid, gid)) = owner {
            chown(directory.path(), Some(uid), Some(gid)).expect("root may");
        }
        let command = |name: &str| {
            let mut command = Command::new(programs.join(name));
            if let Some((uid, gid)) = owner {
                command.uid(uid).gid(gid);
            }
            command.current_dir(directory.path()).stdin(Stdio::null());
            command
        };
        let made = command("initdb")
            .args(["-D", "data", "-U", "tester", "-A", "trust", "--no-sync", "--locale=C"])
            .output()
            .expect("initdb");
        assert!(made.status.success(), "{made:?}");
        let path = directory.path().to_str().expect("UTF-8");
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let server = command("postgres")
            .args(["-D", "data", "-k", path, "-c", "listen_addresses=", "-c", "fsync=off", "-c"])
            .arg(format!("max_connections={connections}"))
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("postgres");
        let mut cluster = PrivateCluster { server, directory };
        cluster.wait_until_it_answers();
        Some(cluster)
    }

    fn wait_until_it_answers(&mut self) {
        let deadline = Instant::now() + START_MAX;
        while let Err(error) = postgres::Client::connect(&self.url(), postgres::NoTls) {
            let ended = self.server.try_wait().expect("it is ours");
            let log = fs::read_to_string(self.directory.path().join("log"));
            assert!(ended.is_none() && Instant::now() < deadline, "{error}: {ended:?}, {log:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it is, as `--resource` wants it.
    pub(crate) fn url(&self) -> String {
        let path = self.directory.path().display();
        format!("postgres:///postgres?host={path}&user=tester")
    }
}

impl Drop for PrivateCluster {
    fn drop(&mut self) {
        // Without waiting for its clients. It may have ended.
        let _ = kill_process(Pid::from_child(&self.server), Signal::INT);
        let _ = self.server.wait();
    }
}

/// The directory of the server's programs: where Debian has them, or on the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let of_debian = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<_> = std::env::split_paths(&path).collect();
    of_debian.chain(on_path).find(|folder| has_both(folder))
}

fn has_both(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}

/// It doesn't run as root. Then as the user that its package has made.
fn owner() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("the users");
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let mut fields = line.expect("the package makes a user").split(':').skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok()).expect("a number");
    Some((number(), number()))
}
