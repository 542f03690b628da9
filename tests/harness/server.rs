//! The real binary as a child process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::patience::PATIENCE;
use super::procfs;

/// The number of `io_uring_setup`, which is the same on every architecture.
const SYS_IO_URING_SETUP: i64 = 425;

/// How to start the binary.
#[derive(Clone, Default)]
pub(crate) struct Launch {
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    /// A shell command that runs before the binary, in its process.
    prologue: Option<String>,
    /// A program and its arguments that run the binary, under the same process number.
    runner: Vec<OsString>,
    /// What it gets as its stdin.
    stdin: Option<Arc<OwnedFd>>,
    /// The text of the last line that is read of its stderr.
    last_line_read: Option<String>,
    is_on_one_cpu: bool,
    is_without_io_uring: bool,
}

impl Launch {
    /// The binary without any argument.
    pub(crate) fn bare() -> Launch {
        Launch::default()
    }

    /// The binary on a free port of 127.0.0.1.
    pub(crate) fn on_loopback() -> Launch {
        Launch::on("127.0.0.1:0")
    }

    /// The binary on this address.
    pub(crate) fn on(address: &(impl ToString + ?Sized)) -> Launch {
        Launch::bare().args(["--listen", &address.to_string()])
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item: Into<OsString>>) -> Launch {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Launch {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs `sh` first, which becomes the binary after this command.
    pub(crate) fn after_shell(mut self, prologue: &str) -> Launch {
        self.prologue = Some(prologue.to_owned());
        self
    }

    /// Has this program run it, which must let it have the process number that it was started with.
    pub(crate) fn run_by(mut self, words: impl IntoIterator<Item: Into<OsString>>) -> Launch {
        self.runner.extend(words.into_iter().map(Into::into));
        self
    }

    /// Reads its stderr up to a line that contains this, and closes the pipe then.
    pub(crate) fn unread_after(mut self, text: &str) -> Launch {
        self.last_line_read = Some(text.to_owned());
        self
    }

    /// Gives it a duplicate of this descriptor as stdin, each time that it is started.
    pub(crate) fn stdin(mut self, descriptor: impl Into<OwnedFd>) -> Launch {
        self.stdin = Some(Arc::new(descriptor.into()));
        self
    }

    /// As if the machine had one processor, so that there is one event loop and one table.
    pub(crate) fn on_one_cpu(mut self) -> Launch {
        self.is_on_one_cpu = true;
        self
    }

    /// As in a container whose seccomp profile knows no io_uring.
    pub(crate) fn without_io_uring(mut self) -> Launch {
        self.is_without_io_uring = true;
        self
    }

    /// Starts it and waits until it says where it listens.
    #[track_caller]
    pub(crate) fn start(&self) -> Server {
        let mut server = self.spawn();
        let line = server.wait_for_line("listening on ");
        server.address = Some(
            listening_address(&line)
                .unwrap_or_else(|| panic!("no address behind `listening on `: {line}")),
        );
        server
    }

    /// Starts it and finds out from the kernel where it listens, for a server that doesn't say.
    #[track_caller]
    pub(crate) fn start_mute(&self) -> Server {
        let mut server = self.spawn();
        let start = Instant::now();
        while server.address.is_none() {
            server.address = procfs::listening_address(server.pid());
            assert!(
                start.elapsed() < PATIENCE && server.exit_status_now().is_none(),
                "the server does not listen; {}",
                server.said()
            );
            thread::sleep(Duration::from_millis(2));
        }
        server
    }

    /// Starts it, and leaves it open whether it will listen.
    #[track_caller]
    pub(crate) fn spawn(&self) -> Server {
        let mut child = self.spawn_child(Stdio::null());
        let stderr = self.collect_stderr(&mut child);
        Server { child, address: None, stderr }
    }

    /// Runs it to its end, which must come by itself.
    #[track_caller]
    pub(crate) fn run(&self) -> Finished {
        let mut child = self.spawn_child(Stdio::piped());
        let mut stdout = child.stdout.take().expect("a pipe");
        let stderr = self.collect_stderr(&mut child);
        let mut server = Server { child, address: None, stderr };
        let status = server.wait_for_exit();
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("stdout is UTF-8");
        Finished { status, stdout: text, stderr: server.stderr_to_end() }
    }

    #[track_caller]
    fn spawn_child(&self, stdout: Stdio) -> Child {
        let mut command = self.command();
        let stdin = self.stdin.as_ref().map_or_else(Stdio::null, |descriptor| {
            descriptor.as_fd().try_clone_to_owned().expect("duplicating a descriptor").into()
        });
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        // A child inherits from the thread that makes it: one that is confined for nothing else.
        let spawning = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.confine_thread();
                command.spawn()
            });
            thread.join().expect("the spawning thread")
        });
        spawning.unwrap_or_else(|error| panic!("starting {command:?}: {error}"))
    }

    fn command(&self) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(prologue) = &self.prologue {
            let script = format!("{prologue}; exec \"$@\"");
            words.extend(["sh", "-c", &script, "sh"].map(OsString::from));
        }
        words.extend(self.runner.iter().cloned());
        words.push(env!("CARGO_BIN_EXE_monolock").into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        // What the developer's own shell sets must not decide a test.
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"MONOLOCK_") {
                command.env_remove(name);
            }
        }
        command.args(&self.args).envs(self.env.iter().cloned());
        command
    }

    /// Reads the pipe in a thread, so that the process never waits for its reader.
    fn collect_stderr(&self, child: &mut Child) -> Arc<Stderr> {
        let pipe = BufReader::new(child.stderr.take().expect("a pipe"));
        let stderr = Arc::new(Stderr::default());
        let (into, last) = (Arc::clone(&stderr), self.last_line_read.clone());
        thread::spawn(move || {
            for line in pipe.split(b'\n') {
                let line = line.expect("reading a pipe");
                let line = String::from_utf8_lossy(&line).into_owned();
                let is_last = last.as_ref().is_some_and(|last| line.contains(last));
                into.change(|collected| collected.lines.push(line));
                if is_last {
                    break;
                }
            }
            // Closed before anybody is told, so that what happens next happens without a reader.
            into.change(|collected| collected.has_ended = true);
        });
        stderr
    }

    fn confine_thread(&self) {
        if self.is_on_one_cpu {
            let all = rustix::thread::sched_getaffinity(None).expect("the affinity of a thread");
            let first = (0..CpuSet::MAX_CPU)
                .find(|cpu| all.is_set(*cpu))
                .expect("a thread has a processor to run on");
            let mut one = CpuSet::new();
            one.set(first);
            rustix::thread::sched_setaffinity(None, &one).expect("setting the affinity");
        }
        if self.is_without_io_uring {
            let errno = rustix::io::Errno::PERM.raw_os_error().unsigned_abs();
            let filter = SeccompFilter::new(
                [(SYS_IO_URING_SETUP, Vec::new())].into(),
                SeccompAction::Allow,
                SeccompAction::Errno(errno),
                std::env::consts::ARCH.try_into().expect("an architecture with seccomp"),
            )
            .expect("a filter");
            let program = BpfProgram::try_from(filter).expect("a filter program");
            seccompiler::apply_filter(&program).expect("applying the filter");
        }
    }
}

