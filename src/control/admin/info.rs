//! The server as a whole.

use std::collections::BTreeMap;

use monolock_core::counts::Counts;
use monolock_core::effect::ReleaseReason;
use serde::Serialize;

use super::super::http::Response;
use super::{Admin, ok};
use crate::clock::{self, whole_ms};
use crate::config::LogFormat;
use crate::control::AuditTarget as Target;

#[derive(Serialize)]
struct Info<'a> {
    version: &'static str,
    commit: &'static str,
    uptime_ms: u64,
    config: Effective<'a>,
    locks: u64,
    waiters: u64,
    sessions: u64,
    session_slots: u64,
    totals: Totals,
    draining: bool,
    /// When a maintenance drain ends at the latest.
    drain_remaining_ms: Option<u64>,
    shutting_down: bool,
}

/// Counted since the start.
#[derive(Serialize)]
struct Totals {
    grants: u64,
    heartbeats: u64,
    releases: BTreeMap<&'static str, u64>,
}

impl Totals {
    fn new(counts: &Counts) -> Totals {
        let releases = ReleaseReason::ALL.map(|reason| (reason.as_str(), counts.releases(reason)));
        Totals { grants: counts.acquires, heartbeats: counts.heartbeats, releases: releases.into() }
    }
}

/// What holds, wherever it was set.
#[derive(Serialize)]
struct Effective<'a> {
    listen: String,
    ops_listen: &'a str,
    admin_listen: &'a str,
    admin_hosts: &'a [String],
    shards: usize,
    tls: bool,
    mtls: bool,
    acl_file: &'static str,
    audit_log: String,
    io_timeout_ms: u64,
    max_lease_ms: Option<u32>,
    max_sessions_per_peer: Option<u32>,
    log_level: String,
    log_format: &'static str,
}

/// `GET /api/info`
pub(super) async fn answer(admin: &Admin) -> Response {
    let Admin { running, config, .. } = admin;
    let mut counts = Counts::default();
    running.loop_reports().await.iter().for_each(|report| counts.add(&report.counts));
    let now = clock::monotonic();
    let drain_ends_at = running.drain().map(|drain| drain.ends_at);
    let addresses = &running.addresses;
    ok(&Info {
        version: env!("CARGO_PKG_VERSION"),
        commit: crate::config::COMMIT,
        uptime_ms: whole_ms(now.since(running.started)),
        config: Effective {
            listen: addresses.listen.to_string(),
            ops_listen: &addresses.ops,
            admin_listen: &addresses.admin,
            admin_hosts: &config.admin_hosts,
            shards: running.shards.len(),
            tls: false,
            mtls: false,
            acl_file: "",
            audit_log: match &config.audit_log {
                None => String::new(),
                Some(Target::Stdout) => "-".into(),
                Some(Target::File(path)) => path.display().to_string(),
            },
            io_timeout_ms: whole_ms(config.io_timeout),
            max_lease_ms: config.lease_max_ms.map(Into::into),
            max_sessions_per_peer: config.sessions_per_peer_max.map(Into::into),
            log_level: config.log_level.to_string().to_lowercase(),
            log_format: match config.log_format {
                LogFormat::Text => "text",
                LogFormat::Json => "json",
            },
        },
        locks: counts.locks_held,
        waiters: counts.waiters,
        sessions: counts.connections,
        session_slots: running.shards.iter().map(|shard| u64::from(shard.places().max())).sum(),
        totals: Totals::new(&counts),
        draining: drain_ends_at.is_some(),
        drain_remaining_ms: drain_ends_at.map(|at| whole_ms(at.since(now))),
        shutting_down: running.is_shutting_down(),
    })
}
