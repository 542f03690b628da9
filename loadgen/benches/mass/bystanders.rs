//! Sessions to which nothing happens, and that notice how long their heartbeats take.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use monolock_core::time::Instant;
use monolock_core::wire::{Acquire, HEARTBEAT, encode_acquire};
use monolock_loadgen::clock;
use monolock_loadgen::recorder::histogram;
use monolock_loadgen::results::{at, ms};
use monolock_loadgen::source::Source;
use monolock_ring::{Config, ConnectionId, Event, Reading, Ring};
use rustix::process::setpriority_process;

/// Longer than any measurement.
const LEASE_MS: NonZeroU32 = NonZeroU32::new(10 * 3_600_000).expect("not zero");

/// One of them sends a heartbeat this often.
const PERIOD: Duration = Duration::from_millis(1);

/// The highest.
const PRIORITY: i32 = -20;

/// How long all of them may take to hold their locks.
const PATIENCE: Duration = Duration::from_secs(20);

type Problem = Box<dyn Error + Send + Sync>;

/// How long heartbeats took.
pub(crate) struct Latencies {
    /// From when each was due: with the load generator's own delay, where it has as much to do.
    due: Histogram<u64>,
    /// From when each was sent.
    sent: Histogram<u64>,
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |histogram: &Histogram<u64>| {
            let [half, most, nearly_all] =
                [50.0, 99.0, 99.9].map(|percentile| at(histogram, percentile));
            let max = ms(histogram.max());
            format!("50 % {half:.3}, 99 % {most:.2}, 99.9 % {nearly_all:.2}, worst {max:.2}")
        };
        write!(
            f,
            "{} heartbeats of bystanders, ms: {} (from when they were due: {})",
            self.sent.len(),
            of(&self.sent),
            of(&self.due)
        )
    }
}

enum Order {
    /// Forget what was recorded.
    Begin,
    Report(Sender<Latencies>),
}

/// The bystanders, from outside their thread. They leave when this is dropped.
pub(crate) struct Bystanders {
    orders: Sender<Order>,
}

impl Bystanders {
    /// So many sessions, each of which holds a lock of its own now.
    pub(crate) fn start(source: Source, count: u32) -> Result<Bystanders, Box<dyn Error>> {
        let (orders, inbox) = channel();
        let (started, has_started) = channel();
        thread::Builder::new().name("bystanders".to_owned()).spawn(move || {
            // The thread's own: the crowd on the same processor is not what is measured.
            if let Err(error) = setpriority_process(None, PRIORITY) {
                eprintln!("bystanders have no priority over the crowd: {error}");
            }
            match Watch::start(source, count) {
                Ok(mut watch) => {
                    let _ = started.send(Ok(()));
                    watch.go_on(&inbox).expect("bystanders stay connected");
                }
                Err(problem) => {
                    let _ = started.send(Err(problem));
                }
            }
        })?;
        has_started.recv()?.map_err(|problem| problem.to_string())?;
        Ok(Bystanders { orders })
    }

    /// From here on it is recorded.
    pub(crate) fn begin(&self) -> Result<(), Box<dyn Error>> {
        self.orders.send(Order::Begin).map_err(|_| "the bystanders have ended".into())
    }

    /// What was recorded. Heartbeats without an answer count as far as they have come.
    pub(crate) fn report(&self) -> Result<Latencies, Box<dyn Error>> {
        let (reporter, report) = channel();
        self.orders.send(Order::Report(reporter)).map_err(|_| "the bystanders have ended")?;
        Ok(report.recv()?)
    }
}

/// When a heartbeat was due, and when it was sent.
#[derive(Clone, Copy)]
struct Awaited {
    due: Instant,
    sent: Instant,
}

struct Watch {
    ring: Ring,
    awaited: Vec<Option<Awaited>>,
    answered: u32,
    latencies: Latencies,
    next: usize,
}

impl Watch {
    fn start(mut source: Source, count: u32) -> Result<Watch, Problem> {
        let mut ring = Ring::new(&Config { slots: count, ..Config::default() })?;
        ring.stamp_arrivals();
        let latencies = Latencies { due: histogram(), sent: histogram() };
        let awaited = vec![None; count as usize];
        let mut watch = Watch { ring, awaited, answered: 0, latencies, next: 0 };
        let mut frame = Vec::new();
        for index in 0..count {
            let id = id(index);
            watch.ring.attach(id, source.connect(None)?)?;
            let name = format!("bystander/{index}");
            frame.clear();
            encode_acquire(Acquire { lease_ms: LEASE_MS, name: &name }, &mut frame);
            watch.ring.send(id, |bytes| {
                bytes[..frame.len()].copy_from_slice(&frame);
                frame.len()
            });
            watch.ring.read(id, Reading::Stream);
            watch.turn(Duration::ZERO)?;
        }
        let deadline = clock::now().after(PATIENCE);
        while watch.answered < count {
            watch.turn(PERIOD)?;
            if clock::now() > deadline {
                return Err("bystanders get no answer".into());
            }
        }
        Ok(watch)
    }

    fn go_on(&mut self, inbox: &Receiver<Order>) -> Result<(), Problem> {
        let mut due = clock::now();
        loop {
            match inbox.try_recv() {
                Ok(Order::Begin) => {
                    self.latencies = Latencies { due: histogram(), sent: histogram() };
                }
                Ok(Order::Report(reporter)) => {
                    let _ = reporter.send(self.report());
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            let now = clock::now();
            while due <= now {
                self.heartbeat(due, now);
                due = due.after(PERIOD);
            }
            self.turn(due.since(clock::now()))?;
        }
    }

    /// One that still waits for an answer is late already, and counts as that.
    fn heartbeat(&mut self, due: Instant, now: Instant) {
        let index = self.next;
        self.next = (index + 1) % self.awaited.len();
        let id = id(u32::try_from(index).expect("few"));
        if self.awaited[index].is_none() && !self.ring.is_sending(id) {
            self.awaited[index] = Some(Awaited { due, sent: now });
            self.ring.send(id, |bytes| {
                bytes[0] = HEARTBEAT;
                1
            });
        }
    }

    fn turn(&mut self, timeout: Duration) -> Result<(), Problem> {
        self.ring.wait(Some(timeout))?;
        let (now, unix_now) = (clock::now(), clock::unix_now());
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { id, .. } => {
                    self.answered += 1;
                    let stamp = self.ring.arrived_at();
                    let arrived =
                        stamp.map_or(now, |stamp| now.before(unix_now.saturating_sub(stamp)));
                    if let Some(awaited) = self.awaited[id.index as usize].take() {
                        self.latencies.add(awaited, arrived);
                    }
                }
                Event::EndOfStream { id }
                | Event::ReceiveFailed { id, .. }
                | Event::SendFailed { id, .. } => {
                    return Err(format!("bystander {} has lost its session", id.index).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn report(&self) -> Latencies {
        let mut latencies = self.latencies.clone();
        let now = clock::now();
        for awaited in self.awaited.iter().flatten() {
            latencies.add(*awaited, now);
        }
        latencies
    }
}

impl Latencies {
    fn add(&mut self, awaited: Awaited, arrived: Instant) {
        let nanos = |since: Instant| u64::try_from(arrived.since(since).as_nanos()).unwrap_or(0);
        self.due.saturating_record(nanos(awaited.due));
        self.sent.saturating_record(nanos(awaited.sent));
    }
}

impl Clone for Latencies {
    fn clone(&self) -> Latencies {
        Latencies { due: self.due.clone(), sent: self.sent.clone() }
    }
}

fn id(index: u32) -> ConnectionId {
    ConnectionId { index, generation: 1 }
}
