//! What the kernel says about a process.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// A process's use of the machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time so far, in user and kernel mode, of the threads that there are.
    pub cpu_seconds: f64,
    /// How often those threads have slept and were woken.
    pub wakeups: u64,
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
        let (mut cpu_nanos, mut wakeups) = (0, 0);
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            match of_thread(&thread?.path()) {
                Ok((nanos, switches)) => {
                    cpu_nanos += nanos;
                    wakeups += switches;
                }
                // One that has ended since it was listed, as the kernel's own workers do.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let pages = read(Path::new(&format!("/proc/{pid}/stat")), resident_pages)?;
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 ns, which is 104 days")]
        let cpu_seconds = cpu_nanos as f64 / 1e9;
        let resident_bytes = pages * rustix::param::page_size() as u64;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        Ok(Usage { cpu_seconds, wakeups, resident_bytes, descriptors })
    }
}

/// The memory of the whole kernel for its objects, sockets among them.
///
/// # Errors
/// If the kernel doesn't say.
pub fn slab_bytes() -> io::Result<u64> {
    read(Path::new("/proc/meminfo"), slab_kib).map(|kib| kib << 10)
}

/// Of `meminfo`: slab, in KiB.
fn slab_kib(meminfo: &str) -> Option<u64> {
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:"))?;
    slab.trim().strip_suffix(" kB")?.parse().ok()
}

/// Nanoseconds on a processor, and how often it slept.
fn of_thread(thread: &Path) -> io::Result<(u64, u64)> {
    // To the nanosecond; the times in `stat` are counted in hundredths of a second.
    let nanos = read(&thread.join("schedstat"), first_number)?;
    Ok((nanos, read(&thread.join("status"), voluntary_switches)?))
}

fn read(path: &Path, parse: fn(&str) -> Option<u64>) -> io::Result<u64> {
    parse(&fs::read_to_string(path)?)
        .ok_or_else(|| io::Error::other(format!("{} has an unknown form", path.display())))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// Of `schedstat`: nanoseconds on a processor.
fn first_number(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Of `status`: how often the thread gave its processor up to wait for something.
fn voluntary_switches(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Of `stat`: field 24.
fn resident_pages(stat: &str) -> Option<u64> {
    // The second field is the program's name, which may contain anything; the last bracket ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(24 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_confuses_nobody() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 100 23 0 0 20 0 3 0 99 4096 512 1 2";
        assert_eq!(resident_pages(stat), Some(512));
        assert_eq!(resident_pages("7 (a) S 1"), None);
    }

    #[test]
    fn switches_are_those_that_the_thread_wanted() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(voluntary_switches(status), Some(12));
    }

    #[test]
    fn the_kernel_has_objects() {
        assert_eq!(slab_kib("MemFree: 1 kB\nSlab:   190272 kB\n"), Some(190_272));
        assert!(slab_bytes().expect("every kernel says it") > 1 << 20);
    }

    #[test]
    fn this_process_works_and_sleeps() {
        let before = Usage::of(std::process::id()).expect("of ourselves");
        assert!(before.resident_bytes > 100_000 && before.descriptors >= 3, "{before:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = Usage::of(std::process::id()).expect("of ourselves");
        assert!(after.cpu_seconds > before.cpu_seconds, "{before:?} {after:?}");
        assert!(after.wakeups > before.wakeups, "{before:?} {after:?}");
    }
}
