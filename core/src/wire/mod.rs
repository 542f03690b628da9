//! Protocol version 1: big-endian frames on a byte stream.
//!
//! | direction | message | bytes |
//! |---|---|---|
//! | client | ACQUIRE | `01`, version u8, lease_ms u32, name_len u16, name |
//! | client | HEARTBEAT | `02` |
//! | server | WAITING | `11` |
//! | server | ACQUIRED | `12`, token u64 |
//! | server | ERROR | `13`, code u8, reason_len u8, reason |

mod client_frame;
mod error_code;
mod farewell;
mod server_frame;

pub use client_frame::{Acquire, First, decode_first, encode_acquire};
pub use error_code::{ErrorClass, ErrorCode};
pub use farewell::Farewell;
pub use server_frame::{ServerFrame, UnknownServerFrame, decode_server, encode_standing};

/// The version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u8 = 1;

/// The longest lock name, in bytes of UTF-8.
pub const NAME_LEN_MAX: usize = 255;

/// An ACQUIRE up to its name: type, version, lease, length of the name.
pub const ACQUIRE_HEADER_LEN: usize = 8;

/// The longest ACQUIRE, in bytes.
pub const ACQUIRE_LEN_MAX: usize = ACQUIRE_HEADER_LEN + NAME_LEN_MAX;

/// An ACQUIRED, in bytes.
pub const ACQUIRED_LEN: usize = 9;

/// The longest ERROR, in bytes: type, code, length of the reason, reason.
pub const ERROR_LEN_MAX: usize = 3 + 255;

/// The first byte of an ACQUIRE.
pub const ACQUIRE: u8 = 0x01;
/// The one byte of a HEARTBEAT.
pub const HEARTBEAT: u8 = 0x02;
/// The one byte of a WAITING.
pub const WAITING: u8 = 0x11;
/// The first byte of an ACQUIRED.
pub const ACQUIRED: u8 = 0x12;
/// The first byte of an ERROR.
pub const ERROR: u8 = 0x13;
