//! Results made of what was seen of a run.

mod limits;
mod outages;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use crate::checker::Invariant;
use crate::duration;
use crate::expectation::Expectation;
use crate::kill_plan::{KillPlan, Successor};
use crate::mark::Mark;
use crate::phase::Phase;
use crate::procfs::Usage;
use crate::recorder::{GRANTS_STEP_MS, PhaseRecord, Second, histogram};
use crate::results::{
    Environment, ExpectationResult, FORMAT_VERSION, Fencing, Grants, InvariantResult, Kills,
    Latencies, MarkResult, OwnShare, Parameters, PauseParameters, PhaseResult, Results,
    SecondResult, ServerShare, ShutdownResult, StandbyParameters, at, encode, ms,
};
use crate::run::Report;
use crate::scenario::Scenario;
use crate::settings::{Pauses, Settings};
use crate::worker::Outcome;

/// Makes results.
///
/// # Errors
/// Never, for histograms that were recorded here.
pub fn summarize(settings: &Settings, report: Report) -> io::Result<Results> {
    let server = server_share(settings, &report);
    let mut own = own_share(settings, &report, server.as_ref());
    let environment = environment(&report);
    let parameters = parameters(settings, &report);
    let grants = grants(&report);
    let (marks, marks_left_out) = marks(&report);
    let fencing = settings.load.pauses.is_some().then(|| fencing(&report));
    let mut phases: BTreeMap<Phase, PhaseRecord> = BTreeMap::new();
    let mut seconds: BTreeMap<(Phase, u64), Histogram<u64>> = BTreeMap::new();
    let shutdown = shutdown(&report);
    let mut losses = BTreeMap::new();
    let mut trouble = limits::Trouble::default();
    let mut invariants = no_findings();
    let mut slip = histogram();
    let outages = outages::Succeeded::of(&report, &settings.load);
    if let Some(first_grants) = outages.first_grants() {
        phases.insert(Phase::FirstGrant, first_grants);
    }
    outages.add_findings(&mut invariants);
    let (measured, setup, cut_short) = (report.measured, report.setup, report.cut_short);
    for outcome in report.outcomes {
        add_findings(&mut invariants, &outcome);
        for (reason, count) in outcome.losses {
            *losses.entry(reason).or_insert(0) += count;
        }
        trouble.add(outcome.own_limits, outcome.refusals, outcome.lost);
        slip.add(&outcome.recorder.slip).map_err(io::Error::other)?;
        add_seconds(&mut seconds, outcome.recorder.seconds)?;
        for (phase, record) in outcome.recorder.phases {
            phases.entry(phase).or_default().add(&record);
        }
    }
    own.slip_p99_ms = at(&slip, 99.0);
    let records_setup = settings.load.scenario.records_setup();
    let mut phase_results = Vec::new();
    for (phase, record) in &phases {
        let is_setup = records_setup && matches!(phase, Phase::Connect | Phase::Acquire);
        let period = if is_setup { setup } else { measured };
        let mut result = phase_result(*phase, record, &settings.outputs.percentiles, period)?;
        for ((_, number), histogram) in seconds.range((*phase, 0)..=(*phase, u64::MAX)) {
            result.seconds.push(second_result(*number, histogram)?);
        }
        phase_results.push(result);
    }
    let expectations = judge(&settings.expectations, &phase_results);
    let is_cut_short = cut_short.is_some() || trouble.is_own();
    let limits = trouble.limits(&settings.load, &own, &phase_results, fencing.as_ref(), cut_short);
    Ok(Results {
        format_version: FORMAT_VERSION,
        environment,
        parameters,
        phases: phase_results,
        fencing,
        grants,
        marks,
        marks_left_out,
        outages: outages.results(),
        shutdown,
        server,
        own,
        invariants,
        expectations,
        losses,
        limits,
        is_cut_short,
    })
}

