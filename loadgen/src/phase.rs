//! The parts of a claim's life that are timed.

/// A part of a claim's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// From the intended start to the kernel's taking the ACQUIRE on an established connection.
    Connect,
    /// From the intended start to the first answer, WAITING or ACQUIRED.
    Acquire,
    /// From the intended start to ACQUIRED, for claims that were told WAITING before.
    Wait,
    /// From one holder's intended release to the next holder's knowing.
    Handover,
    /// From when a heartbeat was due to its answer.
    Heartbeat,
    /// From when a session's answers were stuck to the server's ending it.
    Cutoff,
    /// From a server's failure to a client's first answer by a later one.
    Recovery,
    /// From a server's failure to the first grant by a later one.
    FirstGrant,
    /// For how long two holders of a lock, of different servers, both believed that they hold it.
    Overlap,
    /// From when a holder fell silent to the next holder's knowing.
    Takeover,
    /// From a lease after a silent holder's last message to the next holder's knowing.
    ExpiryOverrun,
    /// How long a silent holder would have taken itself for the holder by the rules for clients,
    /// beside the next one. Nothing, as it should be, is recorded too.
    BeliefOverlap,
    /// From the next holder's knowing to the silent one's: that time is the token's to guard.
    Unaware,
    /// From when a holder's write was due to the guarded resource's answer.
    Write,
}

impl Phase {
    /// In the order of a claim's life.
    pub const ALL: [Phase; 14] = [
        Phase::Connect,
        Phase::Acquire,
        Phase::Wait,
        Phase::Handover,
        Phase::Heartbeat,
        Phase::Cutoff,
        Phase::Recovery,
        Phase::FirstGrant,
        Phase::Overlap,
        Phase::Takeover,
        Phase::ExpiryOverrun,
        Phase::BeliefOverlap,
        Phase::Unaware,
        Phase::Write,
    ];

    /// Its word in reports, files and expectations.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Acquire => "acquire",
            Phase::Wait => "wait",
            Phase::Handover => "handover",
            Phase::Heartbeat => "heartbeat",
            Phase::Cutoff => "cutoff",
            Phase::Recovery => "recovery",
            Phase::FirstGrant => "first-grant",
            Phase::Overlap => "overlap",
            Phase::Takeover => "takeover",
            Phase::ExpiryOverrun => "expiry-overrun",
            Phase::BeliefOverlap => "belief-overlap",
            Phase::Unaware => "unaware",
            Phase::Write => "write",
        }
    }

    /// The phase with this name.
    pub fn from_name(name: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// All names, for a message.
    pub fn names() -> String {
        Phase::ALL.map(Phase::name).join(", ")
    }
}
