//! What the kernel says of this process.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::{clock, descriptors};

/// What a process can be measured by everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessStats {
    pub(super) cpu_seconds: f64,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_fds: u64,
    /// `None` if there is no limit.
    pub(super) max_fds: Option<u64>,
}

/// Asks the kernel.
pub(super) fn read() -> ProcessStats {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let memory_bytes = |field| pages_of(pages.as_deref()?, field).map(|pages| pages * page_bytes());
    ProcessStats {
        cpu_seconds: clock::process_cpu().as_secs_f64(),
        virtual_bytes: memory_bytes(0),
        resident_bytes: memory_bytes(1),
        open_fds: descriptors::open(),
        max_fds: getrlimit(Resource::Nofile).current,
    }
}

fn pages_of(statm: &str, field: usize) -> Option<u64> {
    statm.split(' ').nth(field)?.parse().ok()
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}
