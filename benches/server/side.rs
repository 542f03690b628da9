//! A server that is measured, together with its clients.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::clients::Clients;
use crate::subject::Subject;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The lock server or the yardstick, with its clients.
pub(crate) struct Side {
    pub(crate) subject: Subject,
    pub(crate) clients: Clients,
}

// Every address of the loopback net reaches them: clients use several, for their ports' sake.
impl Side {
    /// The lock server, and room for so many clients.
    pub(crate) fn server(program: &Path, shards: u32, most: u32) -> Result<Side> {
        let subject = Side::subject(program, shards, 0)?;
        let clients = Clients::new(subject.address, most)?;
        Ok(Side { subject, clients })
    }

    /// The lock server alone, on that port, or on any if it is 0.
    pub(crate) fn subject(program: &Path, shards: u32, port: u16) -> Result<Subject> {
        let (listen, shards) = (format!("0.0.0.0:{port}"), shards.to_string());
        Subject::start(program, &["--listen", &listen, "--shards", &shards])
    }

    /// The yardstick, and room for so many clients.
    pub(crate) fn yardstick(program: &Path, rings: u32, most: u32) -> Result<Side> {
        let subject = Subject::start(program, &["0.0.0.0:0", &rings.to_string()])?;
        let clients = Clients::new(subject.address, most)?;
        Ok(Side { subject, clients })
    }

    /// Processor microseconds of the server for each of what `work` does and counts.
    pub(crate) fn cpu_us(&mut self, work: impl FnOnce(&mut Clients) -> Result<u32>) -> Result<f64> {
        let before = self.subject.cpu();
        let count = work(&mut self.clients)?;
        // The last answer is there before the server sleeps.
        thread::sleep(Duration::from_millis(20));
        let cpu = self.subject.cpu() - before;
        Ok(cpu.as_secs_f64() * 1e6 / f64::from(count))
    }
}
