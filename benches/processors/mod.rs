//! Which processor runs what, so that a server is not measured by what its clients take from it.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The two sides of every connection, each on a processor of its own.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Server,
    Clients,
}

/// The number of the side's processor. With a single one there is nothing to choose.
pub(crate) fn processor_of(side: Side) -> Result<Option<usize>, Box<dyn Error>> {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    let allowed = match ALLOWED.get() {
        Some(allowed) => allowed,
        None => {
            let set = sched_getaffinity(None)?;
            ALLOWED.get_or_init(|| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        }
    };
    Ok(match (allowed.as_slice(), side) {
        (&[first, _, ..], Side::Server) => Some(first),
        (&[_, second, ..], Side::Clients) => Some(second),
        _ => None,
    })
}

/// Binds the calling thread, and what it starts, to the side's processor.
pub(crate) fn run_on(side: Side) -> Result<(), Box<dyn Error>> {
    if let Some(processor) = processor_of(side)? {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set)?;
    }
    Ok(())
}
