//! One claim before all others: is there a server, and does it speak version 1?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use monolock_core::fencing::Token;
use monolock_core::wire::{
    Acquire, ErrorClass, ErrorCode, ServerFrame, decode_server, encode_acquire,
};
use thiserror::Error;

use crate::plain_text;

/// How long the server may take to accept, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is nothing to load.
#[derive(Debug, Error)]
pub enum PreflightError {
    /// Nobody answers there.
    #[error("no server at {address}: {source}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// What answers is something else.
    #[error("{address} is not a version 1 lock server: it {what}")]
    Foreign {
        /// Where.
        address: SocketAddr,
        /// What it does instead.
        what: String,
    },
    /// It doesn't want this claim.
    #[error("the server at {address} refuses: ERROR {code} ({reason})")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// Its code.
        code: ErrorCode,
        /// Its words.
        reason: String,
    },
}

/// Asks for one lock, and leaves. Returns the token, if it was granted at once.
///
/// # Errors
/// One line that says what is there instead of a server.
pub fn preflight(
    address: SocketAddr,
    name: &str,
    lease_ms: NonZeroU32,
) -> Result<Option<Token>, PreflightError> {
    let unreachable = |source| PreflightError::Unreachable { address, source };
    let foreign = |what: String| PreflightError::Foreign { address, what };
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(unreachable)?;
    let mut frame = Vec::new();
    encode_acquire(Acquire { lease_ms, name }, &mut frame);
    stream.write_all(&frame).map_err(unreachable)?;
    let deadline = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    loop {
        match decode_server(&answer) {
            Err(unknown) => return Err(foreign(format!("answers with byte 0x{:02x}", unknown.0))),
            Ok(None) => {}
            Ok(Some((ServerFrame::Error { code, reason }, _))) => {
                if code.class() == ErrorClass::ServerCondition || code >= ErrorCode::NOT_AUTHORIZED
                {
                    let reason = plain_text::one_line(&String::from_utf8_lossy(reason));
                    return Err(PreflightError::Refused { address, code, reason });
                }
                return Err(foreign(format!("answers a good ACQUIRE with ERROR {code}")));
            }
            Ok(Some((ServerFrame::Acquired(token), _))) => return Ok(Some(token)),
            Ok(Some((ServerFrame::Waiting, _))) => return Ok(None),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(foreign(format!("says nothing for {PATIENCE:?} after an ACQUIRE")));
        }
        stream.set_read_timeout(Some(left)).map_err(unreachable)?;
        let mut bytes = [0; 512];
        match stream.read(&mut bytes) {
            Ok(0) => return Err(foreign("closes the connection after an ACQUIRE".to_owned())),
            Ok(len) => answer.extend_from_slice(&bytes[..len]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(foreign(format!("breaks the connection ({error})"))),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
