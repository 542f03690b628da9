//! The file that the audit log is appended to, which may be a pipe, and stdout as well.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `-`
    Stdout,
    /// A file or a pipe.
    File(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("-"),
            Target::File(path) => path.display().fmt(f),
        }
    }
}

/// An open log.
#[derive(Debug)]
pub(crate) struct AuditFile {
    pub(super) file: File,
    /// The same, to see what became of what was written; of a file that may be read.
    pub(super) reader: Option<File>,
    /// A line of it was cut off: it is closed before anything else is written.
    pub(super) ends_within_line: bool,
}

/// Opens the log for appending, without waiting for anybody. `None` if it is a pipe that nobody has
/// open for reading.
///
/// # Errors
/// If it can't be opened.
pub(crate) fn open(target: &Target) -> io::Result<Option<AuditFile>> {
    let path = match target {
        Target::File(path) => path,
        Target::Stdout => {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Some(AuditFile { file, reader: None, ends_within_line: false }));
        }
    };
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if metadata.file_type().is_fifo() || metadata.file_type().is_char_device() {
        // It is opened by now. The ring waits by itself until somebody reads.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    }
    let reader = if metadata.is_file() { File::open(path).ok() } else { None };
    let ends_within_line = reader.as_ref().is_some_and(ends_within_line);
    Ok(Some(AuditFile { file, reader, ends_within_line }))
}

/// Whether the last thing in the file is the beginning of a line.
pub(super) fn ends_within_line(reader: &File) -> bool {
    last_bytes(reader, 1).is_some_and(|last| last != *b"\n")
}

/// The last so many bytes, if there are that many.
pub(super) fn last_bytes(reader: &File, count: usize) -> Option<Vec<u8>> {
    let start = reader.metadata().ok()?.len().checked_sub(count as u64)?;
    let mut bytes = vec![0; count];
    reader.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}
