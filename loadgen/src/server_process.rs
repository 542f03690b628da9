//! A server that is started for a run.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use crate::plain_text;
use crate::staged_clock::StagedClock;
use crate::sys;

/// How long it may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether the user has lost patience before.
const LOOK: Duration = Duration::from_millis(50);
/// How long it may take to end, with a million sessions on two processors.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(120);
/// How often it is looked whether it has ended.
const END_LOOK: Duration = Duration::from_millis(1);

/// Why there is no server.
#[derive(Debug, Error)]
pub enum StartError {
    /// The program can't be started.
    #[error("cannot start {path}: {source}")]
    Spawn {
        /// The program.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// It has ended.
    #[error("{path} ended before it listened ({status}){}", said(.last_line))]
    Ended {
        /// The program.
        path: String,
        /// How.
        status: ExitStatus,
        /// The last line on its stderr.
        last_line: String,
    },
    /// It doesn't say that it listens.
    #[error("{path} has not said where it listens within {START_MAX:?}")]
    Silent {
        /// The program.
        path: String,
    },
    /// The run was interrupted first.
    #[error("interrupted before {path} listened")]
    Interrupted {
        /// The program.
        path: String,
    },
}

fn said(last_line: &str) -> String {
    if last_line.is_empty() {
        " and said nothing".to_owned()
    } else {
        format!("; its last words: {last_line}")
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program.
    pub path: &'a Path,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Where it listens, unless the arguments say it.
    pub listen: SocketAddr,
    /// Its clock, if that isn't the machine's.
    pub clock: Option<&'a StagedClock>,
}

impl Launch<'_> {
    /// A free port of 127.0.0.1.
    pub const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
}

/// Whether a server's arguments say where it listens.
pub fn says_where(args: &[OsString]) -> bool {
    args.iter().any(|arg| {
        let arg = arg.to_string_lossy();
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        arg.starts_with('-') && name == "listen"
    })
}

/// A running server. It is stopped when this is dropped, and killed by the kernel if this process
/// ends in another way.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts the program and waits until it listens. To be called on a thread that lives as long
    /// as the process: the server ends with it.
    ///
    /// # Errors
    /// One line that says what happened instead.
    pub fn start(
        launch: &Launch<'_>,
        interrupted: &AtomicBool,
    ) -> Result<ServerProcess, StartError> {
        let Launch { path, args, listen, clock } = *launch;
        let shown = path.display().to_string();
        let mut command = Command::new(path);
        if !says_where(args) {
            command.args(["--listen", &listen.to_string()]);
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(clock) = clock {
            clock.put_before(&mut command);
        }
        // An INT from the terminal is for the load generator, which reports and then stops it.
        command.process_group(0);
        sys::kill_with_parent(&mut command);
        let spawned = command.spawn();
        let mut child =
            spawned.map_err(|source| StartError::Spawn { path: shown.clone(), source })?;
        let stderr = child.stderr.take();
        // From here on the child is stopped whatever happens.
        let mut server = ServerProcess { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        server.address = server.wait_until_it_listens(&read_lines(stderr), &shown, interrupted)?;
        Ok(server)
    }

    fn wait_until_it_listens(
        &mut self,
        lines: &Receiver<String>,
        path: &str,
        interrupted: &AtomicBool,
    ) -> Result<SocketAddr, StartError> {
        let path = || path.to_owned();
        let deadline = Instant::now() + START_MAX;
        let mut last_line = String::new();
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(StartError::Interrupted { path: path() });
            }
            if Instant::now() >= deadline {
                return Err(StartError::Silent { path: path() });
            }
            match lines.recv_timeout(LOOK) {
                Ok(line) => match listening_address(&line) {
                    Some(address) => return Ok(address),
                    None => last_line = plain_text::one_line(&line),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(match self.child.wait() {
                        Ok(status) => StartError::Ended { path: path(), status, last_line },
                        Err(source) => StartError::Spawn { path: path(), source },
                    });
                }
            }
        }
    }

    /// Where it listens, as one can connect to it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, which it should not have.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends it a signal. One that has ended by itself gets none.
    pub fn signal(&mut self, signal: Signal) {
        if self.has_ended().is_none() {
            // It can only have ended in the meantime.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits until it has ended, which it is about to do. Nothing if it takes too long, and then it
    /// is killed.
    pub fn wait_for_end(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + STOP_MAX;
        loop {
            let status = self.has_ended();
            if status.is_some() {
                return status;
            }
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return None;
            }
            thread::sleep(END_LOOK);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        self.wait_for_end();
    }
}

/// The lines of a pipe. It is read to its end, so that the server never waits for its reader.
fn read_lines(stderr: Option<ChildStderr>) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr.into_iter().next()?).split(b'\n') {
            // Whoever listens may have heard enough.
            let _ = tell.send(String::from_utf8_lossy(&line.ok()?).into_owned());
        }
        Some(())
    });
    told
}

/// Takes the address out of a line such as `listening on 0.0.0.0:7070, ...`; an address that means
/// any is reached on loopback.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let (_, after) = line.split_once("listening on ")?;
    let end = after.find(|c: char| !c.is_ascii_hexdigit() && !".:[]".contains(c));
    let address: SocketAddr = after[..end.unwrap_or(after.len())].parse().ok()?;
    Some(if address.ip().is_unspecified() {
        SocketAddr::from(([127, 0, 0, 1], address.port()))
    } else {
        address
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_log_line() {
        let line = "2026-11-29T18:05:45.7Z  INFO listening on 0.0.0.0:7070, room for 20000";
        assert_eq!(listening_address(line), Some("127.0.0.1:7070".parse().unwrap()));
        let line = r#"{"message":"listening on [::1]:80","level":"INFO"}"#;
        assert_eq!(listening_address(line), Some("[::1]:80".parse().unwrap()));
        assert_eq!(listening_address("not listening"), None);
    }
}
