//! Very many sessions on several rings, all of which do the same at a word.

use std::error::Error;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolock_core::wire::{Acquire, HEARTBEAT, ServerFrame, decode_server, encode_acquire};
use monolock_loadgen::source::Source;
use monolock_ring::{Config, ConnectionId, Event, Reading, Ring, Waker};

/// Slots left alone of those that the limit allows.
const SLOTS_SPARE: u32 = 100;

/// Connections begun before answers are read again.
const OPENED_A_TURN: u32 = 64;

/// How long a crowd may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(1);

/// What every session claims.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) lease_ms: NonZeroU32,
    /// All of them the same lock, or else each one of its own.
    pub(crate) is_shared: bool,
}

enum Order {
    /// Connect, evenly over so much time.
    Open {
        source: Source,
        over: Duration,
        claim: Claim,
    },
    Heartbeat,
    Leave,
}

/// What has happened to all of them, since it was last looked.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) acquired: AtomicU32,
    pub(crate) waiting: AtomicU32,
    /// Sends that the kernel has taken.
    pub(crate) sent: AtomicU32,
    /// Ended by the server.
    pub(crate) ended: AtomicU32,
    /// Gone altogether.
    pub(crate) closed: AtomicU32,
}

impl Tally {
    pub(crate) fn reset(&self) {
        for count in [&self.acquired, &self.waiting, &self.sent, &self.ended, &self.closed] {
            count.store(0, Ordering::SeqCst);
        }
    }
}

/// The crowd, from outside its threads.
pub(crate) struct Crowd {
    pub(crate) tally: Arc<Tally>,
    threads: Vec<(Sender<Order>, Waker, JoinHandle<io::Result<()>>)>,
}

impl Crowd {
    /// So many sessions, none of which is open.
    pub(crate) fn new(sessions: u32) -> Result<Crowd, Box<dyn Error>> {
        let limit = u32::try_from(monolock_ring::raise_descriptor_limit()).unwrap_or(u32::MAX);
        let threads = sessions.div_ceil(limit.saturating_sub(SLOTS_SPARE).max(1));
        let tally = Arc::new(Tally::default());
        let start = |number: u32| -> Result<_, Box<dyn Error>> {
            let (orders, inbox) = channel();
            let (started, has_started) = channel();
            let tally = Arc::clone(&tally);
            let share = (sessions + threads - 1 - number) / threads;
            let body = move || {
                let ring = Ring::new(&Config { slots: share, ..Config::default() });
                let ring = ring.map_err(io::Error::other)?;
                let _ = started.send(ring.waker());
                Part::new(ring, number, threads, share, tally).obey(&inbox)
            };
            let thread = thread::Builder::new().name(format!("crowd-{number}")).spawn(body)?;
            match has_started.recv() {
                Ok(waker) => Ok((orders, waker, thread)),
                Err(_) => Err(thread.join().expect("no panic").expect_err("no ring").into()),
            }
        };
        let threads = (0..threads).map(start).collect::<Result<_, _>>()?;
        Ok(Crowd { tally, threads })
    }

    fn tell(&self, order: impl Fn() -> Order) {
        for (orders, waker, _) in &self.threads {
            // One that has ended says why when it is waited for.
            let _ = orders.send(order());
            waker.wake();
        }
    }

    /// All connect and claim.
    pub(crate) fn open(&self, source: &Source, over: Duration, claim: Claim) {
        self.tally.reset();
        self.tell(|| Order::Open { source: source.clone(), over, claim });
    }

    /// The part of others in a source from which the crowd connects too: no two may count the same
    /// ports.
    pub(crate) fn source_of_others(&self, source: &Source) -> Source {
        let threads = u32::try_from(self.threads.len()).expect("few");
        source.clone().of_worker(threads, threads + 1)
    }

    /// All send a heartbeat.
    pub(crate) fn heartbeat(&self) {
        self.tally.reset();
        self.tell(|| Order::Heartbeat);
    }

    /// All close.
    pub(crate) fn leave(&self) {
        self.tally.reset();
        self.tell(|| Order::Leave);
    }

    /// Waits until something is so, and returns for how long.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Tally) -> bool,
    ) -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        while !is_so(&self.tally) {
            if let Some(place) = self.threads.iter().position(|(.., thread)| thread.is_finished()) {
                let (.., thread) = self.threads.swap_remove(place);
                thread.join().expect("no panic")?;
                return Err(format!("a thread has ended before {what}").into());
            }
            if start.elapsed() > PATIENCE {
                let Tally { acquired, waiting, sent, ended, closed } = &*self.tally;
                return Err(format!(
                    "{PATIENCE:?} are not enough until {what}: {acquired:?} acquired, {waiting:?} \
                     waiting, {sent:?} sent, {ended:?} ended, {closed:?} closed"
                )
                .into());
            }
            thread::sleep(LOOK);
        }
        Ok(start.elapsed())
    }
}

