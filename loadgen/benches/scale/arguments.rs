//! What a run can be told.

use std::path::PathBuf;
use std::time::Duration;

use monolock_core::duration::parse_duration;

use crate::command_line::{self, positive};

const HELP: &str = "\
cargo bench -p monolock-loadgen --bench scale -- [OPTIONS]

  --sessions N,N,..   sessions at once [10000,100000,1000000]
  --leases D,D,..     their leases [120s,60s]
  --only SUBJECT      server or yardstick; without it both
  --rounds N          runs of each, in turns [1]
  --duration D        measured time of each [30s]
  --connect-rate N    connections a second at the beginning [4000]
  --server PATH       a server to measure in place of this tree's
  --yardstick PATH    a yardstick in place of this tree's
";

pub(crate) struct Arguments {
    pub(crate) sessions: Vec<u32>,
    pub(crate) leases: Vec<Duration>,
    pub(crate) only: Option<String>,
    pub(crate) rounds: u32,
    pub(crate) duration: Duration,
    pub(crate) connect_rate: u32,
    pub(crate) server: Option<PathBuf>,
    pub(crate) yardstick: Option<PathBuf>,
}

impl Arguments {
    /// None: there is nothing to be measured.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments {
            sessions: vec![10_000, 100_000, 1_000_000],
            leases: vec![Duration::from_secs(120), Duration::from_secs(60)],
            only: None,
            rounds: 1,
            duration: Duration::from_secs(30),
            connect_rate: 4000,
            server: None,
            yardstick: None,
        };
        let set = |flag: &str, value: &str| arguments.set(flag, value);
        let is_measured = command_line::read("scale", HELP, given, set)?;
        Ok(is_measured.then_some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--sessions" => self.sessions = list(flag, value, positive)?,
            "--leases" => self.leases = list(flag, value, duration)?,
            "--only" if ["server", "yardstick"].contains(&value) => {
                self.only = Some(value.to_owned());
            }
            "--rounds" => self.rounds = positive(flag, value)?,
            "--duration" => self.duration = duration(flag, value)?,
            "--connect-rate" => self.connect_rate = positive(flag, value)?,
            "--server" => self.server = Some(value.into()),
            "--yardstick" => self.yardstick = Some(value.into()),
            _ => return Err(format!("there is no {flag} {value}\n\n{HELP}")),
        }
        Ok(())
    }

    pub(crate) fn measures(&self, subject: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == subject)
    }
}

fn list<T>(
    flag: &str,
    value: &str,
    parse: fn(&str, &str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    value.split(',').map(|part| parse(flag, part)).collect()
}

fn duration(flag: &str, value: &str) -> Result<Duration, String> {
    let duration = parse_duration(value).ok().filter(|duration| !duration.is_zero());
    duration.ok_or(format!("{flag} needs a duration such as 60s, not {value:?}"))
}
