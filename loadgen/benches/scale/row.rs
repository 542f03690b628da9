//! One run as a row of the table.

use std::time::Duration;

use monolock_core::wire::ErrorCode;
use monolock_loadgen::duration;
use monolock_loadgen::results::Results;

const HEADS: [&str; 12] = [
    "sessions",
    "lease",
    "subject, rings",
    "CPU µs a heartbeat",
    "ratio",
    "of the load generator, µs",
    "heartbeats, of planned",
    "99.9 %, ms",
    "user, kernel bytes a session",
    "lost",
    "connected in",
    "shut down in, sessions told",
];

/// What was seen of one subject.
pub(crate) struct Row {
    name: String,
    cpu_us: Option<f64>,
    cells: [String; HEADS.len()],
    limits: Vec<String>,
}

pub(crate) fn print_heads() {
    println!("| {} |", HEADS.join(" | "));
    println!("|{}", "---|".repeat(HEADS.len()));
}

/// Prints the rows of one round, the server's with its ratio to the yardstick.
pub(crate) fn print(rows: &[Row]) {
    let yardstick = rows.iter().find(|row| row.name == "yardstick").and_then(|row| row.cpu_us);
    for row in rows {
        let mut cells = row.cells.clone();
        if row.name == "server"
            && let (Some(own), Some(yardstick)) = (row.cpu_us, yardstick)
        {
            cells[4] = format!("{:.3}", own / yardstick);
        }
        println!("| {} |", cells.join(" | "));
    }
    for row in rows {
        for limit in &row.limits {
            println!("\n{}: NOT A CLEAN RESULT: {limit}\n", row.name);
        }
    }
}

impl Row {
    pub(crate) fn of(name: &str, shards: u64, results: &Results) -> Row {
        let parameters = &results.parameters;
        let show = |ms| duration::show(Duration::from_millis(ms));
        let server = results.server.as_ref();
        let cpu_us = server.and_then(|server| server.cpu_us_per_operation);
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let bytes = |value: Option<f64>| number(value, 0);
        let heartbeats = results.phase("heartbeat");
        let cells = [
            parameters.sessions.to_string(),
            show(parameters.lease_ms.into()),
            format!("{name}, {shards}"),
            number(cpu_us, 2),
            String::new(),
            number(results.own.cpu_us_per_operation, 2),
            heartbeats.map_or("-".to_owned(), |found| of_planned(found.count, results)),
            number(heartbeats.and_then(|found| found.corrected.at_percentile_ms(99.9)), 1),
            format!(
                "{}, {}",
                bytes(server.and_then(|server| server.resident_bytes_per_session)),
                bytes(server.and_then(|server| server.kernel_bytes_per_session)),
            ),
            lost(results),
            show(parameters.setup_ms),
            shutdown(results),
        ];
        Row { name: name.to_owned(), cpu_us, cells, limits: results.limits.clone() }
    }
}

/// Four heartbeats a lease are planned of each session, in the measured time.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn of_planned(count: u64, results: &Results) -> String {
    let parameters = &results.parameters;
    let intervals = parameters.duration_ms as f64 * 4.0 / f64::from(parameters.lease_ms);
    let planned = f64::from(parameters.sessions) * intervals;
    format!("{count}, {:.1} %", count as f64 / planned * 100.0)
}

fn lost(results: &Results) -> String {
    if results.losses.is_empty() {
        return "0".to_owned();
    }
    let each = results.losses.iter().map(|(words, count)| format!("{count} x {words}"));
    each.collect::<Vec<_>>().join("; ")
}

fn shutdown(results: &Results) -> String {
    let Some(shutdown) = &results.shutdown else {
        return "-".to_owned();
    };
    let told_so = format!("ERROR {} ", ErrorCode::SHUTTING_DOWN);
    let told = shutdown.endings.iter().filter(|(words, _)| words.starts_with(&told_so));
    let told: u64 = told.map(|(_, count)| count).sum();
    let took = duration::show(Duration::from_millis(shutdown.took_ms));
    format!("{took}, {told}{}", if shutdown.is_clean { "" } else { ", not cleanly" })
}
