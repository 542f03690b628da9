//! How many descriptors the process has open.

use std::fs;

/// How many there are now, or an estimate if /proc can't be read.
pub fn open() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(16, |entries| entries.count() as u64)
}
