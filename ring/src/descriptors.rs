//! The limit of open descriptors. A ring's table of sockets is limited by it, each for itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What "unlimited" means in practice: the kernel's default of `fs.nr_open`.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard one, and returns what it is then.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        // A hard limit above fs.nr_open can't be taken; what there is already can.
        Err(_) => limit.current,
    };
    now.unwrap_or(UNLIMITED)
}
