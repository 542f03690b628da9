//! The load generator for lock servers of protocol version 1: it offers load by a plan, times what
//! the server does, and judges it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`command_line`], [`settings`], [`scenario`], [`expectation`] | what a run is told |
//! | [`plan`], [`random`], [`lengths`], [`pace`] | what is to happen when, drawn from the seed |
//! | [`run`], [`worker`], [`course`], [`busy_time`] | a run and its threads |
//! | [`script`] | what the scenarios do |
//! | [`drive`], [`session`], [`source`], [`lock_names`] | sessions on a ring |
//! | [`checker`], [`judges`], [`succession`] | the judge, and one for servers that take over |
//! | [`guard`] | a resource that checks tokens |
//! | [`pause_plan`], [`silence`], [`resource`] | holders that fall silent, and what they write to |
//! | [`holder_process`] | sessions that are processes, and can be stopped |
//! | [`phase`], [`mark`], [`recorder`] | what is timed, and what explains it |
//! | [`results`], [`summary`], [`report`] | what comes out |
//! | [`comparison`] | several results side by side |
//! | [`preflight`], [`server_process`], [`procfs`], `sys` | a server: asked, started, looked at |
//! | [`subject`], [`conductor`], [`kill_plan`], [`outages`] | servers that fail, and when |
//! | [`forwarder`], [`staged_clock`] | what leads to them, and clocks that are wrong |
//! | [`clock`], [`duration`], [`failure`], [`plain_text`] | time, ends, and what is printed |

pub mod busy_time;
pub mod checker;
pub mod clock;
pub mod command_line;
pub mod comparison;
pub mod conductor;
pub mod course;
pub mod drive;
pub mod duration;
pub mod expectation;
pub mod failure;
pub mod forwarder;
pub mod guard;
pub mod holder_process;
pub mod judges;
pub mod kill_plan;
pub mod lengths;
pub mod lock_names;
pub mod mark;
pub mod outages;
pub mod pace;
pub mod pause_plan;
pub mod phase;
pub mod plain_text;
pub mod plan;
pub mod preflight;
pub mod procfs;
pub mod random;
pub mod recorder;
pub mod report;
pub mod resource;
pub mod results;
pub mod run;
pub mod scenario;
pub mod script;
pub mod server_process;
pub mod session;
pub mod settings;
pub mod silence;
pub mod source;
pub mod staged_clock;
pub mod subject;
pub mod succession;
pub mod summary;
mod sys;
pub mod worker;

use std::env;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::command_line::{FilesToCompare, Request};
use crate::comparison::Comparison;
use crate::failure::{Failure, Verdict};
use crate::report::{console, hgrm, hlog, svg};
use crate::results::Results;
use crate::settings::{Outputs, Settings};

/// The program.
pub fn main() -> ExitCode {
    let verdict = match command_line::parse(env::args_os().skip(1)) {
        Ok(Request::Print(text)) => print(&text).map(|()| Verdict::Fine),
        Ok(Request::Run(settings)) => load(&settings),
        Ok(Request::Compare(comparison)) => compare(&comparison),
        Ok(Request::HoldLock) => holder_process::run(),
        Err(failure) => Err(failure),
    };
    verdict
        .unwrap_or_else(|failure| {
            // A closed stderr is no reason to end with another status.
            let _ = writeln!(io::stderr(), "monolock-loadgen: {failure}");
            failure.verdict()
        })
        .into()
}

fn load(settings: &Settings) -> Result<Verdict, Failure> {
    check_files(&settings.outputs)?;
    let interrupted = catch_interrupt()?;
    // First of all, so that it is known whatever happens.
    let _ = writeln!(io::stderr(), "seed {}", settings.load.seed);
    let seen = run::run(settings, &interrupted)?;
    let results = summary::summarize(settings, seen)
        .map_err(|error| Failure::cut_short(format_args!("cannot sum up: {error}")))?;
    // All is tried: a full disk doesn't cost the report, nor a closed pipe the files.
    let written = write_files(&settings.outputs, &results);
    report(&settings.outputs, &results)?;
    written?;
    Ok(verdict(&results))
}

