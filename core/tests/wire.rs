//! Properties of the frames, for bytes that nobody thought of.

use std::num::NonZeroU32;

use monolock_core::fencing::Token;
use monolock_core::wire::{
    ACQUIRE, ACQUIRE_HEADER_LEN, ACQUIRE_LEN_MAX, ACQUIRED_LEN, Acquire, ERROR_LEN_MAX, ErrorClass,
    ErrorCode, Farewell, First, HEARTBEAT, NAME_LEN_MAX, PROTOCOL_VERSION, ServerFrame,
    decode_first, decode_server, encode_acquire, encode_standing,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A name that may be asked for.
fn name() -> impl Strategy<Value = String> {
    vec(any::<char>(), 1..=NAME_LEN_MAX).prop_map(|chars| {
        let mut name = String::from_iter(chars);
        name.truncate((0..=NAME_LEN_MAX).rev().find(|&end| name.is_char_boundary(end)).expect("0"));
        name
    })
}

/// What may arrive as the beginning of a connection: mostly nearly an ACQUIRE, for arbitrary bytes
/// hardly ever get past the first two.
fn first_bytes() -> impl Strategy<Value = Vec<u8>> {
    let type_byte = prop_oneof![9 => Just(ACQUIRE), 1 => Just(HEARTBEAT), 1 => any::<u8>()];
    let version = prop_oneof![9 => Just(PROTOCOL_VERSION), 1 => any::<u8>()];
    let lease_ms = prop_oneof![1 => Just(0), 4 => any::<u32>()];
    let name_len = prop_oneof![
        1 => Just(0u16),
        6 => 1..=12u16,
        1 => 254..=257u16,
        1 => any::<u16>()
    ];
    let name = prop_oneof![
        2 => vec(any::<u8>(), 0..300),
        3 => name().prop_map(String::into_bytes),
        3 => "[a-z]{0,300}".prop_map(String::into_bytes),
    ];
    (type_byte, version, lease_ms, name_len, name).prop_map(
        |(type_byte, version, lease_ms, name_len, name)| {
            let header = [&[type_byte, version][..], &lease_ms.to_be_bytes()].concat();
            [&header[..], &name_len.to_be_bytes(), &name].concat()
        },
    )
}

/// What the specification says of a first frame, read from its sentences: nothing as long as
/// nothing can be said, else the code or the length of the frame.
fn judgement(bytes: &[u8]) -> Option<Result<usize, ErrorCode>> {
    let byte = |place: usize| bytes.get(place).copied();
    match byte(0)? {
        ACQUIRE => {}
        HEARTBEAT => return Some(Err(ErrorCode::FIRST_NOT_ACQUIRE)),
        _ => return Some(Err(ErrorCode::UNKNOWN_TYPE)),
    }
    if byte(1)? != 1 {
        return Some(Err(ErrorCode::UNSUPPORTED_VERSION));
    }
    let name_len = usize::from(byte(6)?) * 256 + usize::from(byte(7)?);
    if name_len == 0 {
        return Some(Err(ErrorCode::EMPTY_NAME));
    }
    if name_len > 255 {
        return Some(Err(ErrorCode::NAME_TOO_LONG));
    }
    byte(8 + name_len - 1)?;
    if String::from_utf8(bytes[8..8 + name_len].to_vec()).is_err() {
        return Some(Err(ErrorCode::NAME_NOT_UTF8));
    }
    if bytes[2..6] == [0; 4] {
        return Some(Err(ErrorCode::ZERO_LEASE));
    }
    Some(Ok(8 + name_len))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_acquire_survives_the_wire(name in name(), lease_ms: NonZeroU32, rest: Vec<u8>) {
        let acquire = Acquire { lease_ms, name: &name };
        let mut bytes = Vec::new();
        encode_acquire(acquire, &mut bytes);
        prop_assert_eq!(bytes.len(), ACQUIRE_HEADER_LEN + name.len());
        prop_assert!(bytes.len() <= ACQUIRE_LEN_MAX);
        let len = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(decode_first(&bytes), Ok(First::Complete { acquire, len }));
    }

    /// Every prefix is judged as the specification says, so an ERROR is raised at the earliest byte
    /// at which it can be, and stays the same whatever follows.
    #[test]
    fn every_prefix_of_a_first_frame_is_judged_by_the_order_of_checks(bytes in first_bytes()) {
        for end in 0..=bytes.len() {
            let prefix = &bytes[..end];
            let judged = match decode_first(prefix) {
                Ok(First::Incomplete) => None,
                Ok(First::Complete { len, .. }) => Some(Ok(len)),
                Err(farewell) => Some(Err(farewell.code())),
            };
            prop_assert_eq!(judged, judgement(prefix), "{} bytes", end);
        }
    }

    #[test]
    fn an_incomplete_first_frame_is_shorter_than_the_longest_one(bytes in first_bytes()) {
        if decode_first(&bytes) == Ok(First::Incomplete) {
            prop_assert!(bytes.len() < ACQUIRE_LEN_MAX);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_never_beyond_their_end(bytes: Vec<u8>) {
        if let Ok(First::Complete { len, .. }) = decode_first(&bytes) {
            prop_assert!(len <= bytes.len());
        }
        if let Ok(Some((_, len))) = decode_server(&bytes) {
            prop_assert!(0 < len && len <= bytes.len());
        }
    }

    #[test]
    fn a_prefix_of_server_bytes_is_incomplete_or_reads_the_same(
        type_byte in 0x10..=0x14u8,
        rest in vec(any::<u8>(), 0..300),
    ) {
        let bytes = [&[type_byte][..], &rest].concat();
        let whole = decode_server(&bytes);
        for end in 0..bytes.len() {
            let prefix = decode_server(&bytes[..end]);
            prop_assert!(prefix == Ok(None) || prefix == whole, "{} bytes: {:?}", end, prefix);
        }
    }

    #[test]
    fn a_standing_is_written_as_often_as_there_is_room_and_can_be_read(
        token in proptest::option::of(1u64..),
        count in 0..200u32,
        room in 0..300usize,
    ) {
        let token = token.and_then(Token::new);
        let frame_len = if token.is_some() { ACQUIRED_LEN } else { 1 };
        let mut out = vec![0xee; room];
        let (written, len) = encode_standing(token, count, &mut out);
        prop_assert_eq!(written as usize, (count as usize).min(room / frame_len));
        prop_assert_eq!(len, written as usize * frame_len);
        prop_assert!(out[len..].iter().all(|&byte| byte == 0xee), "nothing behind it is touched");
        let expected = token.map_or(ServerFrame::Waiting, ServerFrame::Acquired);
        for frame in out[..len].chunks(frame_len) {
            prop_assert_eq!(decode_server(frame), Ok(Some((expected, frame_len))));
        }
    }

    #[test]
    fn every_error_can_be_read_back_with_its_code_and_a_reason_in_utf8(
        code in 1..=u8::MAX,
        byte: u8,
    ) {
        let code = ErrorCode::new(code);
        for farewell in [
            Farewell::new(code),
            Farewell::unsupported_version(byte),
            Farewell::unknown_type(byte),
        ] {
            let mut out = [0; ERROR_LEN_MAX];
            let len = farewell.encode(&mut out);
            let reason = farewell.to_string();
            let frame = ServerFrame::Error { code: farewell.code(), reason: reason.as_bytes() };
            prop_assert_eq!(decode_server(&out[..len]), Ok(Some((frame, len))));
            prop_assert!(!reason.is_empty());
        }
        let unknown_type = Farewell::unknown_type(byte).to_string();
        prop_assert!(unknown_type.contains(&format!("0x{byte:02x}")), "it names the byte in hex");
    }

    #[test]
    fn the_class_of_a_code_is_its_range(code: u8) {
        let expected = match code {
            0x00..=0x0f => ErrorClass::ServerCondition,
            0x10..=0xff => ErrorClass::ClientError,
        };
        prop_assert_eq!(ErrorCode::new(code).class(), expected);
    }
}