/// One thread's part.
struct Part {
    ring: Ring,
    number: u32,
    threads: u32,
    share: u32,
    tally: Arc<Tally>,
    /// By place: which connection it is, and whether it is open.
    places: Vec<(u32, bool)>,
    opening: Option<Opening>,
}

struct Opening {
    source: Source,
    claim: Claim,
    start: Instant,
    /// From one connection to the next.
    every: Duration,
    next: u32,
}

impl Part {
    fn new(ring: Ring, number: u32, threads: u32, share: u32, tally: Arc<Tally>) -> Part {
        let places = vec![(0, false); share as usize];
        Part { ring, number, threads, share, tally, places, opening: None }
    }

    fn obey(mut self, inbox: &Receiver<Order>) -> io::Result<()> {
        loop {
            loop {
                match inbox.try_recv() {
                    Ok(order) => self.begin(order),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            let until = self.open_due()?;
            self.ring.wait(until)?;
            self.take_in();
        }
    }

    fn begin(&mut self, order: Order) {
        match order {
            Order::Open { source, over, claim } => {
                self.opening = Some(Opening {
                    source: source.of_worker(self.number, self.threads + 1),
                    claim,
                    start: Instant::now(),
                    every: over / self.share,
                    next: 0,
                });
            }
            Order::Heartbeat => {
                for id in self.open_ids() {
                    self.ring.send(id, |bytes| {
                        bytes[0] = HEARTBEAT;
                        1
                    });
                }
            }
            Order::Leave => self.open_ids().into_iter().for_each(|id| self.close(id)),
        }
    }

    fn open_ids(&self) -> Vec<ConnectionId> {
        let places = (0..).zip(&self.places).filter(|(_, (_, is_open))| *is_open);
        places.map(|(index, &(generation, _))| ConnectionId { index, generation }).collect()
    }

    /// Opens what is due, and says how long there is nothing to open.
    fn open_due(&mut self) -> io::Result<Option<Duration>> {
        let Some(opening) = &mut self.opening else { return Ok(None) };
        let mut frame = Vec::new();
        for _ in 0..OPENED_A_TURN {
            if opening.next == self.share {
                self.opening = None;
                return Ok(None);
            }
            let due = opening.every * opening.next;
            let wait = due.saturating_sub(opening.start.elapsed());
            if !wait.is_zero() {
                return Ok(Some(wait));
            }
            let index = opening.next;
            opening.next += 1;
            let (generation, is_open) = &mut self.places[index as usize];
            assert!(!*is_open, "a place is opened once");
            (*generation, *is_open) = (generation.wrapping_add(1), true);
            let id = ConnectionId { index, generation: *generation };
            let socket = opening.source.connect(None).map_err(io::Error::other)?;
            self.ring.attach(id, socket)?;
            let name = match opening.claim.is_shared {
                true => "mass/shared".to_owned(),
                false => format!("mass/{}/{index}", self.number),
            };
            frame.clear();
            let lease_ms = opening.claim.lease_ms;
            encode_acquire(Acquire { lease_ms, name: &name }, &mut frame);
            self.ring.send(id, |bytes| {
                bytes[..frame.len()].copy_from_slice(&frame);
                frame.len()
            });
            self.ring.read(id, Reading::Stream);
        }
        Ok(Some(Duration::ZERO))
    }

    fn take_in(&mut self) {
        while let Some(event) = self.ring.next_event() {
            let add = |count: &AtomicU32| {
                count.fetch_add(1, Ordering::Relaxed);
            };
            let ended = match event {
                Event::Received { mut bytes, .. } => {
                    while let Ok(Some((frame, len))) = decode_server(bytes) {
                        bytes = &bytes[len..];
                        match frame {
                            ServerFrame::Acquired(_) => add(&self.tally.acquired),
                            ServerFrame::Waiting => add(&self.tally.waiting),
                            ServerFrame::Error { .. } => {}
                        }
                    }
                    continue;
                }
                Event::Sent { .. } => {
                    add(&self.tally.sent);
                    continue;
                }
                Event::Closed { .. } => {
                    add(&self.tally.closed);
                    continue;
                }
                Event::EndOfStream { id }
                | Event::ReceiveFailed { id, .. }
                | Event::SendFailed { id, .. } => id,
                Event::SendBlocked { .. } | Event::Silent { .. } | Event::Woken => continue,
                Event::Detached { .. } | Event::DetachFailed { .. } => {
                    unreachable!("nothing leaves this ring")
                }
            };
            add(&self.tally.ended);
            self.close(ended);
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.places[id.index as usize].1 = false;
        self.ring.close(id);
    }
}