/// What a process left that has ended by itself.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: Vec<String>,
}

impl Finished {
    /// The one line on stderr of a process that ended with this exit status.
    #[track_caller]
    pub(crate) fn expect_one_line(&self, exit_code: i32) -> &str {
        assert_eq!(self.status.code(), Some(exit_code), "{self:?}");
        match self.stderr.as_slice() {
            [line] if !line.trim().is_empty() => line,
            _ => panic!("expected exactly one line on stderr: {self:?}"),
        }
    }
}

/// A process of the binary, killed when dropped.
pub(crate) struct Server {
    child: Child,
    address: Option<SocketAddr>,
    stderr: Arc<Stderr>,
}

impl Server {
    /// Where it listens.
    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("the server was seen to listen")
    }

    /// Where its ops endpoints are.
    #[track_caller]
    pub(crate) fn ops_address(&self) -> SocketAddr {
        self.http_address("/metrics, /healthz and /readyz are on http://")
    }

    /// Where its admin API is.
    #[track_caller]
    pub(crate) fn admin_address(&self) -> SocketAddr {
        self.http_address("the admin API is on http://")
    }

    #[track_caller]
    fn http_address(&self, before: &str) -> SocketAddr {
        let lines = self.stderr();
        let address = lines.iter().find_map(|line| {
            let (_, after) = line.split_once(before)?;
            leading_address(after)
        });
        address.unwrap_or_else(|| panic!("no address behind {before:?}; {}", self.said()))
    }

    /// For one that was spawned, and was seen to listen there.
    pub(crate) fn listening_at(mut self, address: SocketAddr) -> Server {
        self.address = Some(address);
        self
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("sending a signal to a child");
    }

    /// Stops it with SIGSTOP; on return it does nothing any more.
    #[track_caller]
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        super::patience::wait_until("all threads of the server are stopped", || {
            procfs::is_stopped(self.pid())
        });
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Sets the soft limit of open files of the running process and gives the one before.
    pub(crate) fn limit_open_files(&self, soft: u64) -> u64 {
        let (old, hard) = procfs::open_file_limits(self.pid());
        let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
        rustix::process::prlimit(Some(self.pid()), Resource::Nofile, limit)
            .expect("setting a limit of a child");
        old
    }

    /// Waits for a line on stderr that contains the text, from the first line on.
    #[track_caller]
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        self.wait_for_line_until(text, Instant::now() + PATIENCE)
    }

    #[track_caller]
    pub(crate) fn wait_for_line_until(&mut self, text: &str, deadline: Instant) -> String {
        let found = self.stderr.wait_for(deadline, |collected| {
            let line = collected.lines.iter().find(|line| line.contains(text));
            line.cloned().map(Some).or(collected.has_ended.then_some(None))
        });
        found.flatten().unwrap_or_else(|| {
            let status = self.exit_status_now();
            panic!("no line with `{text}`, exit status {status:?}; {}", self.said())
        })
    }

    /// The lines on stderr so far.
    pub(crate) fn stderr(&self) -> Vec<String> {
        self.stderr.lock().lines.clone()
    }

    /// All lines on stderr of a process that has ended.
    #[track_caller]
    pub(crate) fn stderr_to_end(&self) -> Vec<String> {
        let lines = self.stderr.wait_for(Instant::now() + PATIENCE, |collected| {
            collected.has_ended.then(|| collected.lines.clone())
        });
        lines.expect("stderr ends with the process")
    }

    pub(crate) fn exit_status_now(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting for a child")
    }

    /// Waits until it has ended by itself or by a signal.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.exit_status_now() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end; {}", self.said());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Fails if it has ended.
    #[track_caller]
    pub(crate) fn expect_running(&mut self) {
        let status = self.exit_status_now();
        assert!(status.is_none(), "ended with {status:?}; {}", self.said());
    }

    /// Waits for a second and checks that it used next to nothing of it.
    #[track_caller]
    pub(crate) fn expect_idle(&self) {
        let before = procfs::cpu_time(self.pid());
        thread::sleep(Duration::from_secs(1));
        let used = procfs::cpu_time(self.pid()) - before;
        assert!(used < Duration::from_millis(150), "it used {used:?} of a second");
    }

    fn said(&self) -> String {
        format!("its stderr: {:#?}", self.stderr())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the server of the failed test: {}", self.said());
        }
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was read of a process's stderr.
#[derive(Default)]
struct Stderr {
    collected: Mutex<Collected>,
    has_changed: Condvar,
}

#[derive(Default)]
struct Collected {
    lines: Vec<String>,
    has_ended: bool,
}

impl Stderr {
    fn lock(&self) -> std::sync::MutexGuard<'_, Collected> {
        // A test that failed while it held the lock has left nothing half done.
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Collected)) {
        change(&mut self.lock());
        self.has_changed.notify_all();
    }

    fn wait_for<T>(
        &self,
        deadline: Instant,
        mut probe: impl FnMut(&Collected) -> Option<T>,
    ) -> Option<T> {
        let mut collected = self.lock();
        loop {
            let found = probe(&collected);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            collected = self
                .has_changed
                .wait_timeout(collected, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Takes the address out of a log line, whatever the format of the log puts behind it.
fn listening_address(line: &str) -> Option<SocketAddr> {
    leading_address(line.split_once("listening on ")?.1)
}

fn leading_address(after: &str) -> Option<SocketAddr> {
    let is_of_address = |c: char| c.is_ascii_hexdigit() || ".:[]".contains(c);
    let end = after.find(|c| !is_of_address(c)).unwrap_or(after.len());
    after[..end].parse().ok()
}
