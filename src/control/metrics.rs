//! Every metric there is, in Prometheus' text format. No label has a name, an identity or an
//! address as its value: those are the clients' choice, and a time series for each would be without
//! end.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolock_core::counts::Counts;
use monolock_core::effect::ReleaseReason;
use monolock_core::histogram::{DURATION_BOUNDS_MS, DurationHistogram, RATIO_BUCKETS};
use monolock_core::time::UnixTime;
use monolock_core::wire::ErrorCode;

use super::process_stats::{self, ProcessStats};
use super::running::{LoopReport, Reload, Running};
use crate::{clock, config};

/// What kind of a metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, as long as the process lives.
    Counter,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The kind's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric, with a sample for each combination of its labels.
#[derive(Debug)]
pub struct Family {
    /// As scraped.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What it says.
    pub help: &'static str,
    samples: fn(&Readings, &mut Samples<'_>),
}

/// What the samples are made of, read at one time.
struct Readings {
    started_at: UnixTime,
    /// The sum over all event loops.
    counts: Counts,
    loops: Vec<LoopReport>,
    stuck: Vec<usize>,
    slots_used: u64,
    slots_max: u64,
    connections_accepted: u64,
    accept_errors: u64,
    token_ahead_seconds: f64,
    audit_dropped: u64,
    is_draining: bool,
    last_reload: Reload,
    process: ProcessStats,
}

/// Every metric, in the order in which they are shown.
pub const FAMILIES: &[Family] = &[
    gauge(
        "monolock_connections_active",
        "Connections of clients, with a claim or still without one.",
        |now, out| out.value(now.counts.connections),
    ),
    gauge("monolock_locks_held", "Locks with a holder.", |now, out| {
        out.value(now.counts.locks_held);
    }),
    gauge("monolock_waiters", "Claims that wait for their lock.", |now, out| {
        out.value(now.counts.waiters);
    }),
    gauge(
        "monolock_session_slots",
        "Places for connections, those that are just being closed included.",
        |now, out| {
            out.labelled(&[("state", "used")], now.slots_used);
            out.labelled(&[("state", "max")], now.slots_max);
        },
    ),
    counter("monolock_acquires_total", "Grants, at once and after a wait.", |now, out| {
        out.value(now.counts.acquires);
    }),
    counter("monolock_releases_total", "Holders that lost their lock.", |now, out| {
        for reason in ReleaseReason::ALL {
            out.labelled(&[("reason", reason.as_str())], now.counts.releases(reason));
        }
    }),
    counter("monolock_heartbeats_total", "HEARTBEATs answered.", |now, out| {
        out.value(now.counts.heartbeats);
    }),
    histogram(
        "monolock_lease_remaining_ratio",
        "How much of its lease was left when a HEARTBEAT came. The sum is an estimate.",
        |now, out| {
            let (totals, count) = now.counts.lease_remaining.cumulative();
            let bounds = (1..RATIO_BUCKETS).map(|step| ratio_bound(step).to_string());
            // A whole lease is in the last bucket.
            let buckets = bounds.zip(totals).chain([("1".to_owned(), count)]);
            out.histogram(buckets, count, now.counts.lease_remaining.sum());
        },
    ),
    histogram("monolock_wait_seconds", "From ACQUIRE to grant.", |now, out| {
        out.durations(&now.counts.waits);
    }),
    histogram("monolock_hold_seconds", "From grant to release.", |now, out| {
        out.durations(&now.counts.holds);
    }),
    counter("monolock_connections_accepted_total", "Connections accepted.", |now, out| {
        out.value(now.connections_accepted);
    }),
    counter(
        "monolock_accept_errors_total",
        "Connections that could not be accepted; they were tried again.",
        |now, out| out.value(now.accept_errors),
    ),
    counter(
        "monolock_first_frame_timeouts_total",
        "Connections closed because their first frame was not there in time.",
        |now, out| out.value(now.counts.first_frame_timeouts),
    ),
    counter("monolock_protocol_errors_total", "Sessions ended by a client error.", |now, out| {
        for number in ErrorCode::CLIENT_ERROR_MIN.get()..=ErrorCode::LEASE_TOO_LONG.get() {
            let code = ErrorCode::new(number);
            out.labelled(&[("code", &code.to_string())], now.counts.protocol_errors(code));
        }
    }),
    counter(
        "monolock_acl_denials_total",
        "Claims on a lock that was not permitted.",
        |now, out| {
            out.value(now.counts.protocol_errors(ErrorCode::NOT_AUTHORIZED));
        },
    ),
    gauge("monolock_draining", "Whether nothing is granted any more.", |now, out| {
        out.value(u8::from(now.is_draining));
    }),
    counter(
        "monolock_audit_dropped_total",
        "Events that the audit log has no room for; its gaps are marked.",
        |now, out| out.value(now.audit_dropped),
    ),
    counter("monolock_tls_handshake_errors_total", "TLS handshakes that failed.", |_, out| {
        // Without TLS there is no handshake that could.
        out.value(0);
    }),
    gauge(
        "monolock_token_ahead_seconds",
        "How far the newest fencing token is ahead of the wall clock; 0 if it is not.",
        |now, out| out.value(now.token_ahead_seconds),
    ),
    gauge("monolock_loop_responsive", "Whether an event loop turns.", |now, out| {
        for shard in 0..now.loops.len() {
            out.of_shard(shard, u8::from(!now.stuck.contains(&shard)));
        }
    }),
    counter(
        "monolock_loop_busy_seconds_total",
        "Processor time of an event loop's thread, the kernel's work for it included.",
        |now, out| out.of_shards(now, |report| report.busy.as_secs_f64()),
    ),
    counter("monolock_loop_iterations_total", "Turns of an event loop.", |now, out| {
        out.of_shards(now, |report| report.tally.turns);
    }),
    counter("monolock_loop_completions_total", "Events that a loop has taken in.", |now, out| {
        out.of_shards(now, |report| report.tally.events);
    }),
    gauge(
        "monolock_last_reload_successful",
        "Whether all files could be read when they were last read, at the start or by SIGHUP.",
        |now, out| out.value(u8::from(now.last_reload.has_succeeded)),
    ),
    gauge(
        "monolock_last_reload_timestamp_seconds",
        "When files were last read, at the start or by SIGHUP.",
        |now, out| out.value(unix_seconds(now.last_reload.at)),
    ),
    gauge("monolock_build_info", "What was built; the value is 1.", |_, out| {
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("commit", config::COMMIT),
            ("driver", "io_uring"),
        ];
        out.labelled(&labels, 1);
    }),
    counter("process_cpu_seconds_total", "Processor time, user and system.", |now, out| {
        out.value(now.process.cpu_seconds);
    }),
    gauge("process_open_fds", "Descriptors in the process's table.", |now, out| {
        out.value(now.process.open_fds);
    }),
    gauge("process_max_fds", "Most descriptors in the process's table.", |now, out| {
        out.value_if_known(now.process.max_fds);
    }),
    gauge("process_virtual_memory_bytes", "Address space.", |now, out| {
        out.value_if_known(now.process.virtual_bytes);
    }),
    gauge("process_resident_memory_bytes", "Memory in use.", |now, out| {
        out.value_if_known(now.process.resident_bytes);
    }),
    gauge("process_start_time_seconds", "When the process was started.", |now, out| {
        out.value(unix_seconds(now.started_at));
    }),
];

