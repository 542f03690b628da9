//! The server of this workspace, started by the load generator.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_BIN_EXE_monolock-loadgen")).with_file_name("monolock");
    // It is there, and up to date, when the whole workspace is tested. It is of another package, so
    // the tests of this one alone have to see to it themselves.
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--package", "monolock", "--bin", "monolock"]);
    if path.parent().is_some_and(|folder| folder.ends_with("release")) {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
    assert!(status.success(), "the server can't be built: {status}");
    path
});

/// Where the program is.
pub(crate) fn monolock() -> &'static Path {
    &PATH
}
