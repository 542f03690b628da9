//! What may happen to an engine, to be drawn, shrunk and read.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

/// The locks that the clients quarrel about.
pub(crate) const LOCKS: [&str; 3] = ["a", "nightly/import", LONGEST_NAME];

/// 255 bytes.
const LONGEST_NAME: &str = "\
    0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/0123456789abcdefghijklmnopqrst\
    0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/0123456789abcdefghijklmnopqrst\
    0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/012";

/// What the engine and the model are told once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) sessions_max: u32,
    pub(crate) io_timeout: Duration,
    pub(crate) lease_max_ms: Option<NonZeroU32>,
}

/// One thing that happens. What can't happen as things are is left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Connect,
    /// To a client; they are numbered in the order in which they connected.
    Client(usize, Step),
    /// Milliseconds go by.
    Pass(u64),
    /// Time goes by until the next deadline, or until a nanosecond before it.
    PassToDeadline {
        short_of_it: bool,
    },
    /// The wall clock is set, by so many seconds.
    StepWallClock(i64),
    /// The deadlines that have passed are worked off, at most so many.
    Expire(usize),
    /// All that is asked for is sent, and what was closed is forgotten.
    ServeAll,
    /// An administrator takes back the lock.
    ForceRelease(usize, WhoseToken),
    /// An administrator has nothing granted any more, or has locks granted again.
    GrantFromNowOn(bool),
    /// Locks that nobody holds go to who waits for them, a few places at a time.
    PromoteWaiters(u32),
    ShutDown,
}

/// One thing after the other.
#[derive(Clone)]
pub(crate) struct Story(pub(crate) Vec<Operation>);

/// A line for each, so that a failing story can be read and copied.
impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|operation| write!(f, "\n    {operation:?},"))
    }
}

/// What may happen to one client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// It sends, and all of it is read at once.
    Send(Message),
    /// It sends; nothing of that is read yet.
    Say(Message),
    /// At most so many bytes of what it sent are read.
    Deliver(usize),
    EndOfStream,
    Disconnected,
    Unreachable,
    /// There was nothing to be read.
    Silent,
    /// What it is owed is asked for, into a buffer of so many bytes.
    Transmit(usize),
    /// What was asked for last is sent, after it was asked for.
    Sent,
    /// What was asked for last is stuck, after it was asked for.
    Blocked,
    /// An administrator puts it out of the queue of that lock.
    Kick(usize),
    Refuse(u8),
    /// The driver has closed the connection, as it was told to.
    Forget,
}

/// The token that a force-release is meant for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WhoseToken {
    Anybodys,
    TheHolders,
    AnotherOnes,
}

/// What a client may send, right and wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Acquire { lock: usize, lease_ms: u32 },
    EmptyName,
    NameTooLong,
    NameNotUtf8,
    OtherVersion(u8),
    Heartbeats(usize),
    Byte(u8),
}

impl Message {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Message::Acquire { lock, lease_ms } => {
                let name = LOCKS[lock];
                acquire(lease_ms, u16::try_from(name.len()).expect("short"), name.as_bytes())
            }
            Message::EmptyName => acquire(1000, 0, b""),
            Message::NameTooLong => acquire(1000, 256, &[b'n'; 256]),
            Message::NameNotUtf8 => acquire(1000, 2, b"\xc3\x28"),
            Message::OtherVersion(version) => vec![0x01, version],
            Message::Heartbeats(count) => vec![0x02; count],
            Message::Byte(byte) => vec![byte],
        }
    }
}

fn acquire(lease_ms: u32, name_len: u16, name: &[u8]) -> Vec<u8> {
    [&[0x01, 0x01][..], &lease_ms.to_be_bytes(), &name_len.to_be_bytes(), name].concat()
}

pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    let io_timeout = prop_oneof![Just(Duration::from_secs(5)), Just(Duration::from_millis(300))];
    let lease_max_ms = prop_oneof![Just(None), Just(NonZeroU32::new(60_000))];
    (1..=6u32, io_timeout, lease_max_ms).prop_map(|(sessions_max, io_timeout, lease_max_ms)| {
        Setup { sessions_max, io_timeout, lease_max_ms }
    })
}

pub(crate) fn story() -> impl Strategy<Value = Story> {
    vec(operation(), 1..120).prop_map(Story)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{
        Client, Connect, Expire, ForceRelease, GrantFromNowOn, Pass, PassToDeadline,
        PromoteWaiters, ServeAll, ShutDown, StepWallClock,
    };
    let whose = prop_oneof![
        Just(WhoseToken::Anybodys),
        Just(WhoseToken::TheHolders),
        Just(WhoseToken::AnotherOnes)
    ];
    let client = prop_oneof![4 => 0..2usize, 4 => 2..6usize, 1 => 6..12usize];
    let pause = prop_oneof![0..20u64, Just(100u64), Just(500u64), Just(1000u64)];
    let limit = prop_oneof![3 => Just(usize::MAX), 1 => 0..3usize];
    prop_oneof![
        8 => Just(Connect),
        84 => (client, step()).prop_map(|(client, step)| Client(client, step)),
        4 => pause.prop_map(Pass),
        6 => any::<bool>().prop_map(|short_of_it| PassToDeadline { short_of_it }),
        1 => (-3..=3i64).prop_map(StepWallClock),
        8 => limit.prop_map(Expire),
        10 => Just(ServeAll),
        2 => (0..LOCKS.len(), whose).prop_map(|(lock, whose)| ForceRelease(lock, whose)),
        1 => prop_oneof![1 => Just(GrantFromNowOn(false)), 2 => Just(GrantFromNowOn(true))],
        1 => (1..3u32).prop_map(PromoteWaiters),
        1 => prop_oneof![5 => Just(Pass(0)), 1 => Just(ShutDown)],
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let piece = prop_oneof![5 => Just(usize::MAX), 1 => 1..4usize, 1 => 4..20usize];
    let code = prop_oneof![Just(0x03u8), Just(0x18), Just(0x1f)];
    prop_oneof![
        32 => message().prop_map(Step::Send),
        6 => message().prop_map(Step::Say),
        8 => piece.prop_map(Step::Deliver),
        3 => Just(Step::EndOfStream),
        2 => Just(Step::Disconnected),
        3 => Just(Step::Unreachable),
        8 => Just(Step::Silent),
        4 => (258..700usize).prop_map(Step::Transmit),
        8 => Just(Step::Sent),
        10 => Just(Step::Blocked),
        2 => (0..LOCKS.len()).prop_map(Step::Kick),
        1 => code.prop_map(Step::Refuse),
        4 => Just(Step::Forget),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let lease_ms = prop_oneof![
        4 => prop_oneof![Just(1u32), Just(100), Just(500), Just(1000)],
        3 => Just(2000u32),
        1 => prop_oneof![Just(0u32), Just(60_000), Just(60_001), Just(u32::MAX)],
    ];
    let acquire = (prop_oneof![3 => Just(0), 1 => 1..LOCKS.len()], lease_ms)
        .prop_map(|(lock, lease_ms)| Message::Acquire { lock, lease_ms });
    prop_oneof![
        24 => acquire,
        16 => (1..4usize).prop_map(Message::Heartbeats),
        // More than a session may be owed, and more than is read away from it.
        1 => prop_oneof![9 => Just(7_280), 9 => Just(7_300), 1 => Just(1 << 20)]
            .prop_map(Message::Heartbeats),
        1 => prop_oneof![
            Just(Message::EmptyName),
            Just(Message::NameTooLong),
            Just(Message::NameNotUtf8),
            Just(Message::OtherVersion(2)),
        ],
        1 => any::<u8>().prop_map(Message::Byte),
    ]
}
