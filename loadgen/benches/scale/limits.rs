//! What may keep a machine from carrying so many sessions, looked at before they are opened: what
//! shows only when half of them are there has cost minutes.

use std::fmt::Display;
use std::fs;
use std::str::FromStr;

/// Of the kernel for both ends of a session, of the server and of the load generator, and something
/// to spare.
const BYTES_A_SESSION: u64 = 12_000;

/// Descriptors of the whole machine that everything else may need.
const FILES_BESIDE: u64 = 10_000;

/// Prints the limits that matter.
pub(crate) fn print() {
    let limit = |name: &str| sysctl::<String>(name).unwrap_or_else(|| "none".to_owned());
    println!(
        "fs.file-max {}, net.core.somaxconn {}, net.ipv4.tcp_mem {} pages, vm.max_map_count {}, \
         nf_conntrack_max {}, available memory {} MB",
        limit("fs/file-max"),
        limit("net/core/somaxconn"),
        limit("net/ipv4/tcp_mem").replace('\t', " "),
        limit("vm/max_map_count"),
        limit("net/netfilter/nf_conntrack_max"),
        memory_available().unwrap_or(0) / 1_000_000,
    );
}

/// Why so many sessions can't be had, if they can't.
pub(crate) fn stopper(sessions: u32) -> Option<String> {
    let sessions = u64::from(sessions);
    let files = 2 * sessions + FILES_BESIDE;
    let files_max = sysctl("fs/file-max")?;
    if files > files_max {
        return Some(beyond(files, "open files, both ends of each", "fs.file-max", files_max));
    }
    let tracked = sysctl("net/netfilter/nf_conntrack_count").unwrap_or(0);
    let tracked_max = sysctl("net/netfilter/nf_conntrack_max").unwrap_or(u64::MAX);
    // Loopback connections are tracked only where a rule wants it, and then there are some already.
    if tracked > 0 && tracked + sessions > tracked_max {
        return Some(beyond(sessions, "tracked connections", "nf_conntrack_max", tracked_max));
    }
    let (bytes, available) = (sessions * BYTES_A_SESSION, memory_available()?);
    (bytes > available).then(|| beyond(bytes, "bytes of memory", "what is available", available))
}

fn beyond(wanted: u64, what: &str, limit: &str, most: impl Display) -> String {
    format!("they need {wanted} {what}; {limit} is {most}")
}

fn sysctl<T: FromStr>(name: &str) -> Option<T> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()?.trim().parse().ok()
}

fn memory_available() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
