//! What a run can be told.

use std::path::PathBuf;

use monolock_loadgen::scenario::Scenario;

use crate::command_line::{self, positive};

const HELP: &str = "\
cargo bench -p monolock-loadgen --bench scenarios -- [OPTIONS]

  --only SCENARIO    such as heartbeat; without it all
  --rounds N         runs of each scenario [3]
  --server PATH      a server to measure in place of this tree's
";

pub(crate) struct Arguments {
    pub(crate) only: Option<Scenario>,
    pub(crate) rounds: u32,
    pub(crate) server: Option<PathBuf>,
}

impl Arguments {
    /// None: there is nothing to be measured.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments { only: None, rounds: 3, server: None };
        let set = |flag: &str, value: &str| arguments.set(flag, value);
        let is_measured = command_line::read("scenarios", HELP, given, set)?;
        Ok(is_measured.then_some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--only" => {
                let mut all = Scenario::ALL.into_iter();
                let found = all.find(|scenario| scenario.name() == value);
                self.only = Some(found.ok_or(format!("there is no scenario {value:?}"))?);
            }
            "--rounds" => self.rounds = positive(flag, value)?,
            "--server" => self.server = Some(value.into()),
            _ => return Err(format!("there is no {flag} {value}\n\n{HELP}")),
        }
        Ok(())
    }

    pub(crate) fn runs(&self, scenario: Scenario) -> bool {
        self.only.is_none_or(|only| only == scenario)
    }
}
