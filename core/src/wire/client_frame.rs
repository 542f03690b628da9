use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{
    ACQUIRE, ACQUIRE_HEADER_LEN, ErrorCode, Farewell, HEARTBEAT, NAME_LEN_MAX, PROTOCOL_VERSION,
};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// The silence after which the server ends the session, in milliseconds.
    pub lease_ms: NonZeroU32,
    /// The lock, 1 to 255 bytes.
    pub name: &'a str,
}

/// How far the first frame of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First<'a> {
    /// Nothing is wrong so far, and more bytes are needed.
    Incomplete,
    /// The frame is whole.
    Complete {
        /// What it says.
        acquire: Acquire<'a>,
        /// How many of the bytes were the frame's.
        len: usize,
    },
}

/// Reads the first frame from all that a connection has sent so far.
///
/// # Errors
/// The ERROR to answer with, as soon as the byte that is wrong is there: the version before
/// anything that follows it, since the rest of another version's frame is unknown; the length of
/// the name from the header alone; then, with the name, its UTF-8, and last the lease.
pub fn decode_first(bytes: &[u8]) -> Result<First<'_>, Farewell> {
    match bytes {
        [] | [ACQUIRE] => return Ok(First::Incomplete),
        [ACQUIRE, PROTOCOL_VERSION, ..] => {}
        [ACQUIRE, version, ..] => return Err(Farewell::unsupported_version(*version)),
        [HEARTBEAT, ..] => return Err(Farewell::new(ErrorCode::FIRST_NOT_ACQUIRE)),
        [byte, ..] => return Err(Farewell::unknown_type(*byte)),
    }
    let Some((&[_, _, l0, l1, l2, l3, n0, n1], rest)) =
        bytes.split_first_chunk::<ACQUIRE_HEADER_LEN>()
    else {
        return Ok(First::Incomplete);
    };
    let name_len = usize::from(u16::from_be_bytes([n0, n1]));
    if name_len == 0 {
        return Err(Farewell::new(ErrorCode::EMPTY_NAME));
    }
    if name_len > NAME_LEN_MAX {
        return Err(Farewell::new(ErrorCode::NAME_TOO_LONG));
    }
    let Some(name) = rest.get(..name_len) else {
        return Ok(First::Incomplete);
    };
    let name = core::str::from_utf8(name).map_err(|_| Farewell::new(ErrorCode::NAME_NOT_UTF8))?;
    let lease_ms = NonZeroU32::new(u32::from_be_bytes([l0, l1, l2, l3]))
        .ok_or(Farewell::new(ErrorCode::ZERO_LEASE))?;
    let acquire = Acquire { lease_ms, name };
    Ok(First::Complete { acquire, len: ACQUIRE_HEADER_LEN + name_len })
}

/// Appends an ACQUIRE to `out`.
///
/// # Panics
/// If the name is empty or longer than [`NAME_LEN_MAX`].
pub fn encode_acquire(acquire: Acquire<'_>, out: &mut Vec<u8>) {
    let Acquire { lease_ms, name } = acquire;
    assert!(!name.is_empty() && name.len() <= NAME_LEN_MAX, "a lock name has 1 to 255 bytes");
    let name_len = u16::try_from(name.len()).expect("at most 255");
    out.extend_from_slice(&[ACQUIRE, PROTOCOL_VERSION]);
    out.extend_from_slice(&lease_ms.get().to_be_bytes());
    out.extend_from_slice(&name_len.to_be_bytes());
    out.extend_from_slice(name.as_bytes());
}
