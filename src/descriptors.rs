//! How many descriptors the process may have, which is also the size of a ring's table of sockets.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a `setrlimit` of "unlimited" means in practice: the kernel's default of `fs.nr_open`.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit of open descriptors to the hard one, and returns what it is then.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        // A hard limit above fs.nr_open can't be taken; what there is already can.
        Err(_) => limit.current,
    };
    now.unwrap_or(UNLIMITED)
}

/// How many descriptors are open now, or an estimate if /proc can't be read.
pub fn open() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(16, |entries| entries.count() as u64)
}
