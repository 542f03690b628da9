//! The machine of the figures.

use std::fs;
use std::thread;
use std::time::Duration;

use monolock_loadgen::clock;

/// How often it sleeps to find out what a wake-up costs.
const SLEEPS: u32 = 500;
const SLEEP: Duration = Duration::from_millis(1);

pub(crate) fn print() {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cpus, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = value(&cpus, "model name").unwrap_or("a processor that doesn't say its name");
    let count = thread::available_parallelism().map_or(0, Into::into);
    let kilobytes = value(&memory, "MemTotal").and_then(|text| text.split(' ').next());
    let gigabytes = kilobytes.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) / 1_000_000;
    let is_virtual = cpus.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let name = rustix::system::uname();
    println!(
        "{count} processors{}, {model}; {gigabytes} GB; Linux {}; RLIMIT_NOFILE {}",
        if is_virtual { " of a virtual machine" } else { "" },
        name.release().to_string_lossy(),
        monolock_ring::raise_descriptor_limit(),
    );
    println!(
        "A thread that only sleeps, a millisecond at a time, takes {:.1} µs of CPU a wake-up here.",
        wakeup_us()
    );
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// What the kernel accounts to a thread for going to sleep and being woken by a timer.
fn wakeup_us() -> f64 {
    let before = clock::thread_cpu_nanos();
    (0..SLEEPS).for_each(|_| thread::sleep(SLEEP));
    let nanos = clock::thread_cpu_nanos() - before;
    #[expect(clippy::cast_precision_loss, reason = "less than a second")]
    let us = nanos as f64 / 1e3;
    us / f64::from(SLEEPS)
}
