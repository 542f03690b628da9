//! What the kernel must offer, and what to tell the operator if it doesn't.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Parameters, Probe, opcode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno as Code;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;

use crate::buffers::{GROUP, ReceiveBuffers};
use crate::operation::SLOTS_MAX;
use crate::{ConnectionId, Event, Reading, Ring};

/// Sizes of a ring.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many connections there can be: the size of the file table, at most `RLIMIT_NOFILE`, and
    /// below 2^24.
    pub slots: u32,
    /// Receive buffers, a power of two up to 32,768.
    pub buffers: u16,
    /// Bytes in a receive buffer.
    pub buffer_len: u32,
    /// Entries of the submission queue, rounded up to a power of two. More operations in a turn
    /// cost one more system call for every time that it is full.
    pub submissions: u32,
    /// Entries of the completion queue, rounded up to a power of two, and at least `submissions`.
    pub completions: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { slots: 1024, buffers: 1024, buffer_len: 512, submissions: 1024, completions: 4096 }
    }
}

/// Why a ring can't be had. Displayed as one line: what is missing, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The system calls don't exist.
    #[error(
        "no io_uring in this kernel (Linux {release}): run on Linux 6.13 or later, with \
         io_uring_setup, io_uring_enter and io_uring_register allowed in any seccomp profile"
    )]
    Absent {
        /// The running kernel, as in `uname -r`.
        release: String,
    },
    /// The administrator has switched it off.
    #[error(
        "io_uring is switched off by kernel.io_uring_disabled={value}: set it to 0 with \
         sysctl kernel.io_uring_disabled=0{}",
        if *.value == 1 { ", or run in the group kernel.io_uring_group" } else { "" }
    )]
    Disabled {
        /// 1: for the unprivileged; 2: for all.
        value: u32,
    },
    /// Something else forbids it.
    #[error(
        "io_uring is not permitted, most likely by the container's seccomp profile: allow \
         io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Forbidden,
    /// The kernel doesn't know the flags.
    #[error("io_uring of this kernel (Linux {release}) is too old: run on Linux 6.13 or later")]
    TooOld {
        /// The running kernel, as in `uname -r`.
        release: String,
    },
    /// The kernel lacks something, or it is filtered.
    #[error("io_uring of this kernel (Linux {release}) lacks {what}: run on Linux 6.13 or later")]
    Missing {
        /// An operation or a feature.
        what: &'static str,
        /// The running kernel, as in `uname -r`.
        release: String,
    },
    /// No memory may be locked for the queues.
    #[error(
        "no memory for io_uring's queues: raise the limit of locked memory (ulimit -l, \
         LimitMEMLOCK=) or the container's memory limit"
    )]
    LockedMemory,
    /// The file table is larger than the limit of open files.
    #[error(
        "a file table of {slots} connections is beyond RLIMIT_NOFILE, which is {limit}: raise it \
         (ulimit -n, LimitNOFILE=)"
    )]
    FileTable {
        /// The size asked for.
        slots: u32,
        /// The soft limit.
        limit: u64,
    },
    /// No number is left for a descriptor.
    #[error(
        "no file descriptor is left for io_uring: raise RLIMIT_NOFILE, which is {limit} \
         (ulimit -n, LimitNOFILE=)"
    )]
    Descriptors {
        /// The soft limit.
        limit: u64,
    },
    /// A step failed that is not expected to.
    #[error(
        "io_uring can't be set up: can't {step}: {source}; if a seccomp profile is in force, allow \
         io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Step {
        /// What was being done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// For `map_err`.
pub(crate) fn step(step: &'static str) -> impl FnOnce(io::Error) -> SetupError {
    move |source| match Code::from_io_error(&source) {
        Some(Code::MFILE) => SetupError::Descriptors { limit: descriptor_limit() },
        Some(Code::NOMEM) => SetupError::LockedMemory,
        _ => SetupError::Step { step, source },
    }
}

