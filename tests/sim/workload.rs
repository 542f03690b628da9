//! What is drawn for a seed: how large and how fast its world is, what its clients do, and what
//! goes wrong.

use std::num::NonZeroU32;
use std::time::Duration;

use super::clock::{MILLISECOND, SECOND};
use super::draws::Draws;

/// The names that clients claim.
pub(crate) const LOCKS: [&str; 3] = ["nightly/import", "shard-7", "\u{1f512}"];

/// Up-times at which a count of milliseconds or seconds might wrap, in nanoseconds; some moments
/// before that, so that it happens while clients are there.
const UPTIMES: [u64; 6] = [
    0,
    ((1 << 31) * MILLISECOND) - SECOND,
    ((1 << 32) * MILLISECOND) - SECOND,
    ((1 << 32) * MILLISECOND) + 1,
    ((1 << 32) * SECOND) - SECOND,
    (1 << 62) - SECOND,
];

/// 2026-08-08 12:00:00 UTC.
const UNIX_NANOS: u64 = 1_786_190_400 * SECOND;

/// The sizes and habits of one world. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// About what a lease is; every other time is in proportion to it.
    pub(crate) unit: u64,
    /// When the clients begin to leave.
    pub(crate) duration: u64,
    pub(crate) clients: usize,
    pub(crate) locks: usize,
    pub(crate) shards: u32,
    /// Of each shard.
    pub(crate) sessions_max: u32,
    /// The longest way of a message from one thread to another.
    pub(crate) message_delay_max: u64,
    pub(crate) io_timeout: Duration,
    pub(crate) lease_max_ms: Option<NonZeroU32>,
    /// The longest way from one side to the other.
    pub(crate) delay_max: u64,
    /// The least of the kernel's buffers towards a client.
    pub(crate) room_min: u64,
    /// For how long the server's kernel hopes for a peer behind a cut.
    pub(crate) hope: u64,
    pub(crate) uptime_nanos: u64,
    pub(crate) unix_nanos: u64,
    pub(crate) habits: Habits,
    pub(crate) disturbances: Disturbances,
    /// The server is told to end while its last clients are there.
    pub(crate) ends_by_shutdown: bool,
}

/// How the server's event loop works.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// Bytes that one read takes at most.
    pub(crate) read_max: usize,
    /// Reads in one turn at most: what else is there has to wait, or to be probed for.
    pub(crate) reads_a_turn: usize,
    pub(crate) deadlines_a_turn: usize,
    /// Places whose sessions are told of a shutdown in one turn at most.
    pub(crate) told_a_turn: u32,
    /// How often, in percent, something is done at once and not in the next turn.
    pub(crate) sent_at_once: u32,
    pub(crate) probed_at_once: u32,
    pub(crate) forgotten_at_once: u32,
    /// Turns at most until a connection that goes to another event loop is out of this one.
    pub(crate) turns_to_leave: u64,
}

/// How often something goes wrong, on the average of so many units; never if zero.
#[derive(Clone, Debug)]
pub(crate) struct Disturbances {
    pub(crate) stops: u64,
    pub(crate) cuts: u64,
    pub(crate) clock_steps: u64,
    pub(crate) administrators: u64,
    pub(crate) kills: u64,
    pub(crate) shutdowns: u64,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    /// The server's process is stopped for so long.
    Stop(u64),
    /// A connection's network is cut for so long.
    Cut(u64),
    StepClock(i64),
    Administrator,
    Kill,
    Shutdown,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Scenario {
        let mut draws = Draws::named(seed, "scenario");
        let unit = draws.among(&[2, 10, 50, 200, 1000, 5000]) * MILLISECOND;
        let delay_max = unit / draws.among(&[4, 10, 50, 1000]);
        let io_timeout = (unit * draws.among(&[1, 2, 5, 10])).max(delay_max * 8);
        let clients = draws.place(10) + 2;
        let shards = draws.among(&[1, 2, 3, 4]);
        let sessions_max = if draws.chance(40) { clients / 2 / shards + 2 } else { clients * 4 };
        let lease_max_ms = (unit * 3 / MILLISECOND).try_into().ok().and_then(NonZeroU32::new);
        Scenario {
            unit,
            duration: unit * draws.among(&[10, 30, 60]),
            clients,
            locks: draws.place(LOCKS.len()) + 1,
            shards: u32::try_from(shards).expect("few"),
            sessions_max: u32::try_from(sessions_max).expect("few"),
            message_delay_max: draws.among(&[0, MILLISECOND / 20, MILLISECOND]),
            io_timeout: Duration::from_nanos(io_timeout),
            lease_max_ms: lease_max_ms.filter(|_| draws.chance(20)),
            delay_max,
            room_min: draws.among(&[1, 8, 64, 4096]),
            hope: unit * draws.between(1..=8),
            uptime_nanos: uptime(&mut draws),
            unix_nanos: UNIX_NANOS + draws.between(0..=SECOND),
            habits: Habits::draw(&mut draws),
            disturbances: Disturbances::draw(&mut draws),
            ends_by_shutdown: draws.chance(30),
        }
    }
}

