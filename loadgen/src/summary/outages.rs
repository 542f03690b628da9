//! What became of the failures of a run's servers.

use std::time::Duration;

use monolock_core::time::Instant;

use crate::checker::Invariant;
use crate::outages::{Outage, OutageTally};
use crate::recorder::PhaseRecord;
use crate::results::{InvariantResult, OutageResult};
use crate::run::Report;
use crate::scenario::Scenario;
use crate::settings::Load;
use crate::succession::ServerTokens;

/// The failures of a run, with what all threads saw of them.
pub(super) struct Succeeded {
    measured_from: Instant,
    outages: Vec<Outage>,
    /// By failure.
    tallies: Vec<OutageTally>,
    /// By server, of which there is one more.
    servers: Vec<ServerTokens>,
    /// How many have to come back.
    clients: usize,
    /// Each server was gone before the next one was there.
    are_apart: bool,
}

impl Succeeded {
    pub(super) fn of(report: &Report, load: &Load) -> Succeeded {
        let outages = report.outages.clone();
        let mut tallies = vec![OutageTally::default(); outages.len()];
        let mut servers = vec![ServerTokens::default(); outages.len() + 1];
        for outcome in &report.outcomes {
            for (sum, tally) in tallies.iter_mut().zip(&outcome.outages) {
                sum.add(tally);
            }
            for (sum, server) in servers.iter_mut().zip(&outcome.servers) {
                sum.add(server);
            }
        }
        for tally in &mut tallies {
            tally.back.sort_unstable();
        }
        Succeeded {
            measured_from: report.measured_from,
            outages,
            tallies,
            servers,
            clients: load.sessions as usize,
            are_apart: load.scenario == Scenario::Restart,
        }
    }

    /// From each failure to the first grant after it; nothing if there was no failure.
    pub(super) fn first_grants(&self) -> Option<PhaseRecord> {
        if self.outages.is_empty() {
            return None;
        }
        let mut record = PhaseRecord::new();
        for tally in &self.tallies {
            match tally.first_grant {
                Some(since) => record.add_time(since),
                None => record.errors += 1,
            }
        }
        Some(record)
    }

    /// A server that is gone when the next one comes leaves no doubt about the order of any two
    /// grants, of different locks neither.
    pub(super) fn add_findings(&self, invariants: &mut [InvariantResult]) {
        if !self.are_apart {
            return;
        }
        let mut newest = None;
        for (number, server) in (0..).zip(&self.servers) {
            let Some((low, high)) = server.range else {
                continue;
            };
            if let Some((elder, token)) = newest
                && low <= token
            {
                let finding = &mut invariants[Invariant::TokenNotGrowing as usize];
                finding.count += 1;
                if finding.first.is_empty() {
                    finding.first = format!(
                        "server {number} granted token {low}, and server {elder}, which was gone \
                         by then, had granted token {token}"
                    );
                }
            }
            if newest.is_none_or(|(_, token)| token < high) {
                newest = Some((number, high));
            }
        }
    }

    pub(super) fn results(&self) -> Vec<OutageResult> {
        (0..self.outages.len()).map(|number| self.result(number)).collect()
    }

    fn result(&self, number: usize) -> OutageResult {
        let (outage, tally) = (&self.outages[number], &self.tallies[number]);
        let (failed, next) = (&self.servers[number], &self.servers[number + 1]);
        let since = |at: Instant| ms(at.since(outage.at));
        // So many clients are 99%, rounded up.
        let almost_all = (self.clients * 99).div_ceil(100);
        let back_at = |count: usize| tally.back.get(count.wrapping_sub(1)).copied().map(ms);
        let is_within_a_second = match (failed.range, next.range) {
            (Some((_, last)), Some((first, _))) => last.unix_secs() == first.unix_secs(),
            _ => false,
        };
        OutageResult {
            at_ms: ms(outage.at.since(self.measured_from)),
            way: outage.way.name().to_owned(),
            succeeded_ms: outage.succeeded_at.map(since),
            first_grant_ms: tally.first_grant.map(ms),
            back: tally.back.len() as u64,
            back_99_ms: back_at(almost_all),
            back_all_ms: back_at(self.clients),
            dials: tally.dials(),
            dials_a_second_max: tally.dials_a_second_max(),
            overlaps: tally.overlaps,
            overlap_longest_ms: ms(tally.overlap_longest),
            tokens_behind: next.behind,
            tokens_behind_until_ms: next.behind_until.map(since),
            tokens_grown_since: next.grown_since,
            is_within_a_second,
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
