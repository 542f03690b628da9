//! What a run can be told.

use std::num::NonZeroU32;
use std::path::PathBuf;

const HELP: &str = "\
cargo bench --bench scale -- [OPTIONS]

  --only SCENARIO    steady or mass; without it both
  --sessions N,N,..  live sessions [10000,100000,1000000]
  --leases N,N,..    seconds that a session may be silent, one run for each [120,60]
  --mass N           sessions to which something happens at once [100000]
  --rate N           heartbeats a second, if the lease doesn't want more [20000]
  --server PATH      a server to measure in place of this tree's
  --yardstick PATH   a yardstick in place of this tree's

A run lasts as long as the lease and as connecting takes. A million sessions need 11 GB of memory.
";

pub(crate) struct Arguments {
    pub(crate) only: Option<String>,
    pub(crate) sessions: Vec<NonZeroU32>,
    pub(crate) leases_s: Vec<NonZeroU32>,
    pub(crate) mass: NonZeroU32,
    pub(crate) rate: NonZeroU32,
    pub(crate) server: Option<PathBuf>,
    pub(crate) yardstick: Option<PathBuf>,
}

impl Arguments {
    /// None: there is nothing to be measured.
    pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments {
            only: None,
            sessions: numbers("", "10000,100000,1000000")?,
            leases_s: numbers("", "120,60")?,
            mass: NonZeroU32::new(100_000).expect("not zero"),
            rate: NonZeroU32::new(20_000).expect("not zero"),
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
            println!("scale: a measurement of minutes; run it with cargo bench --bench scale");
            return Ok(None);
        }
        Ok(Some(arguments))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "--only" if ["steady", "mass"].contains(&value) => self.only = Some(value.to_owned()),
            "--mass" => self.mass = number(flag, value)?,
            "--sessions" => self.sessions = numbers(flag, value)?,
            "--leases" => self.leases_s = numbers(flag, value)?,
            "--rate" => self.rate = number(flag, value)?,
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

fn numbers(flag: &str, value: &str) -> Result<Vec<NonZeroU32>, String> {
    value.split(',').map(|value| number(flag, value)).collect()
}

fn number(flag: &str, value: &str) -> Result<NonZeroU32, String> {
    // A lease is told in milliseconds, and a million is the aim.
    let number = value.parse().ok().filter(|number: &NonZeroU32| number.get() <= 4_000_000);
    number.ok_or_else(|| format!("{flag} needs a number from 1 to 4000000, not {value:?}"))
}