/// The up-time of a machine when the server begins.
pub(crate) fn uptime(draws: &mut Draws) -> u64 {
    draws.among(&UPTIMES)
}

impl Habits {
    fn draw(draws: &mut Draws) -> Habits {
        Habits {
            read_max: draws.among(&[1, 3, 64, 4096]),
            reads_a_turn: draws.among(&[1, 3, 20, 1000]),
            deadlines_a_turn: draws.among(&[1, 2, 1000]),
            told_a_turn: draws.among(&[1, 2, 1000]),
            sent_at_once: draws.among(&[0, 50, 100]),
            probed_at_once: draws.among(&[0, 50, 100]),
            forgotten_at_once: draws.among(&[0, 50, 100]),
            turns_to_leave: draws.among(&[0, 3, 100]),
        }
    }
}

impl Disturbances {
    /// Some worlds are quiet, for what only shows when nothing disturbs it.
    fn draw(draws: &mut Draws) -> Disturbances {
        let mut every = |choices: &[u64]| {
            let quiet = draws.chance(40);
            if quiet { 0 } else { draws.among(choices) }
        };
        Disturbances {
            stops: every(&[2, 8]),
            cuts: every(&[2, 10]),
            clock_steps: every(&[3, 15]),
            administrators: every(&[1, 5]),
            kills: every(&[15, 40]),
            shutdowns: every(&[15, 40]),
        }
    }

    /// All that goes wrong in this world, with its time.
    pub(crate) fn timetable(&self, seed: u64, scenario: &Scenario) -> Vec<(u64, Disturbance)> {
        let mut draws = Draws::named(seed, "disturbances");
        let (unit, mut timetable) = (scenario.unit, Vec::new());
        let mut plan = |every: u64, disturbance: &dyn Fn(&mut Draws) -> Disturbance| {
            for time in times(&mut draws, unit * every, scenario.duration) {
                timetable.push((time, disturbance(&mut draws)));
            }
        };
        plan(self.stops, &|draws| Disturbance::Stop(stretch(draws, unit)));
        plan(self.cuts, &|draws| Disturbance::Cut(stretch(draws, unit) * 2));
        plan(self.clock_steps, &|draws| Disturbance::StepClock(clock_step(draws, unit)));
        plan(self.administrators, &|_| Disturbance::Administrator);
        plan(self.kills, &|_| Disturbance::Kill);
        plan(self.shutdowns, &|_| Disturbance::Shutdown);
        timetable
    }
}

/// Times that are `every` apart on the average, before `end`; none if `every` is zero.
fn times(draws: &mut Draws, every: u64, end: u64) -> Vec<u64> {
    let mut next = |time: &u64| Some(time + draws.between(1..=every.max(1) * 2));
    let first = if every == 0 { None } else { next(&0) };
    std::iter::successors(first, next).take_while(|&time| time < end).collect()
}

/// Mostly shorter than a lease, at times as long as some.
fn stretch(draws: &mut Draws, unit: u64) -> u64 {
    let longest = draws.among(&[unit / 10, unit / 2, unit * 2, unit * 6]);
    draws.between(0..=longest)
}

/// A correction, or an hour, in either direction.
pub(crate) fn clock_step(draws: &mut Draws, unit: u64) -> i64 {
    let longest = draws.among(&[MILLISECOND, unit, SECOND, 3600 * SECOND]);
    let step = i64::try_from(draws.between(0..=longest)).expect("an hour at most");
    if draws.chance(50) { step } else { -step }
}

/// What one client does with one connection. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) opening: Opening,
    pub(crate) lock: usize,
    pub(crate) lease_ms: u32,
    /// Bytes of one segment at most, and the time between two of them.
    pub(crate) piece: usize,
    pub(crate) piece_gap: u64,
    /// Between two heartbeats; none at all if zero.
    pub(crate) beat_every: u64,
    pub(crate) beats_at_once: usize,
    /// Neither sends nor reads for that long, from that time on.
    pub(crate) pause: Option<(u64, u64)>,
    /// Reads nothing from that time on.
    pub(crate) deaf_from: Option<u64>,
    /// How long the lock is held, and how long it is waited for.
    pub(crate) hold: u64,
    pub(crate) patience: u64,
    pub(crate) leaving: Leaving,
    /// How long it goes on sending after an ERROR, and how much.
    pub(crate) talks_on: u64,
    pub(crate) flood: bool,
    /// Before the next connection.
    pub(crate) rest: u64,
    pub(crate) delay: (u64, u64),
    pub(crate) room: usize,
}

