//! What the kernel says about a process.

use std::fs;
use std::io;

/// A process's use of the machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time so far, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
}

impl Usage {
    /// Of the process with this id.
    ///
    /// # Errors
    /// If it isn't there, or not ours.
    pub fn of(pid: u32) -> io::Result<Usage> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (ticks, pages) = parse_stat(&stat)
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown form")))?;
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 ticks")]
        let cpu_seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let resident_bytes = pages * rustix::param::page_size() as u64;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        Ok(Usage { cpu_seconds, resident_bytes, descriptors })
    }
}

/// Ticks in user and kernel mode, and resident pages: fields 14, 15 and 24.
fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    // The second field is the program's name, which may contain anything; the last bracket ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((field(14)? + field(15)?, field(24)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_confuses_nobody() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 100 23 0 0 20 0 3 0 99 4096 512 1 2";
        assert_eq!(parse_stat(stat), Some((123, 512)));
        assert_eq!(parse_stat("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let usage = Usage::of(std::process::id()).expect("of ourselves");
        assert!(usage.resident_bytes > 100_000 && usage.descriptors >= 3, "{usage:?}");
    }
}
