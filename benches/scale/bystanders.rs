//! Sessions that have nothing to do with what happens, and what they notice of it.

use std::error::Error;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::claim::Claim;
use crate::quantiles::Quantiles;

/// How many there are.
const BYSTANDERS: usize = 1_000;

const HOURS_MS: NonZeroU32 = NonZeroU32::new(10 * 3_600_000).expect("not zero");

/// A heartbeat of one of them is due this often.
const PERIOD: Duration = Duration::from_millis(1);

/// Before all others of this process, which share a processor and would be waited for.
const PRIORITY: i32 = -20;

/// Each the holder of a lock of its own.
pub(crate) struct Bystanders(Vec<Claim>);

impl Bystanders {
    pub(crate) fn of(server: SocketAddr) -> Result<Bystanders, Box<dyn Error>> {
        let claims = (0..BYSTANDERS).map(|number| {
            let mut claim = Claim::connect(server)?;
            claim.acquire(&format!("bystander/{number}"), HOURS_MS)?;
            claim.is_acquired()?;
            Ok(claim)
        });
        Ok(Bystanders(claims.collect::<Result<_, Box<dyn Error>>>()?))
    }

    /// How long their heartbeats took while `event` went on.
    pub(crate) fn during<T>(
        &mut self,
        event: impl FnOnce() -> Result<T, Box<dyn Error>>,
    ) -> Result<(T, Quantiles), Box<dyn Error>> {
        let over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(move || watch(&mut self.0, over));
            let result = event();
            over.store(true, Ordering::Relaxed);
            let latencies = watching.join().expect("no panic").map_err(|error| error.to_string());
            Ok((result?, Quantiles::of(latencies?)))
        })
    }
}

/// They heartbeat in turns, each at its time and whether or not others were answered; latency
/// counts from when it was due. Each has had its turn at least once.
fn watch(
    bystanders: &mut [Claim],
    over: &AtomicBool,
) -> Result<Vec<Duration>, Box<dyn Error + Send + Sync>> {
    let mut awaited: Vec<Option<Instant>> = vec![None; bystanders.len()];
    let mut latencies = Vec::new();
    if let Err(error) = setpriority_process(Some(gettid()), PRIORITY) {
        println!("  LIMITED: bystanders share their processor as equals ({error})");
    }
    let mut due = Instant::now();
    let mut turns = (0..bystanders.len()).cycle();
    while !over.load(Ordering::Relaxed) || latencies.len() < BYSTANDERS {
        while due <= Instant::now() {
            let next = turns.next().expect("an endless cycle");
            // One that still waits for an answer is late already, and counts as that.
            if awaited[next].is_none() {
                bystanders[next].heartbeat()?;
                awaited[next] = Some(due);
            }
            due += PERIOD;
        }
        for answered in readable(bystanders, due)? {
            bystanders[answered].is_acquired().map_err(|error| error.to_string())?;
            let due = awaited[answered].take().ok_or("an answer without a heartbeat")?;
            latencies.push(due.elapsed());
        }
    }
    Ok(latencies)
}

/// Which of them have something to be read, as soon as one has, or at `until`.
fn readable(claims: &[Claim], until: Instant) -> std::io::Result<Vec<usize>> {
    let mut watched: Vec<PollFd<'_>> =
        claims.iter().map(|claim| PollFd::new(&claim.socket, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now()));
    poll(&mut watched, timeout.ok().as_ref())?;
    let ready = watched.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|(number, _)| number).collect())
}