/// How a client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Acquire,
    /// The first so many bytes of an ACQUIRE.
    PartOfAcquire(usize),
    Nothing,
    Wrong(&'static [u8]),
}

/// How a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Close,
    HalfClose,
    Reset,
    /// It is never heard of again.
    Silence,
    Wrong(&'static [u8]),
}

const WRONG_OPENINGS: [&[u8]; 9] = [
    b"\x02",
    b"\x07\x01",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x01\x02\x00\x00",
    b"\x01\x01\x00\x00\x10\x00\x00\x00",
    b"\x01\x01\x00\x00\x10\x00\x01\x00nnnn",
    b"\x01\x01\x00\x00\x10\x00\x00\x02\xff\xfe",
    b"\x01\x01\x00\x00\x00\x00\x00\x01a",
    b"\x01\x01\xff\xff\xff\xff\x00\x00",
];

const WRONG_LEAVINGS: [&[u8]; 4] = [b"\x01", b"\x02\x02\x00", b"\x11\x02", b"\x02\x01\x01"];

impl Plan {
    pub(crate) fn draw(draws: &mut Draws, scenario: &Scenario) -> Plan {
        let unit = scenario.unit;
        let is_deaf = draws.chance(8);
        // A deaf one has time enough to get stuck.
        let lease = if is_deaf { unit * 6 } else { lease(draws, scenario) };
        let pause = draws.chance(15).then(|| (draws.between(0..=unit * 4), stretch(draws, unit)));
        Plan {
            opening: Opening::draw(draws),
            lock: draws.place(scenario.locks),
            lease_ms: u32::try_from(lease / MILLISECOND).unwrap_or(u32::MAX),
            piece: if is_deaf { 1000 } else { draws.among(&[1, 5, 1000, 1000, 1000]) },
            piece_gap: draws.between(0..=unit / 40),
            beat_every: beat(draws, lease.min(unit * 8)),
            beats_at_once: if is_deaf { 300 } else { draws.among(&[1, 1, 1, 2, 5]) },
            pause,
            deaf_from: is_deaf.then(|| draws.between(0..=unit * 2)),
            hold: draws.between(0..=unit * 3),
            patience: if is_deaf { unit * 20 } else { draws.between(0..=unit * 12) },
            leaving: Leaving::draw(draws),
            talks_on: if draws.chance(30) { draws.between(0..=unit * 4) } else { 0 },
            flood: draws.chance(3),
            rest: draws.between(0..=unit * 2),
            delay: (0, draws.between(0..=scenario.delay_max)),
            room: usize::try_from(draws.between(scenario.room_min..=8192)).expect("small"),
        }
    }
}

/// Leases differ from client to client, and some are as long as they can be.
fn lease(draws: &mut Draws, scenario: &Scenario) -> u64 {
    let lease = match draws.place(30) {
        0 => u64::from(u32::MAX) * MILLISECOND,
        1 => scenario.unit / 10,
        2..10 => scenario.unit * draws.between(2..=4),
        _ => draws.between(scenario.unit / 2..=scenario.unit * 2),
    };
    lease.max(MILLISECOND)
}

/// A quarter of the lease is what is asked for. Some do it just in time, some hardly, some never.
fn beat(draws: &mut Draws, lease: u64) -> u64 {
    match draws.place(12) {
        0 => 0,
        1 => lease * draws.between(85..=105) / 100,
        _ => lease * draws.between(15..=40) / 100,
    }
}

impl Opening {
    fn draw(draws: &mut Draws) -> Opening {
        match draws.place(40) {
            0 => Opening::Nothing,
            1 => Opening::PartOfAcquire(draws.place(8) + 1),
            2..5 => Opening::Wrong(draws.among(&WRONG_OPENINGS)),
            _ => Opening::Acquire,
        }
    }
}

impl Leaving {
    fn draw(draws: &mut Draws) -> Leaving {
        match draws.place(12) {
            0..4 => Leaving::Close,
            4..7 => Leaving::HalfClose,
            7 => Leaving::Reset,
            8..10 => Leaving::Silence,
            _ => Leaving::Wrong(draws.among(&WRONG_LEAVINGS)),
        }
    }
}