/// Makes the queues, the file table and the ring of receive buffers.
pub(crate) fn open(config: &Config) -> Result<(IoUring, ReceiveBuffers), SetupError> {
    assert!((1..=SLOTS_MAX).contains(&config.slots), "{config:?}");
    assert!(config.buffers.is_power_of_two() && config.buffers <= 1 << 15, "{config:?}");
    assert!(config.buffer_len > 0 && config.submissions > 0, "{config:?}");
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(config.completions.max(config.submissions))
        .setup_clamp()
        .setup_submit_all()
        .build(config.submissions)
        .map_err(|error| refusal(error, io_uring_disabled(), release()))?;
    require_features(ring.params())?;
    require_operations(&ring)?;
    let submitter = ring.submitter();
    submitter
        .register_files_sparse(config.slots)
        .map_err(|error| file_table_refusal(error, config.slots, descriptor_limit()))?;
    // Shutdowns run on workers, since they may block. Ours don't, and two serve a crowd of them.
    submitter
        .register_iowq_max_workers(&mut [1, 2])
        .map_err(step("limit the kernel's worker threads"))?;
    let buffers = ReceiveBuffers::new(config.buffers, config.buffer_len)
        .map_err(step("map receive buffers"))?;
    // SAFETY: the mapping holds `count` entries at a page's start. The ring keeps it as long as its
    // queues.
    unsafe {
        submitter.register_buf_ring_with_flags(
            buffers.entries().addr() as u64,
            buffers.count(),
            GROUP,
            0,
        )
    }
    .map_err(step("register receive buffers"))?;
    Ok((ring, buffers))
}

/// What `io_uring_setup`'s refusal means. `disabled` is the sysctl, where there is one.
fn refusal(error: io::Error, disabled: Option<u32>, release: String) -> SetupError {
    match (Code::from_io_error(&error), disabled) {
        (Some(Code::NOSYS), _) => SetupError::Absent { release },
        (Some(Code::PERM | Code::ACCESS), Some(value @ 1..)) => SetupError::Disabled { value },
        (Some(Code::PERM | Code::ACCESS), _) => SetupError::Forbidden,
        (Some(Code::INVAL), _) => SetupError::TooOld { release },
        _ => step("make its queues")(error),
    }
}

/// The kernel says EMFILE for a table that is larger than the limit, whatever is open.
fn file_table_refusal(error: io::Error, slots: u32, limit: u64) -> SetupError {
    match Code::from_io_error(&error) {
        Some(Code::MFILE) => SetupError::FileTable { slots, limit },
        _ => step("register a file table")(error),
    }
}

fn require_features(params: &Parameters) -> Result<(), SetupError> {
    let features = [
        ("IORING_FEAT_NODROP", params.is_feature_nodrop()),
        ("IORING_FEAT_FAST_POLL", params.is_feature_fast_poll()),
        ("IORING_FEAT_EXT_ARG", params.is_feature_ext_arg()),
        ("IORING_FEAT_RSRC_TAGS", params.is_feature_resource_tagging()),
        ("IORING_FEAT_CQE_SKIP", params.is_feature_skip_cqe_on_success()),
    ];
    require(&features)
}

fn require_operations(ring: &IoUring) -> Result<(), SetupError> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(step("ask for its operations"))?;
    let operations = [
        ("IORING_OP_POLL_ADD", probe.is_supported(opcode::PollAdd::CODE)),
        ("IORING_OP_RECV", probe.is_supported(opcode::Recv::CODE)),
        ("IORING_OP_SEND", probe.is_supported(opcode::Send::CODE)),
        ("IORING_OP_ASYNC_CANCEL", probe.is_supported(opcode::AsyncCancel::CODE)),
        ("IORING_OP_SHUTDOWN", probe.is_supported(opcode::Shutdown::CODE)),
        ("IORING_OP_CLOSE", probe.is_supported(opcode::Close::CODE)),
        ("IORING_OP_FIXED_FD_INSTALL", probe.is_supported(opcode::FixedFdInstall::CODE)),
    ];
    require(&operations)
}

