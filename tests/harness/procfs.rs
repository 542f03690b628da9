//! What the kernel tells about the server's process and sockets.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// The state LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";
/// The keepalive timer in `/proc/net/tcp`.
const KEEPALIVE_TIMER: &str = "02";

/// One socket of `/proc/net/tcp`.
struct TcpSocket {
    local: SocketAddr,
    remote: SocketAddr,
    state: String,
    /// Bytes to be read; of a listening socket, connections to be accepted.
    receive_queue: usize,
    timer: String,
    inode: u64,
}

/// How many connections to a listening IPv4 socket are complete but not accepted.
#[track_caller]
pub(crate) fn accept_queue_len(listener: SocketAddr) -> usize {
    let listening = listening_sockets().find(|socket| socket.local == listener);
    listening.expect("somebody listens").receive_queue
}

/// Whether the server's end of this connection probes a peer that is silent.
#[track_caller]
pub(crate) fn has_keepalive(server: SocketAddr, client: SocketAddr) -> bool {
    let connection = tcp_sockets().find(|socket| socket.local == server && socket.remote == client);
    connection.expect("the connection is open").timer == KEEPALIVE_TIMER
}

/// Where a process listens with IPv4, if it does.
pub(crate) fn listening_address(pid: Pid) -> Option<SocketAddr> {
    listening_addresses(pid).pop()
}

/// All addresses at which a process listens with IPv4.
pub(crate) fn listening_addresses(pid: Pid) -> Vec<SocketAddr> {
    let inodes: Vec<u64> = open_files(pid)
        .into_iter()
        .filter_map(|(_, target)| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect();
    let listening = listening_sockets().filter(|socket| inodes.contains(&socket.inode));
    listening.map(|socket| socket.local).collect()
}

/// The numbers of the open files of a process and what they are.
pub(crate) fn open_files(pid: Pid) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            // One that is closed meanwhile is not open.
            let entry = entry.ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, target.to_string_lossy().into_owned()))
        })
        .collect()
}

/// Whether a file of the process would be closed if it executed another program; `None` if it isn't
/// open any more.
pub(crate) fn is_close_on_exec(pid: Pid, number: u32) -> Option<bool> {
    const O_CLOEXEC: u32 = 0o2_000_000;
    let path = format!("/proc/{}/fdinfo/{number}", pid.as_raw_nonzero());
    let info = fs::read_to_string(path).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = u32::from_str_radix(flags.expect("the flags of a file").trim(), 8);
    Some(flags.expect("an octal number") & O_CLOEXEC != 0)
}

/// The soft and the hard limit of open files.
pub(crate) fn open_file_limits(pid: Pid) -> (u64, u64) {
    let limits = read(pid, "limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("the limit of open files");
    let mut numbers = line
        .split_whitespace()
        .map(|word| word.parse().expect("a limit of open files is a number"));
    let soft = numbers.next().expect("a soft limit");
    (soft, numbers.next().expect("a hard limit"))
}

/// The processor time that all threads have used.
pub(crate) fn cpu_time(pid: Pid) -> Duration {
    let stat = read(pid, "stat");
    // The name of the process, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks are a number"))
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// The memory that is in use, in bytes.
pub(crate) fn resident_bytes(pid: Pid) -> u64 {
    let status = read(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u64 = number.expect("a size in kB").parse().expect("a size is a number");
    kilobytes << 10
}

/// Whether every thread is stopped by a signal.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    tasks.expect("a running process").all(|task| {
        let path = task.expect("an entry").path().join("stat");
        let Ok(stat) = fs::read_to_string(path) else {
            return true;
        };
        let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
        fields.trim_start().starts_with('T')
    })
}

/// How many threads there are, and whether a signal would not end the process, seen at one moment.
pub(crate) fn threads_and_handling(pid: Pid, signal: Signal) -> (u32, bool) {
    let status = read(pid, "status");
    let field = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a field of the status").trim()
    };
    let mask = |name| u64::from_str_radix(field(name), 16).expect("a mask of signals");
    let bit = 1 << (signal.as_raw() - 1);
    let handled = mask("SigCgt:") | mask("SigIgn:") | mask("SigBlk:");
    let threads = field("Threads:").parse().expect("a number of threads");
    (threads, handled & bit != 0)
}

/// How many connections the kernel keeps at most for a listener.
pub(crate) fn accept_queue_len_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("somaxconn");
    text.trim().parse().expect("a number")
}

#[track_caller]
fn read(pid: Pid, file: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).expect("a running process")
}

/// The kernel lists them before all others. Reading stops there: on a machine that is in other use
/// too there can be very many others.
fn listening_sockets() -> impl Iterator<Item = TcpSocket> {
    tcp_sockets().take_while(|socket| socket.state == LISTEN)
}

fn tcp_sockets() -> impl Iterator<Item = TcpSocket> {
    let table = File::open("/proc/net/tcp").expect("the table of TCP sockets");
    let lines = BufReader::new(table).lines().skip(1);
    lines.map(|line| tcp_socket(&line.expect("reading the table of TCP sockets")))
}

/// Reads a line of the form
/// `0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 00:00000000 00000000 0 0 12345 ...`.
fn tcp_socket(line: &str) -> TcpSocket {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("a hexadecimal number");
    let (_, receive_queue) = fields[4].split_once(':').expect("two queues");
    let (timer, _) = fields[5].split_once(':').expect("a timer and its time");
    TcpSocket {
        local: ipv4_address(fields[1]),
        remote: ipv4_address(fields[2]),
        state: fields[3].to_owned(),
        receive_queue: hex(receive_queue),
        timer: timer.to_owned(),
        inode: fields[9].parse().expect("an inode number"),
    }
}

fn ipv4_address(text: &str) -> SocketAddr {
    let (ip, port) = text.split_once(':').expect("an address and a port");
    // The kernel prints the four bytes as one number of the machine's own byte order.
    let ip = u32::from_str_radix(ip, 16).expect("a hexadecimal address");
    let port = u16::from_str_radix(port, 16).expect("a hexadecimal port");
    SocketAddr::from((Ipv4Addr::from(ip.to_ne_bytes()), port))
}
