use core::fmt::{self, Write};
use core::num::NonZeroU8;

use super::{ERROR, ERROR_LEN_MAX, ErrorCode, PROTOCOL_VERSION};

/// The ERROR that the server ends a session with: its code, and the byte that its reason names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Not zero, so that a session which owes no ERROR costs no byte more.
    code: NonZeroU8,
    /// The offending byte of codes 0x10 and 0x13, else 0.
    byte: u8,
}

impl Farewell {
    /// An ERROR whose reason needs no more than the code.
    pub const fn new(code: ErrorCode) -> Farewell {
        Farewell::naming(code, 0)
    }

    /// ACQUIRE of a version that is not spoken here.
    pub const fn unsupported_version(version: u8) -> Farewell {
        Farewell::naming(ErrorCode::UNSUPPORTED_VERSION, version)
    }

    /// A byte that begins no message.
    pub const fn unknown_type(byte: u8) -> Farewell {
        Farewell::naming(ErrorCode::UNKNOWN_TYPE, byte)
    }

    const fn naming(code: ErrorCode, byte: u8) -> Farewell {
        Farewell { code: NonZeroU8::new(code.get()).expect("no ERROR has the code 0"), byte }
    }

    /// The code of the ERROR.
    pub const fn code(self) -> ErrorCode {
        ErrorCode::new(self.code.get())
    }

    /// Writes the whole frame to the front of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`ERROR_LEN_MAX`].
    pub fn encode(self, out: &mut [u8]) -> usize {
        assert!(out.len() >= ERROR_LEN_MAX);
        let (header, rest) = out.split_at_mut(3);
        let mut reason = Reason { out: &mut rest[..255], len: 0 };
        write!(reason, "{self}").expect("every reason is shorter than 255 bytes");
        let len = reason.len;
        header.copy_from_slice(&[ERROR, self.code().get(), len]);
        3 + usize::from(len)
    }
}

/// The reason, for people only.
impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.code() {
            ErrorCode::SHUTTING_DOWN => "server is shutting down",
            ErrorCode::CLOSED_BY_ADMINISTRATOR => "closed by an administrator",
            ErrorCode::TOO_MANY_SESSIONS => "too many sessions from this peer",
            ErrorCode::UNSUPPORTED_VERSION => {
                let version = self.byte;
                return write!(
                    f,
                    "unsupported protocol version {version}, this server speaks {PROTOCOL_VERSION}"
                );
            }
            ErrorCode::FIRST_NOT_ACQUIRE => "the first message must be ACQUIRE",
            ErrorCode::DUPLICATE_ACQUIRE => "duplicate ACQUIRE: one connection is one claim",
            ErrorCode::UNKNOWN_TYPE => {
                return write!(f, "unknown message type 0x{:02x}", self.byte);
            }
            ErrorCode::EMPTY_NAME => "empty lock name",
            ErrorCode::NAME_TOO_LONG => "lock name is longer than 255 bytes",
            ErrorCode::NAME_NOT_UTF8 => "lock name is not valid UTF-8",
            ErrorCode::ZERO_LEASE => "lease must be positive",
            ErrorCode::NOT_AUTHORIZED => "not authorized for this lock",
            ErrorCode::LEASE_TOO_LONG => "lease is longer than this server permits",
            code => return write!(f, "error {code}"),
        })
    }
}

/// A reason being written, which knows its length.
struct Reason<'a> {
    out: &'a mut [u8],
    len: u8,
}

impl fmt::Write for Reason<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = usize::from(self.len);
        let end = start + text.len();
        self.out.get_mut(start..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = u8::try_from(end).map_err(|_| fmt::Error)?;
        Ok(())
    }
}
