//! Protocol version 1 as bytes, independent of the server's own encoder and decoder.

/// The type byte of ACQUIRE.
pub(crate) const ACQUIRE: u8 = 0x01;
/// HEARTBEAT is its type byte and nothing else.
pub(crate) const HEARTBEAT: u8 = 0x02;
/// The version that the tests speak.
pub(crate) const VERSION: u8 = 1;
/// Type, version, lease and the length of the name: what comes before the name in an ACQUIRE.
pub(crate) const ACQUIRE_HEADER_BYTES: usize = 8;

/// The codes of ERROR.
pub(crate) mod code {
    pub(crate) const SHUTTING_DOWN: u8 = 0x01;
    pub(crate) const CLOSED_BY_ADMINISTRATOR: u8 = 0x02;
    pub(crate) const TOO_MANY_SESSIONS: u8 = 0x03;
    pub(crate) const UNSUPPORTED_VERSION: u8 = 0x10;
    pub(crate) const FIRST_NOT_ACQUIRE: u8 = 0x11;
    pub(crate) const DUPLICATE_ACQUIRE: u8 = 0x12;
    pub(crate) const UNKNOWN_TYPE: u8 = 0x13;
    pub(crate) const EMPTY_NAME: u8 = 0x14;
    pub(crate) const NAME_TOO_LONG: u8 = 0x15;
    pub(crate) const NAME_NOT_UTF8: u8 = 0x16;
    pub(crate) const ZERO_LEASE: u8 = 0x17;
    pub(crate) const LEASE_TOO_LONG: u8 = 0x19;
}

/// An ACQUIRE; the name need not be a valid one.
pub(crate) fn acquire(name: impl AsRef<[u8]>, lease_ms: u32) -> Vec<u8> {
    let name = name.as_ref();
    let name_len = u16::try_from(name.len()).expect("a name's length has 16 bits on the wire");
    let mut frame = acquire_header(VERSION, lease_ms, name_len);
    frame.extend_from_slice(name);
    frame
}

/// The part of an ACQUIRE before the name, with whatever is asked for in it.
pub(crate) fn acquire_header(version: u8, lease_ms: u32, name_len: u16) -> Vec<u8> {
    let mut header = vec![ACQUIRE, version];
    header.extend_from_slice(&lease_ms.to_be_bytes());
    header.extend_from_slice(&name_len.to_be_bytes());
    assert_eq!(header.len(), ACQUIRE_HEADER_BYTES);
    header
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// In the queue.
    Waiting,
    /// The owner, with the fencing token.
    Acquired(u64),
    /// The session is over.
    Error {
        /// What was wrong.
        code: u8,
        /// The same for people.
        reason: String,
    },
}

impl Frame {
    /// Takes the first frame from the front of `bytes`, or nothing while it is not whole.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Frame> {
        let (frame, len) = match *bytes.as_slice() {
            [] => return None,
            [0x11, ..] => (Frame::Waiting, 1),
            [0x12, a, b, c, d, e, f, g, h, ..] => {
                (Frame::Acquired(u64::from_be_bytes([a, b, c, d, e, f, g, h])), 9)
            }
            [0x13, code, reason_len, ref rest @ ..] if rest.len() >= usize::from(reason_len) => {
                let reason = &rest[..usize::from(reason_len)];
                let reason = str::from_utf8(reason).expect("the reason of an ERROR is UTF-8");
                let frame = Frame::Error { code, reason: reason.to_owned() };
                (frame, 3 + usize::from(reason_len))
            }
            [0x12 | 0x13, ..] => return None,
            [other, ..] => panic!("the server sent a frame of no known type: {other:#04x}"),
        };
        bytes.drain(..len);
        Some(frame)
    }
}
