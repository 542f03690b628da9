//! The report on the console: what ran, how long things took, what it cost, what was broken.

use std::fmt::Write;
use std::time::Duration;

use super::outages;
use crate::checker::Invariant;
use crate::duration;
use crate::results::{Fencing, PhaseResult, Results};
use crate::scenario::Scenario;

/// So many marks are printed.
const MARKS_MAX: usize = 40;

/// The column of names is at least so wide.
const NAME_WIDTH: usize = 9;

/// The report, in the order of the conventions.
pub fn report(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String doesn't fail.
    let _ = write_report(results, &mut text);
    text
}

/// One line a phase.
pub fn quiet(results: &Results) -> String {
    let mut text = String::new();
    for phase in &results.phases {
        let Some([p50, p99]) = at(phase, [50.0, 99.0]) else {
            continue;
        };
        let PhaseResult { name, count, errors, corrected, .. } = phase;
        let _ = write!(text, "{name}: {count}");
        if let Some(rate) = rate(results, phase) {
            let _ = write!(text, " at {rate:.1}/s");
        }
        let _ = write!(text, ", {errors} errors");
        if *count > 0 {
            let max = corrected.max_ms;
            let _ = write!(text, ", p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms");
        }
        let _ = writeln!(text, "{}", loop_note(results));
    }
    text.push_str(&notes(results));
    text
}

/// What makes results less than they seem, or a failure.
pub fn notes(results: &Results) -> String {
    let mut text = String::new();
    let _ = write_limits(results, &mut text);
    let _ = write_sharing(results, &mut text);
    let _ = write_losses(results, &mut text);
    let _ = write_fencing(results, &mut text);
    let _ = write_broken(results, &mut text);
    let _ = write_expectations(results, &mut text);
    text
}

/// The table of phases with quoted heads, times in milliseconds; what there is not is left empty.
pub fn csv(results: &Results) -> String {
    let mut text = String::from(
        "\"phase\",\"count\",\"rate\",\"errors\",\"avg_ms\",\"min_ms\",\"p50_ms\",\"p90_ms\",\
         \"p99_ms\",\"p99.9_ms\",\"max_ms\",\"loop\"\n",
    );
    let kind = if results.parameters.is_open_loop { "open" } else { "closed" };
    for phase in &results.phases {
        let Some([p50, p90, p99, p999]) = at(phase, [50.0, 90.0, 99.0, 99.9]) else {
            continue;
        };
        let PhaseResult { name, count, errors, corrected, .. } = phase;
        let rate = rate(results, phase).map(|rate| format!("{rate:.1}")).unwrap_or_default();
        let _ = write!(text, "\"{name}\",{count},{rate},{errors}");
        let (avg, min, max) = (corrected.mean_ms, corrected.min_ms, corrected.max_ms);
        for time in [avg, min, p50, p90, p99, p999, max] {
            let cell = if *count > 0 { format!("{time:.3}") } else { String::new() };
            let _ = write!(text, ",{cell}");
        }
        let _ = writeln!(text, ",\"{kind}\"");
    }
    text
}

fn at<const N: usize>(phase: &PhaseResult, percentiles: [f64; N]) -> Option<[f64; N]> {
    let histogram = phase.corrected.histogram().ok()?;
    // Where all is nothing the histogram says that it is less than a microsecond.
    let max_ms = phase.corrected.max_ms;
    Some(percentiles.map(|percentile| crate::results::at(&histogram, percentile).min(max_ms)))
}

/// How many a second, unless that would be taken for what the server can do: in a closed loop it is
/// what client and server together get out of the processors that they share.
fn rate(results: &Results, phase: &PhaseResult) -> Option<f64> {
    let is_shared = results.environment.is_shared_with_server;
    (results.parameters.is_open_loop || !is_shared).then_some(phase.rate)
}

fn loop_note(results: &Results) -> &'static str {
    if results.parameters.is_open_loop { "" } else { " (closed loop)" }
}

fn write_report(results: &Results, text: &mut String) -> std::fmt::Result {
    write_conditions(results, text)?;
    write_limits(results, text)?;
    writeln!(text)?;
    write_phases(results, text)?;
    write_percentiles(results, text)?;
    outages::write(results, text)?;
    write_shares(results, text)?;
    write_shutdown(results, text)?;
    write_losses(results, text)?;
    write_marks(results, text)?;
    write_fencing(results, text)?;
    write_invariants(results, text)?;
    write_broken(results, text)?;
    if !results.expectations.is_empty() {
        writeln!(text)?;
        write_expectations(results, text)?;
    }
    Ok(())
}

