//! The signals that are passed on to the command.

use std::fs;
use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Those of people and supervisors. TSTP and CONT stop and resume a job.
const FORWARDED: [Signal; 8] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
];

/// Catches them from now on, on the current runtime, and gives them out one by one.
///
/// What was ignored when this process was started, as SIGHUP is by nohup(1), stays ignored: the
/// command inherits that.
///
/// # Errors
/// If a handler can't be installed.
pub(crate) fn catch() -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    let ignored = ignored_at_start();
    let (caught, signals) = mpsc::unbounded_channel();
    for forwarded in FORWARDED {
        let number = forwarded.as_raw();
        if ignored & (1 << (number - 1)) != 0 {
            continue;
        }
        let mut stream = signal(SignalKind::from_raw(number))?;
        let caught = caught.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() && caught.send(forwarded).is_ok() {}
        });
    }
    Ok(signals)
}

/// Whether this signal ends the wait in the queue.
pub(crate) fn ends_a_wait(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// A bit for each signal, as the kernel shows them; none if it doesn't.
fn ignored_at_start() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
