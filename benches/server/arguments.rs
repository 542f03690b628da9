//! What a run can be told.

use std::path::PathBuf;
use std::time::Duration;

use crate::command_line::{self, positive};

const HELP: &str = "\
cargo bench --bench server -- [OPTIONS]

  --only SCENARIO    heartbeats, connections or memory; without it all three
  --sessions N,N,..  open sessions of each server, for heartbeats [1000,10000]
  --rate N           heartbeats a second [20000]
  --rounds N         turns of each server [50]
  --round-ms N       length of a turn [300]
  --connections N    connections in a turn [1000]
  --beside N         open sessions of each server while others come and go [0]
  --held N           open sessions for memory [15000]
  --server PATH      a server to measure in place of this tree's
  --yardstick PATH   a yardstick in place of this tree's
";

pub(crate) struct Arguments {
    pub(crate) only: Option<String>,
    pub(crate) sessions: Vec<u32>,
    pub(crate) rate: u32,
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    pub(crate) connections: u32,
    pub(crate) beside: u32,
    pub(crate) held: u32,
    pub(crate) server: Option<PathBuf>,
    pub(crate) yardstick: Option<PathBuf>,
}

impl Arguments {
    /// None: there is nothing to be measured.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments {
            only: None,
            sessions: vec![1000, 10_000],
            rate: 20_000,
            rounds: 50,
            round: Duration::from_millis(300),
            connections: 1000,
            beside: 0,
            held: 15_000,
            server: None,
            yardstick: None,
        };
        let set = |flag: &str, value: &str| arguments.set(flag, value);
        let is_measured = command_line::read("server", HELP, given, set)?;
        Ok(is_measured.then_some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        let number = || positive(flag, value);
        match flag {
            "--only" if ["heartbeats", "connections", "memory"].contains(&value) => {
                self.only = Some(value.to_owned());
            }
            "--sessions" => {
                let numbers = value.split(',').map(|number| positive(flag, number));
                self.sessions = numbers.collect::<Result<_, _>>()?;
            }
            "--rate" => self.rate = number()?,
            "--rounds" => self.rounds = number()?,
            "--round-ms" => self.round = Duration::from_millis(number()?.into()),
            "--connections" => self.connections = number()?,
            "--beside" => self.beside = number()?,
            "--held" => self.held = number()?,
            "--server" => self.server = Some(value.into()),
            "--yardstick" => self.yardstick = Some(value.into()),
            _ => return Err(format!("there is no {flag} {value}\n\n{HELP}")),
        }
        Ok(())
    }

    pub(crate) fn runs(&self, scenario: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == scenario)
    }
}