fn report(outputs: &Outputs, results: &Results) -> Result<(), Failure> {
    if outputs.csv {
        // What makes the table less than it seems must not be missed, and has no column.
        let notes = plain_text::lines(&console::notes(results));
        let _ = io::stderr().write_all(notes.as_bytes());
        return print(&console::csv(results));
    }
    print(&if outputs.quiet { console::quiet(results) } else { console::report(results) })
}

fn compare(files: &FilesToCompare) -> Result<Verdict, Failure> {
    let read = |path: &PathBuf| match Results::read(path) {
        Ok(results) => Ok((plain_text::one_line(&path.to_string_lossy()), results)),
        Err(error) => Err(Failure::usage(format_args!("{} {error}", path.display()))),
    };
    check_file(files.svg_out_file.as_deref())?;
    let runs = files.paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let comparison = Comparison::new(runs);
    print(&comparison.table())?;
    if let Some(path) = &files.svg_out_file {
        let picture = svg::of_comparison(&comparison);
        write_file(path, |out| out.write_all(picture.as_bytes()))?;
    }
    Ok(Verdict::Fine)
}

/// What counts most comes first: a server that breaks locks, then a run that wasn't what it should
/// have been, whose expectations mean nothing.
fn verdict(results: &Results) -> Verdict {
    if results.violations() > 0 {
        Verdict::InvariantBroken
    } else if !results.limits.is_empty() {
        Verdict::NotClean
    } else if results.expectations.iter().any(|expectation| !expectation.is_met) {
        Verdict::ExpectationMissed
    } else {
        Verdict::Fine
    }
}

/// INT and TERM end the measured time. A second INT ends the process; a second TERM doesn't, as
/// `timeout` sends two.
fn catch_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;
    let interrupted = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&interrupted))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&interrupted)))
        .and_then(|_| flag::register(SIGTERM, Arc::clone(&interrupted)))
        .map_err(|error| Failure::cut_short(format_args!("cannot catch signals: {error}")))?;
    Ok(interrupted)
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout()
        .write_all(plain_text::lines(text).as_bytes())
        .map_err(|error| Failure::cut_short(format_args!("cannot write to stdout: {error}")))
}

fn write_files(outputs: &Outputs, results: &Results) -> Result<(), Failure> {
    if let Some(path) = &outputs.json_out_file {
        let text = results.to_json().map_err(io::Error::other);
        write_file(path, |out| out.write_all(text?.as_bytes()))?;
    }
    if let Some(path) = &outputs.svg_out_file {
        let picture = svg::of_run(results);
        write_file(path, |out| out.write_all(picture.as_bytes()))?;
    }
    if let Some(prefix) = &outputs.hdr_file_prefix {
        for phase in &results.phases {
            let path = with_suffix(prefix, &format!("-{}.hgrm", phase.name));
            let histogram = phase.corrected.histogram().map_err(io::Error::other);
            write_file(&path, |out| hgrm::write(&histogram?, out))?;
        }
        write_file(&with_suffix(prefix, ".hlog"), |out| hlog::write(results, out))?;
    }
    Ok(())
}

/// Whether the files can be written, before the time is spent that it takes to have something for
/// them.
fn check_files(outputs: &Outputs) -> Result<(), Failure> {
    check_file(outputs.json_out_file.as_deref())?;
    check_file(outputs.svg_out_file.as_deref())?;
    let hlog = outputs.hdr_file_prefix.as_ref().map(|prefix| with_suffix(prefix, ".hlog"));
    check_file(hlog.as_deref())
}

fn check_file(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else {
        return Ok(());
    };
    let is_there = path.exists();
    // To open a pipe would be to wait for its reader.
    if is_there && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let opened = File::options().append(true).create(true).open(path);
    let checked = if is_there || opened.is_err() { Ok(()) } else { fs::remove_file(path) };
    opened
        .and(checked)
        .map_err(|error| Failure::usage(format_args!("cannot write {}: {error}", path.display())))
}

fn with_suffix(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        write(&mut out)?;
        out.flush()
    };
    write().map_err(|error| {
        Failure::cut_short(format_args!("cannot write {}: {error}", path.display()))
    })
}