/// All metrics as they are now.
pub(super) async fn exposition(running: &Running) -> String {
    let readings = Readings::take(running).await;
    let mut text = String::with_capacity(16 << 10);
    for Family { name, kind, help, samples } in FAMILIES {
        let kind = kind.as_str();
        let mut out = Samples { text: String::new(), name };
        samples(&readings, &mut out);
        if !out.text.is_empty() {
            write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{}", out.text)
                .expect("writing to a string");
        }
    }
    text
}

impl Readings {
    async fn take(running: &Running) -> Readings {
        let loops = running.loop_reports().await;
        let mut counts = Counts::default();
        loops.iter().for_each(|report| counts.add(&report.counts));
        let places = || running.shards.iter().map(|shard| shard.places());
        let now = clock::now().unix;
        Readings {
            started_at: running.started_at,
            counts,
            loops,
            stuck: running.loop_watch.stuck(),
            slots_used: places().map(|places| u64::from(places.taken())).sum(),
            slots_max: places().map(|places| u64::from(places.max())).sum(),
            connections_accepted: running.accept_counts.accepted.load(Ordering::Relaxed),
            accept_errors: running.accept_counts.errors.load(Ordering::Relaxed),
            token_ahead_seconds: running.mint.ahead_seconds(now),
            audit_dropped: running.audit_ledger.dropped(),
            is_draining: running.drain().is_some(),
            last_reload: running.last_reload.get(),
            process: process_stats::read(),
        }
    }
}

/// The samples of one family.
struct Samples<'a> {
    text: String,
    name: &'a str,
}

impl Samples<'_> {
    fn value(&mut self, value: impl Display) {
        self.sample("", &[], value);
    }

    fn value_if_known(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.value(value);
        }
    }

    fn labelled(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, value);
    }

    fn of_shard(&mut self, shard: usize, value: impl Display) {
        self.sample("", &[("shard", &shard.to_string())], value);
    }

    fn of_shards<V: Display>(&mut self, now: &Readings, value: impl Fn(&LoopReport) -> V) {
        for (shard, report) in now.loops.iter().enumerate() {
            self.of_shard(shard, value(report));
        }
    }

    fn durations(&mut self, histogram: &DurationHistogram) {
        let (totals, count) = histogram.cumulative();
        let bounds = DURATION_BOUNDS_MS
            .iter()
            .map(|&bound_ms| Duration::from_millis(bound_ms.into()).as_secs_f64().to_string());
        self.histogram(bounds.zip(totals), count, histogram.sum_seconds());
    }

    fn histogram(&mut self, buckets: impl Iterator<Item = (String, u64)>, count: u64, sum: f64) {
        for (bound, total) in buckets {
            self.sample("_bucket", &[("le", &bound)], total);
        }
        self.sample("_bucket", &[("le", "+Inf")], count);
        self.sample("_sum", &[], sum);
        self.sample("_count", &[], count);
    }

    /// Label values are ours and plain: nothing in them needs escaping.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(text, "{before}{label}=\"{value}\"").expect("writing to a string");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(text, "{after} {value}").expect("writing to a string");
    }
}

type Show = fn(&Readings, &mut Samples<'_>);

const fn gauge(name: &'static str, help: &'static str, samples: Show) -> Family {
    Family { name, kind: Kind::Gauge, help, samples }
}

const fn counter(name: &'static str, help: &'static str, samples: Show) -> Family {
    Family { name, kind: Kind::Counter, help, samples }
}

const fn histogram(name: &'static str, help: &'static str, samples: Show) -> Family {
    Family { name, kind: Kind::Histogram, help, samples }
}

#[expect(clippy::cast_precision_loss, reason = "a sixteenth is exact")]
fn ratio_bound(step: usize) -> f64 {
    step as f64 / RATIO_BUCKETS as f64
}

fn unix_seconds(time: UnixTime) -> f64 {
    Duration::new(time.secs(), time.subsec_nanos()).as_secs_f64()
}
