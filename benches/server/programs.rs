//! The programs that are measured, built as they are for a release.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lock server of this tree, unless another one is given.
pub(crate) fn server(given: Option<&Path>) -> Result<PathBuf, Box<dyn Error>> {
    given.map_or_else(|| build(&["--bin", "monolock"], "monolock"), |given| Ok(given.to_owned()))
}

/// The yardstick of this tree, unless another one is given.
pub(crate) fn yardstick(given: Option<&Path>) -> Result<PathBuf, Box<dyn Error>> {
    let what = ["-p", "monolock-ring", "--example", "echo"];
    given.map_or_else(|| build(&what, "examples/echo"), |given| Ok(given.to_owned()))
}

fn build(what: &[&str], program: &str) -> Result<PathBuf, Box<dyn Error>> {
    // What cargo has built for this bench has its profile, not that of a release.
    let release = Path::new(env!("CARGO_BIN_EXE_monolock")).parent().expect("a directory");
    let target = release.parent().expect("the directory of all profiles");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet"])
        .args(what)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    if !status.success() {
        return Err(format!("cargo build {what:?} failed").into());
    }
    Ok(target.join("release").join(program))
}