fn write_conditions(results: &Results, text: &mut String) -> std::fmt::Result {
    let (parameters, environment) = (&results.parameters, &results.environment);
    let show = |ms| duration::show(Duration::from_millis(ms));
    writeln!(
        text,
        "monolock-loadgen {}: {}, seed {}",
        environment.version, parameters.scenario, parameters.seed
    )?;
    writeln!(
        text,
        "  {}, {}{}, lease {}, {}, measured {} after {} of warm-up",
        several(parameters.sessions, "session"),
        several(parameters.locks, "lock"),
        parameters.hold().map_or(String::new(), |hold| format!(", held for {hold}")),
        show(u64::from(parameters.lease_ms)),
        several(parameters.threads, "thread"),
        show(parameters.duration_ms),
        show(parameters.warmup_ms),
    )?;
    if let Some(pauses) = &parameters.pauses {
        writeln!(text, "  holders fall silent for {pauses}")?;
    }
    match (parameters.rate, parameters.is_open_loop) {
        (Some(rate), _) => {
            writeln!(text, "  open loop: {rate} operations a second, {}", parameters.arrivals)?;
        }
        (None, true) if parameters.scenario == Scenario::ConnectStorm.name() => writeln!(
            text,
            "  all at once: times count from the beginning of a storm, and include the load \
             generator's own connecting, one by one in each thread"
        )?,
        (None, true) => writeln!(text, "  open loop: heartbeats are due by the lease")?,
        (None, false) => writeln!(
            text,
            "  CLOSED LOOP: sessions wait for each other, so a slow server is asked less often"
        )?,
    }
    writeln!(
        text,
        "  Linux {}, {} CPUs, {} descriptors; server {}",
        environment.kernel,
        environment.cpus,
        environment.descriptors_max,
        environment.server_address,
    )?;
    if environment.is_shared_with_server {
        write!(text, "  ")?;
    }
    write_sharing(results, text)
}

fn write_sharing(results: &Results, text: &mut String) -> std::fmt::Result {
    if results.environment.is_shared_with_server {
        writeln!(
            text,
            "The server is on this machine and shares its CPUs with the load generator: its \
             latencies include that, and rates say nothing about its capacity."
        )?;
    }
    Ok(())
}

