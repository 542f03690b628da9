//! How much memory there is for the server.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine's memory in bytes, or less if control groups allow less.
pub fn bytes_max() -> u64 {
    let info = rustix::system::sysinfo();
    // Both are unsigned longs on every architecture, of 32 bits on some.
    #[allow(clippy::useless_conversion, reason = "it is none where they have 64")]
    let machine = u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    control_group_max(Path::new("/sys/fs/cgroup"), &groups).map_or(machine, |max| max.min(machine))
}

/// The least of the limits that the process's control group and those above it have, if any has
/// one. `groups` is what /proc/self/cgroup says.
fn control_group_max(root: &Path, groups: &str) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own: PathBuf = root.join(own);
    let limits = own.ancestors().take_while(|group| group.starts_with(root)).filter_map(|group| {
        // "max" is no number, and the root has no such file.
        fs::read_to_string(group.join("memory.max")).ok()?.trim().parse::<u64>().ok()
    });
    limits.min()
}

/// How many pages more all TCP sockets of the machine may use for what is on its way. `None` if the
/// kernel does not say: a container may not see it.
pub fn tcp_pages_left() -> Option<u64> {
    let max = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    let used = fs::read_to_string("/proc/net/sockstat").ok()?;
    pages_left(&max, &used)
}

/// `limits` are three numbers, of which the last is the most there may be; `used` has a line such
/// as `TCP: inuse 5 orphan 0 tw 0 alloc 7 mem 2`.
fn pages_left(limits: &str, used: &str) -> Option<u64> {
    let max: u64 = limits.split_whitespace().nth(2)?.parse().ok()?;
    let line = used.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mem: u64 =
        line.split_whitespace().skip_while(|&word| word != "mem").nth(1)?.parse().ok()?;
    Some(max.saturating_sub(mem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_for_tcp_is_what_is_not_used() {
        let used =
            "sockets: used 9\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 200\nUDP: inuse 1 mem 9\n";
        assert_eq!(pages_left("100\t500\t1000\n", used), Some(800));
        assert_eq!(pages_left("100 500 100\n", used), Some(0), "it may be exceeded");
        assert_eq!(pages_left("", used), None);
        assert_eq!(pages_left("100 500 1000", "TCP: inuse 5\n"), None);
        // Not in a container with a network of its own.
        let is_told = Path::new("/proc/sys/net/ipv4/tcp_mem").exists();
        assert_eq!(tcp_pages_left().is_some(), is_told);
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let group = root.path().join("outer/inner/own");
        fs::create_dir_all(&group).expect("folders");
        let limit = |group: &str, text: &str| {
            fs::write(root.path().join(group).join("memory.max"), text).expect("a file");
        };
        let max = || control_group_max(root.path(), "1:name=systemd:/x\n0::/outer/inner/own\n");
        assert_eq!(max(), None);
        limit("outer/inner/own", "max\n");
        assert_eq!(max(), None);
        limit("outer", "1073741824\n");
        assert_eq!(max(), Some(1 << 30));
        limit("outer/inner", "536870912\n");
        assert_eq!(max(), Some(1 << 29));
        assert_eq!(control_group_max(root.path(), ""), None, "no unified hierarchy");
        assert_eq!(control_group_max(root.path(), "0::/gone\n"), None, "another root than ours");
    }

    #[test]
    fn there_is_memory() {
        assert!(bytes_max() > 1 << 20);
    }
}
