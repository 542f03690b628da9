//! The programs that are measured, built as for a release.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monolock_loadgen::results::Results;

/// Where they are built.
pub(crate) struct Programs {
    target: PathBuf,
}

impl Programs {
    /// Builds the load generator. What cargo has built for a bench has its profile, not that of a
    /// release.
    pub(crate) fn build() -> Result<Programs, Box<dyn Error>> {
        let release = Path::new(env!("CARGO_BIN_EXE_monolock-loadgen")).parent();
        let target = release.and_then(Path::parent).expect("the directory of all profiles");
        let programs = Programs { target: target.to_owned() };
        programs.cargo_build(&["-p", "monolock-loadgen", "--bin", "monolock-loadgen"])?;
        Ok(programs)
    }

    pub(crate) fn build_server(&self) -> Result<PathBuf, Box<dyn Error>> {
        self.cargo_build(&["-p", "monolock", "--bin", "monolock"])?;
        Ok(self.target.join("release/monolock"))
    }

    pub(crate) fn build_yardstick(&self) -> Result<PathBuf, Box<dyn Error>> {
        self.cargo_build(&["-p", "monolock-ring", "--example", "echo"])?;
        Ok(self.target.join("release/examples/echo"))
    }

    fn cargo_build(&self, what: &[&str]) -> Result<(), Box<dyn Error>> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet"])
            .args(what)
            .arg("--target-dir")
            .arg(&self.target)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace"))
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("cargo build {} failed", what.join(" ")).into())
        }
    }

    /// Has the load generator do what `words` say to a server that it starts with these arguments,
    /// and reads what it has written.
    pub(crate) fn run(
        &self,
        words: &str,
        server: &Path,
        server_arguments: &[&str],
    ) -> Result<Results, Box<dyn Error>> {
        let json = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("results-{}.json", std::process::id()));
        let status = Command::new(self.target.join("release/monolock-loadgen"))
            .args(words.split(' '))
            .args(["-q", "--seed", "1", "--json-out-file"])
            .arg(&json)
            .arg("--server")
            .arg(server)
            .arg("--")
            .args(server_arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .status()?;
        let results = Results::read(&json)
            .map_err(|error| format!("{words}: {status}: {} {error}", json.display()))?;
        std::fs::remove_file(&json)?;
        if results.violations() > 0 {
            return Err(format!("{words}: the server broke its promises").into());
        }
        Ok(results)
    }
}
