//! Sessions that only hold their locks, in processes of their own: a process has fewer descriptors
//! than there are sessions.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::clients::hold;

/// What the bench's own program is started with to be such a process.
pub(crate) const ROLE: &str = "--hold";

/// Sessions of one process.
const SESSIONS_A_PROCESS: usize = 15_000;

/// Processes that hold locks for as long as this lives.
pub(crate) struct Holders(Vec<Child>);

impl Holders {
    /// Has the locks from number `from` up to `end` held.
    pub(crate) fn start(
        server: SocketAddr,
        from: usize,
        end: usize,
    ) -> Result<Holders, Box<dyn Error>> {
        let mut holders = Holders(Vec::new());
        for from in (from..end).step_by(SESSIONS_A_PROCESS) {
            let end = end.min(from + SESSIONS_A_PROCESS);
            let child = Command::new(env::current_exe()?)
                .args([ROLE, &server.to_string(), &from.to_string(), &end.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            holders.0.push(child);
        }
        for child in &mut holders.0 {
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line)?;
            if line.trim() != "held" {
                return Err(format!("a process could not hold its locks: {line:?}").into());
            }
        }
        Ok(holders)
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself, because it failed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Is such a process, until its stdin ends.
pub(crate) fn be_one(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [server, from, end] = arguments else { return Err("not to be started by hand".into()) };
    monolock_ring::raise_descriptor_limit();
    let server = server.parse()?;
    let sessions = (from.parse()?..end.parse()?).map(|number| hold(server, number));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    println!("held");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(sessions);
    Ok(())
}
