use core::fmt;

use super::{ACQUIRED, ACQUIRED_LEN, ERROR, ErrorCode, WAITING};
use crate::fencing::Token;

/// What a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFrame<'a> {
    /// The claim stands in the queue.
    Waiting,
    /// The claim holds the lock.
    Acquired(Token),
    /// The claim is ended.
    Error {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people: any bytes, meant to be UTF-8.
        reason: &'a [u8],
    },
}

/// A byte that begins no message of a version 1 server, or a token of zero, which none grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownServerFrame(pub u8);

impl fmt::Display for UnknownServerFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an answer of a version 1 server: message 0x{:02x}", self.0)
    }
}

impl core::error::Error for UnknownServerFrame {}

/// Reads one frame from the front of `bytes`: the frame and its length, or `None` if more bytes are
/// needed.
///
/// # Errors
/// If what is there can't be from a version 1 server.
pub fn decode_server(bytes: &[u8]) -> Result<Option<(ServerFrame<'_>, usize)>, UnknownServerFrame> {
    Ok(match bytes {
        [] => None,
        [WAITING, ..] => Some((ServerFrame::Waiting, 1)),
        [ACQUIRED, rest @ ..] => match rest.first_chunk::<8>() {
            Some(number) => {
                let token = Token::new(u64::from_be_bytes(*number));
                let token = token.ok_or(UnknownServerFrame(ACQUIRED))?;
                Some((ServerFrame::Acquired(token), ACQUIRED_LEN))
            }
            None => None,
        },
        [ERROR, code, len, rest @ ..] => {
            let len = usize::from(*len);
            rest.get(..len)
                .map(|reason| (ServerFrame::Error { code: ErrorCode::new(*code), reason }, 3 + len))
        }
        [ERROR, ..] => None,
        [byte, ..] => return Err(UnknownServerFrame(*byte)),
    })
}

/// Writes `count` times where a claim stands, WAITING without a token and ACQUIRED with one, as
/// often as there is room. Returns how often, and how many bytes that took.
pub fn encode_standing(token: Option<Token>, count: u32, out: &mut [u8]) -> (u32, usize) {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (count, len) = if let Some(token) = token {
        let mut frame = [ACQUIRED; ACQUIRED_LEN];
        frame[1..].copy_from_slice(&token.get().to_be_bytes());
        let count = count.min(out.len() / ACQUIRED_LEN);
        for place in out.chunks_exact_mut(ACQUIRED_LEN).take(count) {
            place.copy_from_slice(&frame);
        }
        (count, count * ACQUIRED_LEN)
    } else {
        let count = count.min(out.len());
        out[..count].fill(WAITING);
        (count, count)
    };
    (u32::try_from(count).expect("no more than was asked for"), len)
}
