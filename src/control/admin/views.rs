//! What the API shows, as it stands in the JSON.

use monolock_core::session::PeerAddress;
use monolock_core::snapshot::{ClaimView, SessionView};
use monolock_core::time::{Instant, Now};
use serde::Serialize;

use super::super::wall_time::{rfc3339, wall_time_of};
use crate::clock::whole_ms;
use crate::ended_holds::EndedHold;

/// Nobody has an identity without TLS.
const NO_IDENTITY: &str = "";

/// Who holds a lock.
#[derive(Debug, Serialize)]
pub(super) struct Holder {
    identity: &'static str,
    remote_addr: String,
    since: String,
    held_ms: u64,
    lease_ms: u32,
    token: u64,
    last_heard_ms: u64,
}

impl Holder {
    pub(super) fn new(claim: &ClaimView, now: Now) -> Holder {
        Holder {
            identity: NO_IDENTITY,
            remote_addr: claim.peer.to_string(),
            since: rfc3339(wall_time_of(claim.since, now)),
            held_ms: age_ms(claim.since, now),
            lease_ms: claim.lease_ms.get(),
            token: claim.token.expect("a holder has a token").get(),
            last_heard_ms: age_ms(claim.last_heard, now),
        }
    }
}

/// Who waits for a lock.
#[derive(Debug, Serialize)]
pub(super) struct Waiter {
    identity: &'static str,
    remote_addr: String,
    queued_at: String,
    wait_ms: u64,
    lease_ms: u32,
    last_heard_ms: u64,
}

impl Waiter {
    pub(super) fn new(claim: &ClaimView, now: Now) -> Waiter {
        Waiter {
            identity: NO_IDENTITY,
            remote_addr: claim.peer.to_string(),
            queued_at: rfc3339(wall_time_of(claim.since, now)),
            wait_ms: age_ms(claim.since, now),
            lease_ms: claim.lease_ms.get(),
            last_heard_ms: age_ms(claim.last_heard, now),
        }
    }
}

/// How a hold ended.
#[derive(Debug, Serialize)]
pub(super) struct LastHold {
    identity: &'static str,
    remote_addr: String,
    token: u64,
    ended_at: String,
    held_ms: u64,
    reason: &'static str,
}

impl LastHold {
    pub(super) fn new(hold: &EndedHold) -> LastHold {
        LastHold {
            identity: NO_IDENTITY,
            remote_addr: hold.peer.to_string(),
            token: hold.token.get(),
            ended_at: rfc3339(hold.ended_at),
            held_ms: whole_ms(hold.held),
            reason: hold.reason.as_str(),
        }
    }
}

/// A connection.
#[derive(Debug, Serialize)]
pub(super) struct Session {
    identity: &'static str,
    remote_addr: String,
    state: &'static str,
    lock: String,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    last_heard_ms: u64,
}

impl Session {
    pub(super) fn new(view: SessionView, now: Now) -> Session {
        Session {
            identity: NO_IDENTITY,
            remote_addr: view.peer.to_string(),
            state: view.state.as_str(),
            lock: view.lock.map(String::from).unwrap_or_default(),
            since: rfc3339(wall_time_of(view.since, now)),
            lease_ms: view.lease_ms.map(Into::into),
            token: view.token.map(|token| token.get()),
            last_heard_ms: age_ms(view.last_heard, now),
        }
    }
}

/// How long ago something was.
pub(super) fn age_ms(moment: Instant, now: Now) -> u64 {
    whole_ms(now.instant.since(moment))
}

/// Whether a peer is meant by an address with or without a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerFilter {
    Host(std::net::IpAddr),
    Exactly(PeerAddress),
}

impl PeerFilter {
    pub(super) fn matches(self, peer: PeerAddress) -> bool {
        match self {
            PeerFilter::Host(ip) => peer.ip() == ip.to_canonical(),
            PeerFilter::Exactly(address) => peer == address,
        }
    }
}
