//! What a run can be told.

use std::path::PathBuf;

use monolock_loadgen::scenario::Scenario;

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
    pub(crate) fn parse(
        mut given: impl Iterator<Item = String>,
    ) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments { only: None, rounds: 3, server: None };
        // `cargo bench` says that it is one, and `cargo test --benches` says nothing.
        let mut is_bench = false;
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
            println!("scenarios: a measurement of minutes; run it with cargo bench");
            return Ok(None);
        }
        Ok(Some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--only" => {
                let mut all = Scenario::ALL.into_iter();
                let found = all.find(|scenario| scenario.name() == value);
                self.only = Some(found.ok_or(format!("there is no scenario {value:?}"))?);
            }
            "--rounds" => {
                let rounds = value.parse().ok().filter(|&rounds| rounds > 0);
                self.rounds = rounds.ok_or(format!("{flag} needs a positive number"))?;
            }
            "--server" => self.server = Some(value.into()),
            _ => return Err(format!("there is no {flag} {value}\n\n{HELP}")),
        }
        Ok(())
    }

    pub(crate) fn runs(&self, scenario: Scenario) -> bool {
        self.only.is_none_or(|only| only == scenario)
    }
}