fn grants(report: &Report) -> Grants {
    let of_threads = || report.outcomes.iter().map(|outcome| &outcome.recorder.grants);
    if of_threads().all(Vec::is_empty) {
        return Grants::default();
    }
    // Steps without a grant at the end are a part of the picture too.
    let steps = duration::whole_ms(report.measured).div_ceil(GRANTS_STEP_MS);
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    let mut counts = vec![0; of_threads().map(Vec::len).fold(steps, usize::max)];
    for of_thread in of_threads() {
        for (sum, count) in counts.iter_mut().zip(of_thread) {
            *sum += count;
        }
    }
    Grants { step_ms: GRANTS_STEP_MS, counts }
}

fn shutdown(report: &Report) -> Option<ShutdownResult> {
    let shutdown = report.shutdown?;
    let mut endings = BTreeMap::new();
    for (words, count) in report.outcomes.iter().flat_map(|outcome| &outcome.shut_down) {
        *endings.entry(words.clone()).or_insert(0) += count;
    }
    Some(ShutdownResult {
        took_ms: duration::whole_ms(shutdown.took),
        is_clean: shutdown.status.is_some_and(|status| status.success()),
        endings,
    })
}

fn fencing(report: &Report) -> Fencing {
    let mut sum = Fencing::default();
    for of_thread in report.outcomes.iter().map(|outcome| &outcome.recorder.fencing) {
        sum.pauses += of_thread.pauses;
        sum.takeovers += of_thread.takeovers;
        sum.writes += of_thread.writes;
        sum.stale_refused += of_thread.stale_refused;
        sum.stale_accepted += of_thread.stale_accepted;
        if sum.first_accepted.is_empty() {
            sum.first_accepted.clone_from(&of_thread.first_accepted);
        }
    }
    sum
}

/// The marks of all threads in the order of time, and how many there was no room for.
fn marks(report: &Report) -> (Vec<MarkResult>, u64) {
    let recorders = || report.outcomes.iter().map(|outcome| &outcome.recorder);
    let of_threads = recorders().flat_map(|recorder| &recorder.marks);
    let mut marks: Vec<&Mark> = report.marks.iter().chain(of_threads).collect();
    marks.sort_by_key(|mark| mark.at);
    let result = |mark: &Mark| MarkResult {
        at_ms: mark.at.since(report.measured_from).as_secs_f64() * 1e3,
        kind: mark.kind.name().to_owned(),
        label: mark.label.clone(),
    };
    let left_out = recorders().map(|recorder| recorder.marks_left_out).sum();
    (marks.into_iter().map(result).collect(), left_out)
}

fn judge(expectations: &[Expectation], phases: &[PhaseResult]) -> Vec<ExpectationResult> {
    let judge = |expectation: &Expectation| {
        let (found, is_met) = expectation.judge(phases);
        let is_latency = expectation.is_latency();
        ExpectationResult { text: expectation.to_string(), found, is_latency, is_met }
    };
    expectations.iter().map(judge).collect()
}

fn no_findings() -> Vec<InvariantResult> {
    let none = |invariant: Invariant| InvariantResult {
        name: invariant.name().to_owned(),
        count: 0,
        first: String::new(),
    };
    Invariant::ALL.into_iter().map(none).collect()
}

fn add_findings(invariants: &mut [InvariantResult], outcome: &Outcome) {
    for (result, finding) in invariants.iter_mut().zip(&outcome.findings) {
        result.count += finding.count;
        if let Some((_, text)) = &finding.first
            && result.first.is_empty()
        {
            result.first.clone_from(text);
        }
    }
}

fn add_seconds(
    all: &mut BTreeMap<(Phase, u64), Histogram<u64>>,
    seconds: Vec<Second>,
) -> io::Result<()> {
    let mut deserializer = Deserializer::new();
    for second in seconds {
        let part: Histogram<u64> = deserializer
            .deserialize(&mut second.histogram.as_slice())
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        let whole = all.entry((second.phase, second.number)).or_insert_with(histogram);
        whole.add(&part).map_err(io::Error::other)?;
    }
    Ok(())
}

