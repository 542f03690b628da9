//! Diagnostics on stderr. They are written by a thread of their own and dropped rather than waited
//! for, since whoever reads stderr may have stopped reading.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

use crate::config::{Config, LogFormat};

/// Lines that wait for stderr; what comes on top is dropped.
const LINES_WAITING_MAX: usize = 8192;

/// Keeps the writer alive; what is waiting is written when this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Logging {
    _writer: WorkerGuard,
}

/// Begins to log. May be called once in a process.
pub fn start(config: &Config) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING_MAX)
        .thread_name("log")
        .finish(io::stderr());
    let colour = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(config.log_level)
        .with_target(false)
        .with_ansi(colour)
        .with_writer(writer);
    match config.log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
    Logging { _writer: guard }
}
