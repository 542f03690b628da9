//! Several results side by side, the first one as the measure of the others.

use std::fmt::Write;

use crate::phase::Phase;
use crate::report::outages;
use crate::results::{PhaseResult, Results, at};
use crate::scenario::Scenario;

/// Two numbers whose ratio differs by less than this are told as the same.
const RATIO_NOISE: f64 = 0.005;

/// A number of a phase, if it has it.
type PhaseNumber = dyn Fn(&PhaseResult) -> Option<f64>;

/// Results of several runs with their files' names.
#[derive(Debug)]
pub struct Comparison {
    runs: Vec<(String, Results)>,
}

impl Comparison {
    /// Of two or more runs.
    pub fn new(runs: Vec<(String, Results)>) -> Comparison {
        Comparison { runs }
    }

    /// The runs with their files' names.
    pub fn runs(&self) -> &[(String, Results)] {
        &self.runs
    }

    /// What stands in the way of comparing, in words; nothing if only the server differs.
    pub fn reservations(&self) -> Vec<String> {
        let mut reservations = Vec::new();
        let mut differ = |what: &str, value: &dyn Fn(&Results) -> String| {
            let values: Vec<String> = self.runs.iter().map(|(_, run)| value(run)).collect();
            if values.iter().any(|value| *value != values[0]) {
                reservations.push(format!("{what}: {}", values.join(" / ")));
            }
        };
        differ("scenario", &|run| run.parameters.scenario.clone());
        differ("sessions", &|run| run.parameters.sessions.to_string());
        differ("locks", &|run| run.parameters.locks.to_string());
        differ("lease", &|run| format!("{} ms", run.parameters.lease_ms));
        differ("rate", &|run| match run.parameters.rate {
            Some(rate) => format!("{rate}/s {}", run.parameters.arrivals),
            None if run.parameters.is_open_loop => "by the scenario".to_owned(),
            None => "closed loop".to_owned(),
        });
        differ("hold", &|run| match run.parameters.hold() {
            Some(hold) => hold.to_string(),
            None => "none".to_owned(),
        });
        differ("pauses", &|run| match &run.parameters.pauses {
            Some(pauses) => pauses.to_string(),
            None => "none".to_owned(),
        });
        differ("failing servers", &|run| match &run.parameters.kills {
            Some(kills) => outages::conditions(kills),
            None => "none".to_owned(),
        });
        differ("ramp", &|run| format!("{} ms", run.parameters.ramp_ms));
        differ("warm-up", &|run| format!("{} ms", run.parameters.warmup_ms));
        differ("measured time", &|run| format!("{} ms", run.parameters.duration_ms));
        differ("load generator's threads", &|run| run.parameters.threads.to_string());
        differ("load generator's version", &|run| run.environment.version.clone());
        differ("machine", &|run| run.environment.host.clone());
        differ("kernel", &|run| run.environment.kernel.clone());
        differ("CPUs", &|run| run.environment.cpus.to_string());
        differ("shares its machine with the server", &|run| {
            run.environment.is_shared_with_server.to_string()
        });
        for (name, run) in &self.runs {
            for limit in &run.limits {
                reservations.push(format!("{name} is not a clean result: {limit}"));
            }
            if run.violations() > 0 {
                reservations.push(format!("{name}: the server broke invariants"));
            }
        }
        reservations
    }

    /// The phase that the runs' scenario is about.
    pub fn main_phase(&self) -> Phase {
        let scenario = self.runs.first().map_or("", |(_, run)| run.parameters.scenario.as_str());
        let found = Scenario::ALL.into_iter().find(|candidate| candidate.name() == scenario);
        found.map_or(Phase::Heartbeat, Scenario::main_phase)
    }

    /// The table, times in milliseconds, with each number's ratio to the first run's.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String doesn't fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        for (number, (name, run)) in self.runs.iter().enumerate() {
            let parameters = &run.parameters;
            writeln!(
                text,
                "{}: {name}: {}, {} sessions, {} locks, server {}",
                letter(number),
                parameters.scenario,
                parameters.sessions,
                parameters.locks,
                run.environment.server_address
            )?;
        }
        let reservations = self.reservations();
        if !reservations.is_empty() {
            writeln!(
                text,
                "NOT COMPARABLE without reservations; the runs differ in more than the \
                 server:"
            )?;
            for reservation in reservations {
                writeln!(text, "  {reservation}")?;
            }
        }
        writeln!(text)?;
        write!(text, "{:<26}", "phase, ms")?;
        for number in 0..self.runs.len() {
            write!(text, "{:>20}", letter(number))?;
        }
        writeln!(text)?;
        for phase in Phase::ALL {
            self.write_phase(phase.name(), text)?;
        }
        self.write_row("server CPU us/operation", text, 1, &|run| {
            run.server.as_ref()?.cpu_us_per_operation
        })?;
        self.write_row("server bytes/session", text, 0, &|run| {
            run.server.as_ref()?.resident_bytes_per_session
        })?;
        self.write_row("own CPU us/operation", text, 1, &|run| run.own.cpu_us_per_operation)
    }

    fn write_phase(&self, name: &str, text: &mut String) -> std::fmt::Result {
        let percentile = |percentile: f64| {
            move |phase: &PhaseResult| {
                phase.corrected.histogram().ok().map(|histogram| at(&histogram, percentile))
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let rows: [(&str, usize, &PhaseNumber); 8] = [
            ("count", 0, &|phase| Some(phase.count as f64)),
            ("errors", 0, &|phase| Some(phase.errors as f64)),
            ("avg", 3, &|phase| Some(phase.corrected.mean_ms)),
            ("p50", 3, &percentile(50.0)),
            ("p90", 3, &percentile(90.0)),
            ("p99", 3, &percentile(99.0)),
            ("p99.9", 3, &percentile(99.9)),
            ("max", 3, &|phase| Some(phase.corrected.max_ms)),
        ];
        if self.runs.iter().all(|(_, run)| run.phase(name).is_none()) {
            return Ok(());
        }
        for (what, digits, value) in rows {
            let head = format!("{name}.{what}");
            self.write_row(&head, text, digits, &|run| value(run.phase(name)?))?;
        }
        Ok(())
    }

    /// A row, unless no run has the number.
    fn write_row(
        &self,
        head: &str,
        text: &mut String,
        digits: usize,
        value: &dyn Fn(&Results) -> Option<f64>,
    ) -> std::fmt::Result {
        let values: Vec<Option<f64>> = self.runs.iter().map(|(_, run)| value(run)).collect();
        if values.iter().all(Option::is_none) {
            return Ok(());
        }
        write!(text, "{head:<26}")?;
        for (number, value) in values.iter().enumerate() {
            let cell = match value {
                None => "-".to_owned(),
                Some(value) if number == 0 => format!("{value:.digits$}"),
                Some(value) => {
                    format!("{value:.digits$} {}", ratio(*value, values[0])).trim_end().to_owned()
                }
            };
            write!(text, "{cell:>20}")?;
        }
        writeln!(text)
    }
}

fn ratio(value: f64, first: Option<f64>) -> String {
    match first {
        Some(first) if first > 0.0 => {
            let ratio = value / first;
            if (ratio - 1.0).abs() < RATIO_NOISE { "(=)".into() } else { format!("(x{ratio:.2})") }
        }
        _ => String::new(),
    }
}

/// What a run is called in the table and the plot.
pub fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => format!("#{}", number + 1),
    }
}
