//! What a run can be told.

use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
cargo bench --bench server -- [OPTIONS]

  --only SCENARIO    heartbeats, connections or memory; without it all three
  --sessions N,N,..  open sessions of each server, for heartbeats [1000,10000]
  --rate N           heartbeats a second [20000]
  --rounds N         turns of each server [50]
  --round-ms N       length of a turn [300]
  --connections N    connections in a turn [1000]
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
            held: 15_000,
            server: None,
            yardstick: None,
        };
        // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
        let mut is_bench = false;
        let mut given = given;
        while let Some(flag) = given.next() {
            match flag.as_str() {
                "--bench" => is_bench = true,
                "--help" => {
                    print!("{HELP}");
                    return Ok(None);
                }
                _ => {
                    let value = given.next().ok_or(format!("{flag} needs a value\n\n{HELP}"))?;
                    arguments.set(&flag, &value)?;
                }
            }
        }
        if !is_bench {
            println!("server: a measurement of minutes; run it with cargo bench --bench server");
            return Ok(None);
        }
        Ok(Some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        let number = || match value.parse() {
            Ok(number @ 1..) => Ok(number),
            _ => Err(format!("{flag} needs a positive number, not {value:?}")),
        };
        match flag {
            "--only" if ["heartbeats", "connections", "memory"].contains(&value) => {
                self.only = Some(value.to_owned());
            }
            "--sessions" => {
                self.sessions = value
                    .split(',')
                    .map(|number| number.parse().map_err(|_| format!("{flag}: {number:?}?")))
                    .collect::<Result<_, _>>()?;
            }
            "--rate" => self.rate = number()?,
            "--rounds" => self.rounds = number()?,
            "--round-ms" => self.round = Duration::from_millis(number()?.into()),
            "--connections" => self.connections = number()?,
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
