//! Why the results of a run are less than they seem.

use std::collections::BTreeMap;

use crate::phase::Phase;
use crate::results::{Fencing, OwnShare, PhaseResult};
use crate::scenario::Scenario;
use crate::settings::Load;

/// A thread that is running for more of its time than this can't be on time.
const BUSY_RATIO_MAX: f64 = 0.9;

/// Things begun later than this, one in a hundred, were not offered as planned.
const SLIP_P99_MS_MAX: f64 = 20.0;

/// What all threads had to put up with.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    own_limits: BTreeMap<String, u64>,
    refusals: u64,
    lost: u64,
}

impl Trouble {
    /// Takes in what one thread had.
    pub(super) fn add(&mut self, own_limits: BTreeMap<String, u64>, refusals: u64, lost: u64) {
        for (reason, count) in own_limits {
            *self.own_limits.entry(reason).or_default() += count;
        }
        self.refusals += refusals;
        self.lost += lost;
    }

    /// Whether this process was in its own way.
    pub(super) fn is_own(&self) -> bool {
        !self.own_limits.is_empty()
    }

    /// All reasons, one line each.
    pub(super) fn limits(
        self,
        load: &Load,
        own: &OwnShare,
        phases: &[PhaseResult],
        fencing: Option<&Fencing>,
        cut_short: Option<String>,
    ) -> Vec<String> {
        let could_not = |(reason, count): (&String, &u64)| {
            format!("{count} sessions could not be opened: {reason}")
        };
        let mut limits: Vec<String> = self.own_limits.iter().map(could_not).collect();
        limits.extend(own_lateness(own, load.is_all_at_once()));
        limits.extend(self.servers_absence(load));
        limits.extend(fencing.and_then(nothing_staged));
        // Whatever else is wrong explains that nothing was timed.
        if limits.is_empty() && cut_short.is_none() {
            limits.extend(nothing_timed(load.scenario, phases));
        }
        limits.extend(cut_short);
        limits
    }

    /// The load was not offered as planned for want of a server, whose failing isn't the scenario.
    fn servers_absence(&self, load: &Load) -> Option<String> {
        if load.scenario.kills_servers() {
            return None;
        }
        if self.refusals > 0 {
            return Some(format!(
                "no server was there for a part of the run: {} connections were refused",
                self.refusals
            ));
        }
        (load.scenario == Scenario::Heartbeat && self.lost > 0).then(|| {
            format!(
                "{} of {} sessions ended and, in this scenario, don't come back: what was due from \
                 them later was not sent",
                self.lost, load.sessions
            )
        })
    }
}

fn own_lateness(own: &OwnShare, is_all_at_once: bool) -> Vec<String> {
    let mut lateness = Vec::new();
    if own.busiest_thread_ratio > BUSY_RATIO_MAX {
        lateness.push(format!(
            "a thread of the load generator was busy {:.0}% of the time: take more threads, or \
             less load",
            own.busiest_thread_ratio * 100.0
        ));
    }
    // Nobody can begin everything at one moment; how long it takes is a part of the result.
    if own.slip_p99_ms > SLIP_P99_MS_MAX && !is_all_at_once {
        lateness.push(format!(
            "the load generator fell behind its plan: 1% of all was begun more than {:.1} ms late",
            own.slip_p99_ms
        ));
    }
    lateness
}

fn nothing_staged(fencing: &Fencing) -> Option<String> {
    (fencing.takeovers == 0).then(|| {
        "no silent holder's lock was taken over: take a longer --duration, or more sessions a lock"
            .to_owned()
    })
}

fn nothing_timed(scenario: Scenario, phases: &[PhaseResult]) -> Option<String> {
    let phase: Phase = scenario.main_phase();
    let is_timed = phases.iter().any(|result| result.name == phase.name() && result.count > 0);
    (!is_timed).then(|| format!("not one {} came to its end in the measured time", phase.name()))
}
