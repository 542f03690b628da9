//! `monolock run`: hold a lock while a command runs.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use monolock_client::{
    AcquireError, Client, Held, Lock, Loss, Progress, RunError, StopReason, sleep,
};
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc;

use super::child::{Child, State};
use super::exit_code;
use super::forwarded;
use super::guard::Guard;
use super::run_options::{Options, Verbosity};
use super::say;
use super::terminal::{self, Terminal};
use crate::clock;

/// The command, from its arguments to the exit code.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let options = match Options::parse(arguments, |variable| std::env::var_os(variable)) {
        Ok(options) => options,
        Err(instead) => return instead.exit(),
    };
    // One thread, the process's first: the kernel kills the command when the thread that has
    // started it ends, and this one ends with the process.
    let ran = Builder::new_current_thread()
        .enable_io()
        .build()
        .and_then(|runtime| runtime.block_on(hold_and_run(options)));
    ExitCode::from(ran.unwrap_or_else(|error| {
        say(format_args!("cannot run: {error}"));
        exit_code::FAILED
    }))
}

async fn hold_and_run(options: Options) -> io::Result<u8> {
    let mut signals = forwarded::catch()?;
    let (lock, progress) = match lock(&options) {
        Ok(lock) => lock,
        Err(wrong) => {
            say(wrong);
            return Ok(exit_code::FAILED);
        }
    };
    tokio::spawn(report(progress, options.verbosity));
    let options = Arc::new(options);
    let has_begun = Arc::new(AtomicBool::new(false));
    let (to_command, for_command) = mpsc::unbounded_channel();
    let asked_at = clock::monotonic();
    let running = lock.run({
        let (options, has_begun) = (Arc::clone(&options), Arc::clone(&has_begun));
        |held: Held| async move {
            has_begun.store(true, Ordering::SeqCst);
            let waited = clock::monotonic().since(asked_at);
            if options.verbosity == Verbosity::Verbose {
                say(format_args!("acquired {:?} after {waited:.1?}", held.name()));
            }
            supervise(&held, &options, for_command).await
        }
    });
    let mut running = std::pin::pin!(running);
    loop {
        select! {
            biased;
            ran = &mut running => return Ok(judge(ran, &options)),
            Some(signal) = signals.recv() => {
                if has_begun.load(Ordering::SeqCst) {
                    // It may just have ended.
                    let _ = to_command.send(signal);
                } else if forwarded::ends_a_wait(signal) {
                    return Ok(code_of_signal(signal));
                } else if signal == Signal::TSTP {
                    // Ctrl-Z: it was caught for the command's sake, and there is none yet.
                    terminal::stop_this_process();
                }
            }
        }
    }
}

fn lock(
    options: &Options,
) -> Result<(Lock<Held>, mpsc::UnboundedReceiver<Progress>), monolock_client::InvalidInput> {
    let (sender, progress) = mpsc::unbounded_channel();
    let mut lock = Client::new(&options.address)?
        .lock(&options.lock)
        .lease(options.lease)
        // The command is ended by us, and the lock is released when it has been.
        .stop_within(Duration::MAX)
        .report_to(sender);
    if options.is_waiting {
        lock = options.wait_max.into_iter().fold(lock, Lock::wait_at_most);
    } else {
        lock = lock.no_wait();
    }
    if options.retries {
        lock = lock.retrying();
    }
    Ok((options.hold_max.into_iter().fold(lock, Lock::hold_at_most), progress))
}

/// Says how getting the lock goes on: all of it, or only that the server is not there.
async fn report(mut progress: mpsc::UnboundedReceiver<Progress>, verbosity: Verbosity) {
    let is_first_failure = Cell::new(true);
    while let Some(progress) = progress.recv().await {
        match progress {
            Progress::Queued { name } if verbosity == Verbosity::Verbose => {
                say(format_args!("{name:?} is held by somebody else; waiting in its queue"));
            }
            Progress::Retrying { failure, after } if verbosity == Verbosity::Verbose => {
                say(format_args!("{failure}; trying again in {after:.1?}"));
            }
            Progress::Retrying { failure, .. }
                if verbosity == Verbosity::Normal && is_first_failure.replace(false) =>
            {
                say(format_args!("{failure}; trying again until it works"));
            }
            _ => {}
        }
    }
}

/// How the command ended.
enum Ran {
    /// With this exit code.
    Ended(u8),
    /// It was not started, and this is what is said of it.
    NotStarted(u8, String),
}

/// Runs the command to its end, and reaps it.
async fn supervise(
    held: &Held,
    options: &Options,
    signals: mpsc::UnboundedReceiver<Signal>,
) -> io::Result<Ran> {
    // Before there is a child, so that no change of it is missed.
    let child_changes = signal(SignalKind::child())?;
    let mut terminal = Terminal::open()?;
    let guard = Guard::start()
        .inspect_err(|error| {
            let what = "should this process be killed, the command's own children would go on";
            say(format_args!("{what}: {error}"));
        })
        .ok();
    let child = match start(held, options, guard.as_ref()) {
        Ok(child) => child,
        Err(not_started) => {
            guard.into_iter().for_each(Guard::dismiss);
            return Ok(not_started);
        }
    };
    terminal.child_started(&child);
    let mut supervision = Supervision { child, terminal, child_changes, signals };
    let was_stopped = supervision.until_end(held, options).await;
    if !matches!(was_stopped, Ok(false)) {
        // What the command has left behind must not go on without the lock either.
        supervision.child.signal(Signal::KILL);
    }
    let Supervision { child, mut terminal, .. } = supervision;
    let code = child.reap();
    guard.into_iter().for_each(Guard::dismiss);
    let was_killed = code.as_ref().map_or(true, |code| *code > exit_code::SIGNAL_BASE);
    terminal.take_back();
    if was_killed || !matches!(was_stopped, Ok(false)) {
        terminal.restore();
    }
    was_stopped?;
    code.map(Ran::Ended)
}

