//! Moments of a run that explain what is seen around them: somebody fell silent, a server was
//! killed, a lock was taken over.

use monolock_core::time::Instant;

/// What happened at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// A process, or a session that stands for one, stopped running.
    Pause,
    /// It runs again.
    Resume,
    /// A server was killed.
    Kill,
    /// A server was asked to end.
    Shutdown,
    /// A server was started.
    Start,
    /// A lock was granted though its holder had not given it back; or a standby took over.
    Takeover,
    /// Servers' clocks were set.
    ClockStep,
    /// A past holder's write was refused.
    Refusal,
    /// A past holder's write destroyed its successor's.
    Corruption,
}

impl MarkKind {
    /// In the order of the plots' rows.
    pub const ALL: [MarkKind; 9] = [
        MarkKind::Pause,
        MarkKind::Resume,
        MarkKind::Kill,
        MarkKind::Shutdown,
        MarkKind::Start,
        MarkKind::Takeover,
        MarkKind::ClockStep,
        MarkKind::Refusal,
        MarkKind::Corruption,
    ];

    /// Its word in plots and files.
    pub fn name(self) -> &'static str {
        match self {
            MarkKind::Pause => "pause",
            MarkKind::Resume => "resume",
            MarkKind::Kill => "kill",
            MarkKind::Shutdown => "shutdown",
            MarkKind::Start => "start",
            MarkKind::Takeover => "takeover",
            MarkKind::ClockStep => "clock step",
            MarkKind::Refusal => "refusal",
            MarkKind::Corruption => "corruption",
        }
    }
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Instant,
    /// What.
    pub kind: MarkKind,
    /// To whom, in a few words.
    pub label: String,
}
