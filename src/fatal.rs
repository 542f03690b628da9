//! Where the server can't go on: one line that says what is wrong and what to do, and a status.

use std::fmt::{self, Display};
use std::process::ExitCode;

/// The command line or the environment is wrong.
pub const EXIT_USAGE: u8 = 2;
/// The machine does not give what the server needs.
pub const EXIT_DEAD_END: u8 = 1;

/// Why the server does not start, or must stop.
#[derive(Debug)]
pub struct Fatal {
    status: u8,
    line: String,
}

impl Fatal {
    /// The command line or the environment is wrong.
    pub fn usage(line: impl Display) -> Fatal {
        Fatal { status: EXIT_USAGE, line: line.to_string() }
    }

    /// The machine does not give what the server needs.
    pub fn dead_end(line: impl Display) -> Fatal {
        Fatal { status: EXIT_DEAD_END, line: line.to_string() }
    }

    /// The status to exit with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

/// One line, whatever went into it.
impl Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.line.chars() {
            if c.is_control() {
                c.escape_default().fmt(f)?;
            } else {
                c.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Fatal {}