fn require(offers: &[(&'static str, bool)]) -> Result<(), SetupError> {
    match offers.iter().find(|(_, offered)| !offered) {
        Some((what, _)) => Err(SetupError::Missing { what, release: release() }),
        None => Ok(()),
    }
}

/// Does for real, on a small ring, what no probe can tell.
///
/// The second trial is there because kernels before 6.13 keep a socket that was taken out of the
/// file table open for as long as any older operation is under way, on whichever connection
/// (axboe/liburing#1192): no peer would see the end of a session while an older one lives.
pub(crate) fn try_out() -> Result<(), SetupError> {
    let config = Config { slots: 2, buffers: 2, buffer_len: 64, submissions: 8, completions: 8 };
    let mut ring = Ring::untried(&config)?;
    let (older, older_peer) = pair()?;
    let (newer, newer_peer) = pair()?;
    let reader = ConnectionId { index: 0, generation: 1 };
    let closer = ConnectionId { index: 1, generation: 1 };
    ring.attach(reader, older).map_err(step("use the file table"))?;
    ring.read(reader, Reading::Stream);
    for bytes in [b"1", b"2"] {
        rustix::io::write(&older_peer, bytes).map_err(|e| step("write to a socket")(e.into()))?;
        let wanted = Event::Received { id: reader, bytes };
        expect(&mut ring, &wanted, "multishot receive with a ring of buffers")?;
    }
    ring.attach(closer, newer).map_err(step("use the file table"))?;
    ring.close(closer);
    expect(&mut ring, &Event::Closed { id: closer }, "closing in the file table")?;
    let mut watched = [PollFd::new(&newer_peer, PollFlags::IN)];
    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
    match poll(&mut watched, Some(&limit)) {
        Ok(1) => Ok(()),
        _ => Err(SetupError::Missing {
            what: "the prompt closing of sockets in its file table",
            release: release(),
        }),
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), SetupError> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| step("make a pair of sockets")(error.into()))
}

fn expect(ring: &mut Ring, wanted: &Event<'_>, what: &'static str) -> Result<(), SetupError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        ring.wait(Some(Duration::from_millis(100))).map_err(step("wait for a completion"))?;
        while let Some(event) = ring.next_event() {
            if event == *wanted {
                return Ok(());
            }
        }
    }
    Err(SetupError::Missing { what, release: release() })
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The sysctl, absent before Linux 6.6.
fn io_uring_disabled() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: Code, disabled: Option<u32>) -> String {
        let line = refusal(code.into(), disabled, "5.10.0".into()).to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        line
    }

    #[test]
    fn each_refusal_names_its_remedy() {
        assert!(line(Code::NOSYS, None).contains("Linux 5.10.0"));
        assert!(line(Code::INVAL, None).contains("too old"));
        assert!(line(Code::PERM, None).contains("seccomp"));
        assert!(line(Code::PERM, Some(0)).contains("seccomp"));
        assert!(line(Code::ACCESS, Some(0)).contains("io_uring_register"));
        assert!(line(Code::NOMEM, Some(0)).contains("ulimit -l"));
        assert!(line(Code::MFILE, Some(0)).contains("RLIMIT_NOFILE"));
        let all = line(Code::PERM, Some(2));
        assert!(all.contains("kernel.io_uring_disabled=2") && !all.contains("group"), "{all}");
        let some = line(Code::PERM, Some(1));
        assert!(some.contains("kernel.io_uring_disabled=1") && some.contains("group"), "{some}");
        let other = line(Code::IO, None);
        assert!(other.contains("can't make its queues: "), "{other}");
    }

    #[test]
    fn a_file_table_beyond_the_limit_names_both() {
        let error = file_table_refusal(Code::MFILE.into(), 70_000, 1024).to_string();
        assert!(error.contains("70000") && error.contains("1024"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = require(&[("one", true), ("two", false)]).expect_err("two is missing");
        assert!(error.to_string().contains("lacks two"), "{error}");
        require(&[("one", true)]).expect("nothing is missing");
    }

    #[test]
    fn this_kernel_passes_the_trials() {
        try_out().expect("a kernel to develop on");
    }
}
