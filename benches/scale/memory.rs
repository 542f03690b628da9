//! The machine's memory: what the kernel has, and what is free.

use std::error::Error;
use std::fs;

/// What the kernel needs for a session with both its ends, and this process with the server, and
/// something to spare.
const BYTES_A_SESSION: u64 = 10_500;

/// What else there should be.
const BYTES_FREE: u64 = 1 << 30;

/// Bytes that are neither free, nor a process's, nor cached of files: the kernel's own. Of the
/// whole machine, so that two readings tell something only if nothing else goes on.
pub(crate) fn of_kernel() -> Result<f64, Box<dyn Error>> {
    let [total, free, buffers, cached, anonymous] =
        read(["MemTotal", "MemFree", "Buffers", "Cached", "AnonPages"])?;
    Ok((total - free - buffers - cached - anonymous) as f64)
}

/// The part of it in slabs, which is where sockets and files are.
pub(crate) fn in_slabs() -> Result<f64, Box<dyn Error>> {
    let [slab] = read(["Slab"])?;
    Ok(slab as f64)
}

/// Whether the sessions of two servers can be there at a time.
///
/// # Errors
/// What is missing for one.
pub(crate) fn are_two_possible(sessions: u32) -> Result<bool, Box<dyn Error>> {
    let [available] = read(["MemAvailable"])?;
    let (files, files_max) = files()?;
    let files_left = files_max.saturating_sub(files);
    let suffices =
        |count: u64| count * BYTES_A_SESSION + BYTES_FREE <= available && count * 2 <= files_left;
    if suffices(u64::from(sessions) * 2) {
        return Ok(true);
    }
    if suffices(sessions.into()) {
        return Ok(false);
    }
    Err(format!(
        "they need {} MB of memory and {} open files (fs.file-max), of which there are {} MB and \
         {files_left}",
        (u64::from(sessions) * BYTES_A_SESSION + BYTES_FREE) >> 20,
        u64::from(sessions) * 2,
        available >> 20
    )
    .into())
}

/// How many files the machine has open, and may have.
fn files() -> Result<(u64, u64), Box<dyn Error>> {
    let text = fs::read_to_string("/proc/sys/fs/file-nr")?;
    let fields: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    match fields[..] {
        [open, _, max] => Ok((open, max)),
        _ => Err(format!("/proc/sys/fs/file-nr: {text:?}?").into()),
    }
}

/// Lines of `/proc/meminfo`, in bytes.
fn read<const N: usize>(names: [&str; N]) -> Result<[u64; N], Box<dyn Error>> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let mut values = [0; N];
    for (value, name) in values.iter_mut().zip(names) {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        *value = kib.ok_or(format!("/proc/meminfo has no {name}"))?.parse::<u64>()? << 10;
    }
    Ok(values)
}
