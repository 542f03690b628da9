//! Where the server can't go on: one line that says what is wrong and what to do, and a status.

use std::fmt::{self, Display};
use std::io::{self, Write};
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

    /// Says it on stderr, and returns the status to exit with.
    pub fn report(&self) -> ExitCode {
        // A closed stderr is no reason to end with another status.
        let _ = writeln!(io::stderr(), "monolock: {self}");
        self.exit_code()
    }

    /// The status to exit with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.line).fmt(f)
    }
}

/// One line, whatever went into it: control characters, and those that turn the direction of
/// writing, are escaped.
pub(crate) fn escaped(line: &str) -> impl Display {
    fmt::from_fn(|f| {
        for c in line.chars() {
            if is_plain(c) { c.fmt(f)? } else { c.escape_debug().fmt(f)? }
        }
        Ok(())
    })
}

/// Whether a terminal only shows this character, and does nothing else on it.
pub(crate) fn is_plain(c: char) -> bool {
    // A quote or a backslash, which would be escaped as well, makes two characters.
    !c.is_control() && c.escape_debug().count() <= 2
}

impl std::error::Error for Fatal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_forge_a_line_or_turn_its_direction_is_escaped() {
        let line = Fatal::usage("it's \"a\\b\" é\n\u{202e}x\u{7f}").to_string();
        assert_eq!(line, "it's \"a\\b\" é\\n\\u{202e}x\\u{7f}");
    }
}
