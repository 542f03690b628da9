//! A wall clock that is wrong, for servers that are started here: behind from the start, or set
//! back in the middle of their lives. A small library stands before the C library in the server's
//! process (`staged_clock.c`); how wrong it is, is read from memory that this process writes.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::duration::{DurationError, parse_duration};
use monolock_core::fencing::{TOKEN_FRACTION_BITS, Token};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::duration;

/// The library, as the build script has made it.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/staged_clock.so"));

/// How much a clock is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds that it is ahead; negative, that it is behind.
    nanos: i64,
}

impl ClockOffset {
    /// A clock that is behind.
    ///
    /// # Panics
    /// For more than 292 years.
    pub fn behind(by: Duration) -> ClockOffset {
        let nanos = i64::try_from(by.as_nanos()).expect("less than 292 years");
        ClockOffset { nanos: -nanos }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: ClockOffset) -> ClockOffset {
        ClockOffset { nanos: self.nanos.saturating_add(other.nanos) }
    }

    /// Milliseconds that the clock is ahead; negative, that it is behind.
    pub fn as_ms(self) -> i64 {
        self.nanos / 1_000_000
    }
}

/// A duration with a sign: `-5s` is behind, `5s` and `+5s` are ahead.
impl FromStr for ClockOffset {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<ClockOffset, DurationError> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let nanos = parse_duration(rest)?.as_nanos();
        let nanos = i64::try_from(nanos).map_err(|_| DurationError::TooLong)?;
        Ok(ClockOffset { nanos: sign * nanos })
    }
}

impl std::fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.nanos < 0 { '-' } else { '+' };
        write!(f, "{sign}{}", duration::show(Duration::from_nanos(self.nanos.unsigned_abs())))
    }
}

/// The clock of the servers that are started with it. It is there for as long as this is.
#[derive(Clone, Debug)]
pub struct StagedClock {
    /// Files without a name, that nobody has to clean up.
    library: Arc<File>,
    offset: Arc<File>,
}

impl StagedClock {
    /// A clock that is right.
    ///
    /// # Errors
    /// If there is no memory to be had for it.
    pub fn new() -> io::Result<StagedClock> {
        let mut library = nameless_file("staged_clock.so")?;
        library.write_all(LIBRARY)?;
        let clock = StagedClock {
            library: Arc::new(library),
            offset: Arc::new(nameless_file("staged_clock_offset")?),
        };
        clock.set(ClockOffset::default())?;
        Ok(clock)
    }

    /// Another clock, for other servers.
    ///
    /// # Errors
    /// If there is no memory to be had for it.
    pub fn another(&self) -> io::Result<StagedClock> {
        let offset = Arc::new(nameless_file("staged_clock_offset")?);
        let clock = StagedClock { library: Arc::clone(&self.library), offset };
        clock.set(ClockOffset::default())?;
        Ok(clock)
    }

    /// Sets it, at once and for all its servers.
    ///
    /// # Errors
    /// The kernel's, of which none is known.
    pub fn set(&self, offset: ClockOffset) -> io::Result<()> {
        self.offset.write_all_at(&offset.nanos.to_ne_bytes(), 0)
    }

    /// Puts it before the server that this command starts.
    pub fn put_before(&self, command: &mut Command) {
        let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        command.env("LD_PRELOAD", path(&self.library));
        command.env("MONOLOCK_STAGED_CLOCK", path(&self.offset));
    }
}

fn nameless_file(name: &str) -> io::Result<File> {
    let file: OwnedFd = memfd_create(name, MemfdFlags::CLOEXEC)?;
    Ok(file.into())
}

/// How far a token's time is from this machine's wall clock: about how wrong the clock of its
/// server is, if the server has minted none before.
pub fn offset_of(token: Token) -> ClockOffset {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let token_nanos = (u128::from(token.get()) * 1_000_000_000) >> TOKEN_FRACTION_BITS;
    let token_nanos = i64::try_from(token_nanos).unwrap_or(i64::MAX);
    let now_nanos = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    ClockOffset { nanos: token_nanos.saturating_sub(now_nanos) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_a_sign() {
        for (text, ms) in [("-5s", -5000), ("5s", 5000), ("+1m30s", 90_000), ("0", 0)] {
            assert_eq!(text.parse::<ClockOffset>().map(ClockOffset::as_ms), Ok(ms), "{text}");
        }
        assert_eq!("--5s".parse::<ClockOffset>(), Err(DurationError::Malformed));
        assert_eq!("400000h".parse::<ClockOffset>().map(ClockOffset::as_ms), Ok(1_440_000_000_000));
        assert_eq!("4000000h".parse::<ClockOffset>(), Err(DurationError::TooLong));
        assert_eq!(ClockOffset::behind(Duration::from_secs(5)).to_string(), "-5s");
        assert_eq!("2.5s".parse::<ClockOffset>().expect("an offset").to_string(), "+2.5s");
    }

    #[test]
    fn another_process_sees_the_clock_as_it_is_set() {
        let clock = StagedClock::new().expect("memory");
        for behind_secs in [0, 1_000_000, 3] {
            clock.set(ClockOffset::behind(Duration::from_secs(behind_secs))).expect("set");
            let mut date = Command::new("date");
            clock.put_before(date.arg("+%s"));
            let output = date.output().expect("date(1) is everywhere");
            let seen = String::from_utf8(output.stdout).expect("text");
            let seen: u64 = seen.trim().parse().expect("seconds since 1970");
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
            // However slow this machine is, the next setting is far off.
            assert!((now - behind_secs).abs_diff(seen) < 600, "{seen} at {now}, {behind_secs}");
        }
    }
}
