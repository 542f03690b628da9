//! Programs that are not the project's own.

use std::io::Write;
use std::process::{Child, Command, Stdio};

/// Whether this program is installed. If it is not, says which package a skipped test needs.
pub(crate) fn is_installed(program: &str, package: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_installed = version.status().is_ok_and(|status| status.success());
    if !is_installed {
        say_skipped(package);
    }
    is_installed
}

/// Says that a test is skipped for want of a package, past the capture of a test's output.
pub(crate) fn say_skipped(package: &str) {
    writeln!(std::io::stderr(), "SKIPPED: install {package}").expect("writing to stderr");
}

/// A process that is killed when dropped.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
