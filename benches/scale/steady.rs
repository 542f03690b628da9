//! Sessions that come, heartbeat for as long as their lease, and are there when the server is told
//! to end.

use std::error::Error;
use std::num::NonZeroU32;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Signal, getrlimit};

use crate::clients::{Ended, Greeting};
use crate::memory;
use crate::side::Side;
use crate::spread::Spread;
use crate::table::Column;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Heartbeats in a lease, as the documentation advises.
const BEATS_A_LEASE: u32 = 3;

/// How long a server has its turn.
const ROUND: Duration = Duration::from_millis(500);

/// Heartbeats before the memory is looked at.
const WARM_UP: Duration = Duration::from_secs(2);

/// How long the yardstick is measured, when it is alone.
const YARDSTICK_ALONE: Duration = Duration::from_secs(20);

/// What a shard's table is filled to, in per cent. Locks are spread by a hash, so some shards get
/// more than others; and one that is full lets connections wait.
const FILLED_PER_CENT: u64 = 85;

pub(crate) struct Steady<'a> {
    server: &'a Path,
    yardstick: &'a Path,
    sessions: u32,
    rate: u32,
    shards: u32,
}

/// What the machine has before and after.
struct Memory {
    user: f64,
    kernel: f64,
    slabs: f64,
}

impl Steady<'_> {
    pub(crate) fn new<'a>(
        server: &'a Path,
        yardstick: &'a Path,
        sessions: u32,
        rate: u32,
    ) -> Steady<'a> {
        Steady { server, yardstick, sessions, rate, shards: shards_for(sessions) }
    }

    /// Sessions with that lease. The yardstick is measured in turns with the server if there can be
    /// two at a time.
    pub(crate) fn run(&self, lease_s: u32, together: bool) -> Result<Column> {
        let sessions = self.sessions;
        let mut column = self.column(&format!("{lease_s} s"));
        let lease = Duration::from_secs(lease_s.into());
        let greeting = Greeting::Acquire { lease_ms: milliseconds(lease)? };
        let mut server = Side::server(self.server, self.shards, sessions)?;
        let rate = self.rate_for(lease, if together { 2 } else { 1 });
        column.push(("heartbeats a second", rate.to_string()));
        self.open(&mut server, greeting, rate, &mut column)?;
        let opened = Instant::now();
        let mut yardstick = None;
        if together {
            let mut side = Side::yardstick(self.yardstick, self.shards, sessions)?;
            side.clients.open(sessions, Greeting::Byte)?;
            yardstick = Some(side);
        }
        let (mut of_server, mut of_yardstick, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        while opened.elapsed() <= lease {
            let beat = |side: &mut Side| side.cpu_us(|clients| clients.beat(sessions, rate, ROUND));
            let is_swapped = of_server.len() % 2 == 1;
            let first = if is_swapped { yardstick.as_mut().map(beat).transpose()? } else { None };
            let cpu_us = beat(&mut server)?;
            let last = if is_swapped { None } else { yardstick.as_mut().map(beat).transpose()? };
            of_server.push(cpu_us);
            of_yardstick.extend(first.or(last));
            ratios.extend(first.or(last).map(|yardstick| cpu_us / yardstick));
        }
        column.push(("server: CPU us a heartbeat", median(of_server, 2)));
        if together {
            column.push(("yardstick: CPU us a heartbeat", median(of_yardstick, 2)));
            column.push(("ratio, in turns", median(ratios, 3)));
        }
        drop(yardstick);
        self.shut_down(server, &mut column)?;
        Ok(column)
    }

    /// The yardstick by itself, with a heartbeat for each session in twenty seconds.
    pub(crate) fn run_yardstick(&self) -> Result<Column> {
        let mut column = self.column("yardstick");
        let mut side = Side::yardstick(self.yardstick, self.shards, self.sessions)?;
        let rate = self.rate_for(YARDSTICK_ALONE * BEATS_A_LEASE, 1);
        column.push(("heartbeats a second", rate.to_string()));
        self.open(&mut side, Greeting::Byte, rate, &mut column)?;
        let opened = Instant::now();
        let mut measured = Vec::new();
        while opened.elapsed() <= YARDSTICK_ALONE {
            measured.push(side.cpu_us(|clients| clients.beat(self.sessions, rate, ROUND))?);
        }
        column.push(("yardstick: CPU us a heartbeat", median(measured, 2)));
        Ok(column)
    }

    fn column(&self, kind: &str) -> Column {
        vec![
            ("sessions", self.sessions.to_string()),
            ("lease", kind.to_owned()),
            ("rings", self.shards.to_string()),
        ]
    }

    /// Heartbeats a second for each session to have [`BEATS_A_LEASE`], if it has its turn in one of
    /// so many.
    fn rate_for(&self, lease: Duration, turns: u32) -> u32 {
        let wanted = f64::from(self.sessions * BEATS_A_LEASE * turns) / lease.as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        let wanted = wanted.ceil() as u32;
        wanted.max(self.rate)
    }

    /// Opens all sessions, with heartbeats for those that have come already, and looks at the
    /// memory that they take.
    fn open(
        &self,
        side: &mut Side,
        greeting: Greeting,
        rate: u32,
        column: &mut Column,
    ) -> Result<()> {
        let before = Memory::with(side)?;
        let (start, cpu) = (Instant::now(), side.subject.cpu());
        side.clients.open_beating(self.sessions, greeting, rate)?;
        let (took, cpu) = (start.elapsed(), side.subject.cpu() - cpu);
        side.clients.beat(self.sessions, rate, WARM_UP)?;
        let after = Memory::with(side)?;
        let a_session = |bytes: f64| format!("{:.0}", bytes / f64::from(self.sessions));
        column.extend([
            ("seconds to connect and claim", seconds(took)),
            ("server: CPU seconds meanwhile", seconds(cpu)),
            ("server: bytes a session", a_session(after.user - before.user)),
            ("server: MB in all", format!("{:.1}", after.user / 1e6)),
            ("kernel: bytes a session, both ends", a_session(after.kernel - before.kernel)),
            ("of them in slabs", a_session(after.slabs - before.slabs)),
        ]);
        Ok(())
    }

    fn shut_down(&self, mut side: Side, column: &mut Column) -> Result<()> {
        let [silence, wait] = side.clients.longest();
        let Ended { otherwise, within_lease, .. } = side.clients.ended();
        let (start, cpu) = (Instant::now(), side.subject.cpu());
        side.subject.signal(Signal::TERM)?;
        side.clients.wait_for_closed()?;
        let (status, cpu_in_all) = side.subject.wait()?;
        let took = start.elapsed();
        if !status.success() {
            return Err(format!("the server has ended with {status}").into());
        }
        let cpu = cpu_in_all.saturating_sub(cpu).as_secs_f64() * 1e6 / f64::from(self.sessions);
        column.extend([
            ("longest time between a session's frames, s", seconds(silence)),
            ("longest wait for an answer, s", seconds(wait)),
            ("leases ended", otherwise.to_string()),
            ("of them falsely", within_lease.to_string()),
            ("sessions told of the shutdown", side.clients.ended().dismissed.to_string()),
            ("seconds to shut down", seconds(took)),
            ("server: CPU us a session meanwhile", format!("{cpu:.1}")),
        ]);
        Ok(())
    }
}

impl Memory {
    fn with(side: &Side) -> Result<Memory> {
        // What was just closed or sent is given back a little later.
        thread::sleep(Duration::from_millis(200));
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 bytes")]
        let user = side.subject.memory() as f64;
        Ok(Memory { user, kernel: memory::of_kernel()?, slabs: memory::in_slabs()? })
    }
}

/// As many as it takes for so many sessions.
pub(crate) fn shards_for(sessions: u32) -> u32 {
    sessions.div_ceil(per_shard())
}

/// What a shard's table is filled to.
pub(crate) fn per_shard() -> u32 {
    // The server raises its limit to that.
    let places = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20).min(1 << 20);
    u32::try_from(places * FILLED_PER_CENT / 100).expect("limited").max(1)
}

fn milliseconds(lease: Duration) -> Result<NonZeroU32> {
    Ok(NonZeroU32::new(u32::try_from(lease.as_millis())?).ok_or("a lease of nothing")?)
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

/// The median, and the half of the values around it.
fn median(values: Vec<f64>, digits: usize) -> String {
    let spread = Spread::of(values);
    let [low, median, high] = [1, 2, 3].map(|quarter| spread.quarter(quarter));
    format!("{median:.digits$} ({low:.digits$}..{high:.digits$})")
}
