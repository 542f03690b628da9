//! Signals. Their handlers stand before anything else is done, so that none that comes during the
//! start ends the process; they are acted upon once there is somebody to tell.

use std::io;
use std::process;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Shut down (SIGTERM, SIGINT); this is the signal's name.
    ShutDown(&'static str),
    /// Read the files again (SIGHUP).
    Reload,
}

/// Caught signals that nobody has been told of yet.
#[derive(Debug)]
pub struct Caught {
    signals: Signals,
}

/// Begins to catch signals. SIGPIPE is ignored by the Rust runtime already.
///
/// # Errors
/// If there is no descriptor to be had.
pub fn catch() -> io::Result<Caught> {
    Ok(Caught { signals: Signals::new([SIGTERM, SIGINT, SIGHUP])? })
}

impl Caught {
    /// Tells of each signal on a thread of its own. The second one that asks for the end ends the
    /// process at once, with the status that a shell gives to who died of that signal.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn tell(mut self, tell: impl Fn(Request) + Send + 'static) -> io::Result<()> {
        thread::Builder::new().name("signals".into()).spawn(move || {
            let mut shutting_down = false;
            for signal in &mut self.signals {
                match signal {
                    SIGHUP => tell(Request::Reload),
                    _ if shutting_down => process::exit(128 + signal),
                    _ => {
                        shutting_down = true;
                        tell(Request::ShutDown(signal_name(signal).unwrap_or("a signal")));
                    }
                }
            }
        })?;
        Ok(())
    }
}
