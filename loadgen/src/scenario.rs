//! The kinds of load, and what each takes for granted when it isn't told.

use std::time::Duration;

use crate::phase::Phase;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Sessions that hold on to their locks.
    Heartbeat,
    /// Acquire, hold, release, again and again.
    Steady,
    /// Deep queues, in which locks change hands.
    Handover,
    /// Everybody connects at once.
    ConnectStorm,
    /// Sessions that don't read their answers, among others that do.
    SlowReader,
    /// Holders that sleep through their leases, and go on writing.
    GcPause,
    /// A standby takes over from a server that fails.
    Failover,
    /// A server is started again where it failed.
    Restart,
}

impl Scenario {
    /// Every kind there is.
    pub const ALL: [Scenario; 8] = [
        Scenario::Heartbeat,
        Scenario::Steady,
        Scenario::Handover,
        Scenario::ConnectStorm,
        Scenario::SlowReader,
        Scenario::GcPause,
        Scenario::Failover,
        Scenario::Restart,
    ];

    /// Its word on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Heartbeat => "heartbeat",
            Scenario::Steady => "steady",
            Scenario::Handover => "handover",
            Scenario::ConnectStorm => "connect-storm",
            Scenario::SlowReader => "slow-reader",
            Scenario::GcPause => "gc-pause",
            Scenario::Failover => "failover",
            Scenario::Restart => "restart",
        }
    }

    /// What it does, for the help.
    pub fn about(self) -> &'static str {
        match self {
            Scenario::Heartbeat => {
                "N sessions hold a lock each and send heartbeats: how long is an acknowledgement \
                 on its way, and what does an idle session cost?"
            }
            Scenario::Steady => {
                "N sessions acquire, hold and release M locks: at --rate operations a second, or \
                 as fast as they can"
            }
            Scenario::Handover => {
                "N sessions queue for M locks: how long after a release does the next holder know? \
                 At --rate releases a second, or as fast as they can"
            }
            Scenario::ConnectStorm => {
                "N sessions connect at once, as after a restart, or at --rate a second; when all \
                 hold their locks they leave, and it begins again"
            }
            Scenario::SlowReader => {
                "one session in ten doesn't read its answers: do the others notice, and when does \
                 the server end it?"
            }
            Scenario::GcPause => {
                "holders fall silent for longer than their lease, and go on writing when they wake \
                 up: when is their lock taken over, and are their writes refused?"
            }
            Scenario::Failover => {
                "N sessions acquire, hold and release M locks behind one address; their server \
                 fails and a standby takes over, again and again: when are they back, do tokens \
                 grow, and who held a lock twice?"
            }
            Scenario::Restart => {
                "N sessions acquire, hold and release M locks; their server is killed or shut down \
                 and started again at once, again and again: when are they back, and do tokens \
                 grow?"
            }
        }
    }

    /// Whether `--rate` means something to it.
    pub fn takes_rate(self) -> bool {
        match self {
            Scenario::Steady | Scenario::Handover | Scenario::ConnectStorm | Scenario::GcPause => {
                true
            }
            Scenario::Heartbeat | Scenario::SlowReader | Scenario::Failover | Scenario::Restart => {
                false
            }
        }
    }

    /// How many locks there are if it isn't said.
    pub fn locks(self, sessions: u32) -> u32 {
        match self {
            Scenario::Heartbeat | Scenario::ConnectStorm | Scenario::SlowReader => sessions,
            Scenario::Steady | Scenario::GcPause | Scenario::Failover | Scenario::Restart => {
                sessions.div_ceil(4)
            }
            Scenario::Handover => 1,
        }
    }

    /// Every session's lease if it isn't said. Where leases end they have to end in the measured
    /// time.
    pub fn lease(self) -> &'static str {
        if self == Scenario::GcPause { "1s" } else { "10s" }
    }

    /// How long a lock is held, or how long a holder works, if it isn't said.
    pub fn hold(self, lease_ms: u32) -> Duration {
        match self {
            Scenario::Steady => Duration::from_millis(10),
            Scenario::GcPause => Duration::from_millis(u64::from(lease_ms)),
            Scenario::Failover | Scenario::Restart => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// Over how long the sessions that stay are connected if it isn't said: over one heartbeat
    /// interval, so that heartbeats don't come in a burst, and at most 10,000 a second.
    pub fn ramp(self, sessions: u32, lease_ms: u32) -> Duration {
        match self {
            Scenario::Heartbeat
            | Scenario::Handover
            | Scenario::SlowReader
            | Scenario::GcPause
            | Scenario::Failover
            | Scenario::Restart => {
                let interval = Duration::from_millis(u64::from(lease_ms)) / 4;
                interval.max(Duration::from_micros(100) * sessions)
            }
            Scenario::Steady | Scenario::ConnectStorm => Duration::ZERO,
        }
    }

    /// Whether connecting is recorded while the sessions come, as they don't come again.
    pub fn records_setup(self) -> bool {
        self == Scenario::Heartbeat
    }

    /// Whether measuring begins only when all planned sessions stand.
    pub fn has_setup(self) -> bool {
        !matches!(self, Scenario::Steady | Scenario::ConnectStorm)
    }

    /// The phase that it is about.
    pub fn main_phase(self) -> Phase {
        match self {
            Scenario::Heartbeat | Scenario::SlowReader => Phase::Heartbeat,
            Scenario::Steady | Scenario::ConnectStorm => Phase::Acquire,
            Scenario::Handover => Phase::Handover,
            Scenario::GcPause => Phase::Takeover,
            Scenario::Failover | Scenario::Restart => Phase::Recovery,
        }
    }

    /// Whether it makes servers fail.
    pub fn kills_servers(self) -> bool {
        matches!(self, Scenario::Failover | Scenario::Restart)
    }
}
