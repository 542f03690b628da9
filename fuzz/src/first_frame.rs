//! The decoder of a client's first frame.

use monolock_core::wire::{
    ACQUIRE, ACQUIRE_HEADER_LEN, ErrorCode, First, HEARTBEAT, NAME_LEN_MAX, PROTOCOL_VERSION,
    decode_first, encode_acquire,
};

/// What is read depends only on the bytes up to the one that decides it, it is what the order of
/// checks demands, and an ACQUIRE is written as it was read.
pub fn run(bytes: &[u8]) {
    let verdict = decode_first(bytes);
    let expected = expected(bytes);
    match (&verdict, expected) {
        (Ok(First::Incomplete), Expected::Incomplete) => {}
        (Ok(First::Complete { acquire, len }), Expected::Complete) => {
            assert_eq!(acquire.name.len() + ACQUIRE_HEADER_LEN, *len);
            let mut written = Vec::new();
            encode_acquire(*acquire, &mut written);
            assert_eq!(written, bytes[..*len]);
        }
        (Err(farewell), Expected::Error(code)) => assert_eq!(farewell.code(), code),
        (verdict, expected) => panic!("{verdict:?}, but {expected:?}"),
    }
    let decided_at =
        (0..bytes.len()).find(|len| decode_first(&bytes[..*len]) != Ok(First::Incomplete));
    if let Some(decided_at) = decided_at {
        for len in decided_at..bytes.len() {
            assert_eq!(decode_first(&bytes[..len]), verdict, "after {len} bytes");
        }
    }
}

#[derive(Debug)]
enum Expected {
    Incomplete,
    Complete,
    Error(ErrorCode),
}

/// The specification's order of checks, written down once more.
fn expected(bytes: &[u8]) -> Expected {
    let Some(kind) = bytes.first() else {
        return Expected::Incomplete;
    };
    match *kind {
        ACQUIRE => {}
        HEARTBEAT => return Expected::Error(ErrorCode::FIRST_NOT_ACQUIRE),
        _ => return Expected::Error(ErrorCode::UNKNOWN_TYPE),
    }
    if bytes.get(1).is_some_and(|version| *version != PROTOCOL_VERSION) {
        return Expected::Error(ErrorCode::UNSUPPORTED_VERSION);
    }
    if bytes.len() < ACQUIRE_HEADER_LEN {
        return Expected::Incomplete;
    }
    let name_len = usize::from(bytes[6]) << 8 | usize::from(bytes[7]);
    if name_len == 0 {
        return Expected::Error(ErrorCode::EMPTY_NAME);
    }
    if name_len > NAME_LEN_MAX {
        return Expected::Error(ErrorCode::NAME_TOO_LONG);
    }
    if bytes.len() < ACQUIRE_HEADER_LEN + name_len {
        return Expected::Incomplete;
    }
    if String::from_utf8(bytes[8..8 + name_len].to_vec()).is_err() {
        return Expected::Error(ErrorCode::NAME_NOT_UTF8);
    }
    if bytes[2..6] == [0; 4] {
        return Expected::Error(ErrorCode::ZERO_LEASE);
    }
    Expected::Complete
}
