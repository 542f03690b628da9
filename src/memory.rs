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

#[cfg(test)]
mod tests {
    use super::*;

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
