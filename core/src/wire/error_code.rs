use core::fmt;

/// The code of an ERROR. Codes that are not known here are valid too: a client goes by their
/// [class](ErrorCode::class).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(u8);

/// What a client should make of an ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing was wrong with the request: it may be tried again.
    ServerCondition,
    /// Trying again would end the same way: report it and stop.
    ClientError,
}

impl ErrorCode {
    /// The server is shutting down: reconnect at once.
    pub const SHUTTING_DOWN: ErrorCode = ErrorCode(0x01);
    /// An administrator ended the claim: reconnect with backoff.
    pub const CLOSED_BY_ADMINISTRATOR: ErrorCode = ErrorCode(0x02);
    /// The server was told to limit the sessions of one peer, and this peer has that many.
    ///
    /// Not in the public protocol; only servers with `--max-sessions-per-peer` send it.
    pub const TOO_MANY_SESSIONS: ErrorCode = ErrorCode(0x03);
    /// The version byte of ACQUIRE is not 1.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(0x10);
    /// The first message was a HEARTBEAT.
    pub const FIRST_NOT_ACQUIRE: ErrorCode = ErrorCode(0x11);
    /// A second ACQUIRE on one connection.
    pub const DUPLICATE_ACQUIRE: ErrorCode = ErrorCode(0x12);
    /// A byte that begins no message; the reason names it.
    pub const UNKNOWN_TYPE: ErrorCode = ErrorCode(0x13);
    /// The lock name has no bytes.
    pub const EMPTY_NAME: ErrorCode = ErrorCode(0x14);
    /// The lock name has more than 255 bytes.
    pub const NAME_TOO_LONG: ErrorCode = ErrorCode(0x15);
    /// The lock name is not UTF-8.
    pub const NAME_NOT_UTF8: ErrorCode = ErrorCode(0x16);
    /// The lease is zero.
    pub const ZERO_LEASE: ErrorCode = ErrorCode(0x17);
    /// The access rules don't permit this lock to this client.
    pub const NOT_AUTHORIZED: ErrorCode = ErrorCode(0x18);
    /// The lease is longer than the server was told to permit.
    ///
    /// Not in the public protocol; only servers with `--max-lease` send it.
    pub const LEASE_TOO_LONG: ErrorCode = ErrorCode(0x19);

    /// The lowest code of the class of client errors.
    pub const CLIENT_ERROR_MIN: ErrorCode = ErrorCode(0x10);

    /// The code with this number.
    pub const fn new(number: u8) -> ErrorCode {
        ErrorCode(number)
    }

    /// The number that goes over the wire.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The class is a range, so that it holds for codes which are not known yet.
    pub const fn class(self) -> ErrorClass {
        if self.0 < Self::CLIENT_ERROR_MIN.0 {
            ErrorClass::ServerCondition
        } else {
            ErrorClass::ClientError
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02x}", self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
