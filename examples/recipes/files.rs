//! Files that whoever holds the lock writes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use monolock_client::{Token, Written};

/// A version for each token, in a directory: the name has it, and who reads takes the largest.
/// Nothing is compared and nobody waits, since an older holder's file is not the largest.
pub(crate) fn write_version(directory: &Path, token: Token, content: &[u8]) -> io::Result<()> {
    // So many digits that the order of names is the order of tokens.
    let name = format!("{:020}", token.get());
    let unfinished = directory.join(format!("{name}.unfinished"));
    let mut file = File::create(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(unfinished, directory.join(name))
}

/// The version that counts.
pub(crate) fn newest_version(directory: &Path) -> io::Result<Option<PathBuf>> {
    let mut versions = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none() {
            versions.push(path);
        }
    }
    Ok(versions.into_iter().max())
}

/// Any change of files, guarded by a file with the largest token. The change is made while that
/// file is locked, so that no newer holder can come between the comparison and the change.
pub(crate) fn change_files<T>(
    token_file: &Path,
    token: Token,
    change: impl FnOnce() -> io::Result<T>,
) -> io::Result<Written<T>> {
    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(token_file)?;
    // flock(2): released by the kernel if this process dies.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // Empty, if it is new.
    let seen = if text.is_empty() { 0 } else { text.trim().parse().map_err(io::Error::other)? };
    if seen > token.get() {
        return Ok(Written::Refused);
    }
    // As many bytes each time, so that none of the number before is left behind it.
    file.rewind()?;
    file.write_all(format!("{:020}\n", token.get()).as_bytes())?;
    file.sync_all()?;
    change().map(Written::Done)
}