fn phase_result(
    phase: Phase,
    record: &PhaseRecord,
    percentiles: &[f64],
    period: Duration,
) -> io::Result<PhaseResult> {
    let count = record.corrected.len();
    Ok(PhaseResult {
        name: phase.name().to_owned(),
        count,
        rate: per_second(count, period),
        errors: record.errors,
        corrected: Latencies::of(&record.corrected, percentiles)?,
        uncorrected: Latencies::of(&record.uncorrected, percentiles)?,
        seconds: Vec::new(),
    })
}

fn second_result(second: u64, histogram: &Histogram<u64>) -> io::Result<SecondResult> {
    Ok(SecondResult {
        second,
        count: histogram.len(),
        p50_ms: at(histogram, 50.0),
        p99_ms: at(histogram, 99.0),
        max_ms: ms(histogram.max()),
        histogram: encode(histogram)?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn per_second(count: u64, period: Duration) -> f64 {
    if period.is_zero() { 0.0 } else { count as f64 / period.as_secs_f64() }
}

/// What the load mostly consists of, and how often it happened.
fn operations(settings: &Settings, report: &Report) -> (&'static str, u64) {
    let sum = |count: fn(&Outcome) -> u64| report.outcomes.iter().map(count).sum();
    match settings.load.scenario {
        Scenario::Heartbeat | Scenario::GcPause => ("heartbeat", sum(|outcome| outcome.heartbeats)),
        // The flood is nearly all of the load, and nobody counts what of it is read.
        Scenario::SlowReader => ("flood", 0),
        Scenario::Steady
        | Scenario::Handover
        | Scenario::ConnectStorm
        | Scenario::Failover
        | Scenario::Restart => ("grant", sum(|outcome| outcome.grants)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn per_operation(amount: f64, operations: u64) -> Option<f64> {
    (operations > 0).then(|| amount / operations as f64)
}

/// Threads that have ended meanwhile, as the kernel's own do, are not among those of `until`.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn wakeups(from: Usage, until: Usage) -> f64 {
    until.wakeups.saturating_sub(from.wakeups) as f64
}

fn server_share(settings: &Settings, report: &Report) -> Option<ServerShare> {
    let idle = report.usages.server_idle?;
    let (from, until) = report.usages.server?;
    let (operation, operations) = operations(settings, report);
    let cpu_seconds = until.cpu_seconds - from.cpu_seconds;
    let grown = until.resident_bytes.saturating_sub(idle.resident_bytes);
    #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
    let per_session = |bytes: u64| bytes as f64 / f64::from(settings.load.sessions);
    let has_setup = settings.load.scenario.has_setup();
    let slab_grown = report.usages.slab.map(|(idle, all)| all.saturating_sub(idle));
    Some(ServerShare {
        cpu_seconds,
        operation: operation.to_owned(),
        operations,
        cpu_us_per_operation: per_operation(cpu_seconds * 1e6, operations),
        wakeups_per_operation: per_operation(wakeups(from, until), operations),
        resident_bytes_before: idle.resident_bytes,
        resident_bytes: until.resident_bytes,
        resident_bytes_per_session: has_setup.then_some(per_session(grown)),
        kernel_bytes_per_session: slab_grown.filter(|_| has_setup).map(per_session),
        descriptors: from.descriptors.max(until.descriptors),
    })
}

fn own_share(settings: &Settings, report: &Report, server: Option<&ServerShare>) -> OwnShare {
    let (from, until) = report.usages.own;
    let (_, operations) = operations(settings, report);
    let cpu_seconds = until.cpu_seconds - from.cpu_seconds;
    let of_server = server.map(|server| server.cpu_seconds).filter(|&seconds| seconds > 0.0);
    let busiest = report.outcomes.iter().map(|outcome| outcome.busy_ratio).fold(0.0, f64::max);
    OwnShare {
        cpu_seconds,
        cpu_us_per_operation: per_operation(cpu_seconds * 1e6, operations),
        cpu_ratio_to_server: of_server.map(|of_server| cpu_seconds / of_server),
        wakeups_per_operation: per_operation(wakeups(from, until), operations),
        busiest_thread_ratio: busiest,
        slip_p99_ms: 0.0,
    }
}

fn environment(report: &Report) -> Environment {
    let name = rustix::system::uname();
    Environment {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: name.release().to_string_lossy().into_owned(),
        host: name.nodename().to_string_lossy().into_owned(),
        cpus: thread::available_parallelism().map_or(0, Into::into),
        descriptors_max: report.descriptors_max,
        server_address: report.server_address.to_string(),
        is_shared_with_server: is_of_this_machine(report.server_address.ip()),
        started_unix_ms: report.started_unix_ms,
    }
}

/// What is sent to an address of one's own comes from the same one. Nothing is sent here.
fn is_of_this_machine(ip: IpAddr) -> bool {
    let source = || {
        let any = if ip.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 1))?;
        socket.local_addr()
    };
    let is_own = source().is_ok_and(|source| source.ip().to_canonical() == ip.to_canonical());
    is_own || ip.to_canonical().is_loopback()
}

fn parameters(settings: &Settings, report: &Report) -> Parameters {
    let load = &settings.load;
    Parameters {
        scenario: load.scenario.name().to_owned(),
        seed: load.seed,
        sessions: load.sessions,
        locks: load.locks,
        threads: report.threads,
        lease_ms: load.lease_ms.get(),
        rate: load.rate,
        arrivals: load.arrivals.name().to_owned(),
        is_open_loop: load.is_open_loop(),
        duration_ms: duration::whole_ms(report.measured),
        warmup_ms: duration::whole_ms(load.warmup),
        hold_ms: ms_of(load.hold.shortest),
        hold_longest_ms: ms_of(load.hold.longest),
        ramp_ms: duration::whole_ms(load.ramp),
        setup_ms: if load.scenario.has_setup() { duration::whole_ms(report.setup) } else { 0 },
        kills: settings.kill_plan.as_ref().map(kills),
        pauses: load.pauses.as_ref().map(pause_parameters),
    }
}

fn ms_of(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn pause_parameters(pauses: &Pauses) -> PauseParameters {
    PauseParameters {
        shortest_ms: ms_of(pauses.lengths.shortest),
        longest_ms: ms_of(pauses.lengths.longest),
        are_real: pauses.are_real,
        write_every_ms: ms_of(pauses.write_every),
        resource: pauses.resource.name().to_owned(),
        is_fenced: pauses.is_fenced,
    }
}

fn kills(plan: &KillPlan) -> Kills {
    let standby = match plan.successor {
        Successor::Standby { takeover_after, wake_after, fences, clock } => {
            Some(StandbyParameters {
                takeover_after_ms: duration::whole_ms(takeover_after),
                wake_after_ms: duration::whole_ms(wake_after),
                is_fenced: fences,
                clock_ms: clock.as_ms(),
            })
        }
        Successor::Restart => None,
    };
    Kills {
        every_ms: duration::whole_ms(plan.every),
        ways: plan.ways.iter().map(|way| way.name().to_owned()).collect(),
        standby,
        clock_step_ms: plan.clock_step.map(|step| (step.by.as_ms(), duration::whole_ms(step.at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_from_others() {
        for own in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(is_of_this_machine(own.parse().expect(own)), "{own}");
        }
        // Addresses for documentation, which nobody has.
        for other in ["198.51.100.1", "2001:db8::1"] {
            assert!(!is_of_this_machine(other.parse().expect(other)), "{other}");
        }
        let interfaces = std::fs::read_to_string("/proc/net/fib_trie").expect("the routes");
        let lines: Vec<&str> = interfaces.lines().collect();
        let own = lines.windows(2).filter(|pair| pair[1].contains("/32 host LOCAL"));
        let own = own.filter_map(|pair| pair[0].split("-- ").nth(1)?.trim().parse().ok());
        for ip in own {
            assert!(is_of_this_machine(ip), "{ip}");
        }
    }
}
