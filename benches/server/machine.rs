//! The machine that is measured on.

use std::fs;

pub(crate) fn print() {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = cpuinfo
        .lines()
        .filter(|line| line.starts_with("model name"))
        .filter_map(|line| line.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    println!("Linux {release}, {} x {}", models.len(), models.first().unwrap_or(&"unknown"));
    if models.len() == 1 {
        println!("LIMITED: servers and clients share one processor");
    }
}
