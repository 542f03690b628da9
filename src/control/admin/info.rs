//! The server as a whole.

use monolock_core::counts::Counts;
use serde::Serialize;

use super::super::http::Response;
use super::{Admin, ok};
use crate::clock;
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
    draining: bool,
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
    let uptime = clock::monotonic().since(running.started);
    let addresses = &running.addresses;
    ok(&Info {
        version: env!("CARGO_PKG_VERSION"),
        commit: crate::config::COMMIT,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
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
            io_timeout_ms: u64::try_from(config.io_timeout.as_millis()).unwrap_or(u64::MAX),
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
        draining: running.drain().is_some(),
    })
}