fn several(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn write_phases(results: &Results, text: &mut String) -> std::fmt::Result {
    let heads =
        ["count", "per second", "errors", "avg", "min", "p50", "p90", "p99", "p99.9", "max"];
    let names = results.phases.iter().map(|phase| phase.name.len());
    let width = names.fold(NAME_WIDTH, usize::max) + 1;
    write!(text, "{:<width$}", "phase, ms")?;
    for head in heads {
        write!(text, "{head:>11}")?;
    }
    writeln!(text)?;
    for phase in &results.phases {
        let Some(percentiles) = at(phase, [50.0, 90.0, 99.0, 99.9]) else {
            continue;
        };
        let PhaseResult { name, count, errors, corrected, .. } = phase;
        let rate = rate(results, phase).map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        write!(text, "{name:<width$}{count:>11}{rate:>11}{errors:>11}")?;
        if *count == 0 {
            writeln!(text)?;
            continue;
        }
        write!(text, "{:>11.3}{:>11.3}", corrected.mean_ms, corrected.min_ms)?;
        for percentile in percentiles {
            write!(text, "{percentile:>11.3}")?;
        }
        writeln!(text, "{:>11.3}{}", corrected.max_ms, loop_note(results))?;
    }
    if results.phases.is_empty() {
        writeln!(text, "nothing was recorded")?;
    }
    Ok(())
}

/// The percentiles that were asked for and that the table doesn't have.
fn write_percentiles(results: &Results, text: &mut String) -> std::fmt::Result {
    for phase in &results.phases {
        let mut percentiles: Vec<(f64, f64)> = phase
            .corrected
            .percentiles_ms
            .iter()
            .filter_map(|(percentile, ms)| Some((percentile.parse().ok()?, *ms)))
            .filter(|(percentile, _)| ![50.0, 90.0, 99.0, 99.9, 100.0].contains(percentile))
            .collect();
        if percentiles.is_empty() || phase.count == 0 {
            continue;
        }
        percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        write!(text, "  {}:", phase.name)?;
        for (percentile, ms) in percentiles {
            write!(text, " p{percentile} {ms:.3} ms")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn write_shares(results: &Results, text: &mut String) -> std::fmt::Result {
    let (server, own) = (results.server.as_ref(), &results.own);
    let an_operation =
        server.map_or("an operation".to_owned(), |server| format!("a {}", server.operation));
    writeln!(text)?;
    if let Some(server) = server {
        write!(text, "server: ")?;
        write_cost(server.cpu_us_per_operation, server.wakeups_per_operation, &an_operation, text)?;
        if let Some(bytes) = server.resident_bytes_per_session {
            write!(text, "{bytes:.0} resident bytes a session, ")?;
        }
        if let Some(bytes) = server.kernel_bytes_per_session {
            write!(text, "{bytes:.0} of the kernel for both ends, ")?;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
        let megabytes = server.resident_bytes as f64 / 1e6;
        writeln!(text, "{megabytes:.1} MB resident, {} descriptors", server.descriptors)?;
    }
    write!(text, "load generator: ")?;
    write_cost(own.cpu_us_per_operation, own.wakeups_per_operation, &an_operation, text)?;
    if let Some(ratio) = own.cpu_ratio_to_server {
        write!(text, "{ratio:.2} of the server's CPU, ")?;
    }
    writeln!(
        text,
        "busiest thread {:.0}%, begun late by {:.3} ms (p99)",
        own.busiest_thread_ratio * 100.0,
        own.slip_p99_ms
    )
}

/// What an operation cost one of the two, if operations were counted.
fn write_cost(
    cpu_us: Option<f64>,
    wakeups: Option<f64>,
    an_operation: &str,
    text: &mut String,
) -> std::fmt::Result {
    if let Some(us) = cpu_us {
        write!(text, "{us:.1} us of CPU ")?;
        if let Some(wakeups) = wakeups {
            write!(text, "and {wakeups:.2} wake-ups ")?;
        }
        write!(text, "{an_operation}, ")?;
    }
    Ok(())
}

fn write_limits(results: &Results, text: &mut String) -> std::fmt::Result {
    for limit in &results.limits {
        writeln!(text, "NOT A CLEAN RESULT: {limit}")?;
    }
    Ok(())
}

fn write_losses(results: &Results, text: &mut String) -> std::fmt::Result {
    for (reason, count) in &results.losses {
        writeln!(text, "lost: {count} x {reason}")?;
    }
    Ok(())
}

fn write_shutdown(results: &Results, text: &mut String) -> std::fmt::Result {
    let Some(shutdown) = &results.shutdown else {
        return Ok(());
    };
    let took = duration::show(Duration::from_millis(shutdown.took_ms));
    let how = if shutdown.is_clean { "" } else { ", NOT cleanly" };
    writeln!(text, "shutdown with all sessions: the server ended after {took}{how}")?;
    for (words, count) in &shutdown.endings {
        writeln!(text, "  {count} x {words}")?;
    }
    Ok(())
}

/// A few marks tell a story; many are for the plots.
fn write_marks(results: &Results, text: &mut String) -> std::fmt::Result {
    if results.marks.is_empty() || results.marks.len() > MARKS_MAX {
        return Ok(());
    }
    writeln!(text)?;
    for mark in &results.marks {
        writeln!(text, "{:>9.3} s  {:<10} {}", mark.at_ms / 1e3, mark.kind, mark.label)?;
    }
    writeln!(text)
}

fn write_fencing(results: &Results, text: &mut String) -> std::fmt::Result {
    let Some(fencing) = &results.fencing else {
        return Ok(());
    };
    let Fencing { pauses, takeovers, writes, stale_refused, stale_accepted, .. } = fencing;
    let stale = stale_refused + stale_accepted;
    writeln!(
        text,
        "whole run: {pauses} pauses, {takeovers} locks taken over meanwhile; {writes} writes, \
         {stale} of them stale: {stale_refused} refused, {stale_accepted} accepted"
    )?;
    let is_fenced = results.parameters.pauses.as_ref().is_none_or(|pauses| pauses.is_fenced);
    if !is_fenced {
        writeln!(
            text,
            "CORRUPTED without fencing: {stale_accepted} times a past holder's write has destroyed \
             a later one's{}{}",
            if *stale_accepted > 0 { "; first: " } else { "" },
            fencing.first_accepted
        )?;
    }
    Ok(())
}

fn write_invariants(results: &Results, text: &mut String) -> std::fmt::Result {
    write!(text, "invariants:")?;
    let mut separator = "";
    for invariant in &results.invariants {
        let words = words(&invariant.name);
        write!(text, "{separator} {words} {}", invariant.count)?;
        separator = ",";
    }
    writeln!(text)
}

fn write_broken(results: &Results, text: &mut String) -> std::fmt::Result {
    for invariant in results.invariants.iter().filter(|invariant| invariant.count > 0) {
        let words = words(&invariant.name);
        writeln!(text, "BROKEN: {words}, {} times; first: {}", invariant.count, invariant.first)?;
    }
    Ok(())
}

fn words(name: &str) -> &str {
    let invariant = Invariant::ALL.into_iter().find(|invariant| invariant.name() == name);
    match invariant {
        Some(invariant) => invariant.words(),
        None => name,
    }
}

fn write_expectations(results: &Results, text: &mut String) -> std::fmt::Result {
    for expectation in &results.expectations {
        let verdict = if expectation.is_met { "met" } else { "MISSED" };
        write!(text, "expected {}: {verdict}, ", expectation.text)?;
        match (expectation.found, expectation.is_latency) {
            (Some(found), true) => writeln!(text, "found {found:.3} ms")?,
            (Some(found), false) => writeln!(text, "found {found:.1}")?,
            (None, _) => writeln!(text, "nothing was recorded")?,
        }
    }
    Ok(())
}
