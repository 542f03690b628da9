//! What a mass of leases that end in one instant does to sessions whose leases don't.

use std::error::Error;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use crate::claim::Claim;
use crate::quantiles::Quantiles;
use crate::subject::Subject;

const LEASE_MS: NonZeroU32 = NonZeroU32::new(20_000).expect("not zero");
const HOURS_MS: NonZeroU32 = NonZeroU32::new(10 * 3_600_000).expect("not zero");

/// A heartbeat of a bystander is due this often.
const PERIOD: Duration = Duration::from_millis(1);

pub(crate) fn measure(dying: u32, bystanders: u32) -> Result<(), Box<dyn Error>> {
    let program = Path::new(env!("CARGO_BIN_EXE_monolock"));
    let server = Subject::start(program, &["--listen", &crate::listen_address()])?;
    let claims = |count: u32, kind: &str, lease_ms| -> Result<Vec<Claim>, Box<dyn Error>> {
        (0..count)
            .map(|number| {
                let mut claim = Claim::connect(server.address)?;
                claim.acquire(&format!("{kind}/{number}"), lease_ms)?;
                claim.is_acquired()?;
                Ok(claim)
            })
            .collect()
    };
    let bystanders = claims(bystanders, "bystander", HOURS_MS)?;
    let mut crowd = claims(dying, "dying", LEASE_MS)?;

    // What is sent to a stopped server is read in one go: so all leases end together.
    server.signal(Signal::STOP)?;
    for claim in &mut crowd {
        claim.heartbeat()?;
    }
    server.signal(Signal::CONT)?;
    let restarted = Instant::now();
    for claim in &mut crowd {
        claim.is_acquired()?;
    }
    let spread = restarted.elapsed();

    let over = &AtomicBool::new(false);
    let (lasted, latencies) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let lease = Duration::from_millis(LEASE_MS.get().into());
        let begin = restarted + lease - Duration::from_millis(100);
        let watching = scope.spawn(move || watch(bystanders, begin, over));
        let mut died =
            || -> Result<(), Box<dyn Error>> { crowd.iter_mut().try_for_each(Claim::expect_end) };
        let result = died();
        let lasted = restarted.elapsed().saturating_sub(lease);
        over.store(true, Ordering::Relaxed);
        let latencies = watching.join().expect("no panic").map_err(|error| error.to_string())?;
        result.map(|()| (lasted, latencies))
    })?;
    println!("a mass of leases that end in one instant");
    println!(
        "  {dying} leases, restarted within {spread:.0?}; the last of their peers knew of its end \
         {lasted:.0?} after the first had ended"
    );
    println!("  heartbeats of bystanders meanwhile, ms   {}", Quantiles::of(latencies));
    Ok(())
}

/// Bystanders heartbeat in turns, each at its time and whether or not others were answered; latency
/// counts from when it was due.
fn watch(
    mut bystanders: Vec<Claim>,
    begin: Instant,
    over: &AtomicBool,
) -> Result<Vec<Duration>, Box<dyn Error + Send + Sync>> {
    let mut awaited: Vec<Option<Instant>> = vec![None; bystanders.len()];
    let mut latencies = Vec::new();
    let mut due = begin;
    thread::sleep(begin.saturating_duration_since(Instant::now()));
    let mut turns = (0..bystanders.len()).cycle();
    while !over.load(Ordering::Relaxed) || latencies.len() < 1000 {
        while due <= Instant::now() {
            let next = turns.next().expect("an endless cycle");
            // One that still waits for an answer is late already, and counts as that.
            if awaited[next].is_none() {
                bystanders[next].heartbeat()?;
                awaited[next] = Some(due);
            }
            due += PERIOD;
        }
        for answered in readable(&bystanders, due)? {
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