fn start(held: &Held, options: &Options, guard: Option<&Guard>) -> Result<Child, Ran> {
    let token = match held.token() {
        Ok(token) => token,
        Err(loss) => return Err(Ran::NotStarted(options.lost_exit_code, loss.to_string())),
    };
    let variables = [
        ("MONOLOCK_LOCK", held.name().to_owned()),
        ("MONOLOCK_TOKEN", token.to_string()),
        ("MONOLOCK_LEASE_MS", held.lease().as_millis().to_string()),
    ];
    Child::start(&options.command, variables, guard).map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => exit_code::NOT_FOUND,
            _ => exit_code::NOT_EXECUTABLE,
        };
        let program = options.command.first().map(|program| program.to_string_lossy());
        Ran::NotStarted(code, format!("{:?}: {error}", program.unwrap_or_default()))
    })
}

/// The command while it runs, and all that it is told.
struct Supervision {
    child: Child,
    terminal: Terminal,
    child_changes: unix::Signal,
    signals: mpsc::UnboundedReceiver<Signal>,
}

impl Supervision {
    /// Waits until the command has ended, and ends it if it must not go on: true then.
    async fn until_end(&mut self, held: &Held, options: &Options) -> io::Result<bool> {
        let reason = loop {
            select! {
                biased;
                reason = held.stopping() => break reason,
                has_ended = self.has_ended_after_next_event(held) => if has_ended? {
                    return Ok(false);
                }
            }
        };
        let mut time_is_up = std::pin::pin!(sleep(self.ask_to_end(held, options, &reason)));
        let mut is_killed = false;
        loop {
            select! {
                biased;
                // A clock that fails leaves no time to wait for.
                _ = &mut time_is_up, if !is_killed => {
                    self.child.signal(Signal::KILL);
                    is_killed = true;
                }
                has_ended = self.has_ended_after_next_event(held) => if has_ended? {
                    return Ok(true);
                }
            }
        }
    }

    async fn has_ended_after_next_event(&mut self, held: &Held) -> io::Result<bool> {
        select! {
            biased;
            _ = self.child_changes.recv() => match self.child.state()? {
                State::Running => {}
                State::Stopped(by) => {
                    let is_to_go_on = self.terminal.child_stopped(&self.child, by);
                    // The lock may have been lost while both were stopped: then the command is to
                    // be ended before it takes another step.
                    if is_to_go_on && held.stop_reason().is_none() {
                        self.child.signal(Signal::CONT);
                    }
                }
                State::Ended => return Ok(true),
            },
            Some(signal) = self.signals.recv() => self.child.signal(signal),
        }
        Ok(false)
    }

    /// Says and sends what begins the end. Returns the time until the command is killed.
    fn ask_to_end(&self, held: &Held, options: &Options, reason: &StopReason) -> Duration {
        let time = options.kill_after.unwrap_or_else(|| match reason {
            // Nobody else has the lock before its lease is over.
            StopReason::Lost(Loss::Expired) => held.lease_left(),
            _ => held.lease() / 5,
        });
        if options.verbosity != Verbosity::Quiet {
            let what = match reason {
                StopReason::Lost(loss) => format!("lost {:?}: {loss}", held.name()),
                _ => format!("held {:?} for as long as --max-hold permits", held.name()),
            };
            if time.is_zero() {
                say(format_args!("{what}; killing the command"));
            } else {
                say(format_args!("{what}; ending the command, by force in {time:.1?}"));
            }
        }
        self.child.signal(options.signal);
        // One that is stopped could not end itself.
        self.child.signal(Signal::CONT);
        time
    }
}

/// Says what is left to say, and gives the exit code.
fn judge(ran: Result<io::Result<Ran>, RunError<io::Result<Ran>>>, options: &Options) -> u8 {
    let output = match ran {
        Ok(output) => return judge_command(output),
        Err(RunError::NotAcquired(error)) => return judge_failure(&error, options),
        Err(RunError::Lost { output, .. } | RunError::HeldTooLong { output }) => output,
        Err(_) => None,
    };
    if let Some(Ok(Ran::NotStarted(..)) | Err(_)) = output {
        output.map(judge_command);
    }
    options.lost_exit_code
}

fn judge_command(output: io::Result<Ran>) -> u8 {
    match output {
        Ok(Ran::Ended(code)) => code,
        Ok(Ran::NotStarted(code, line)) => {
            say(line);
            code
        }
        Err(error) => {
            say(format_args!("lost sight of the command, and killed it: {error}"));
            exit_code::FAILED
        }
    }
}

fn judge_failure(error: &AcquireError, options: &Options) -> u8 {
    match error {
        AcquireError::Taken { .. } | AcquireError::TimedOut { .. } => {
            if options.verbosity != Verbosity::Quiet {
                say(error);
            }
            options.conflict_exit_code
        }
        _ => {
            say(error);
            exit_code::FAILED
        }
    }
}

fn code_of_signal(signal: Signal) -> u8 {
    u8::try_from(signal.as_raw()).expect("a signal is below 65") + exit_code::SIGNAL_BASE
}
