//! The decoder of what a server sends.

use monolock_core::wire::{ServerFrame, UnknownServerFrame, decode_server, encode_standing};

/// A stream is read as the same frames in whatever pieces it comes, each frame takes the bytes that
/// it is made of, and a standing is written as it was read.
pub fn run(bytes: &[u8]) {
    let (frames, end) = frames(bytes);
    let mut received = Vec::new();
    let mut bytewise = Vec::new();
    let mut error = None;
    for byte in bytes {
        received.push(*byte);
        match decode_server(&received) {
            Ok(Some((frame, len))) => {
                assert_eq!(len, received.len(), "read at its last byte and not later");
                bytewise.push(owned(frame));
                received.clear();
            }
            Ok(None) => {}
            Err(wrong) => {
                error = Some(wrong);
                break;
            }
        }
    }
    assert_eq!((bytewise, error), (frames, end));
}

type Owned = (u8, u64, Vec<u8>);

fn frames(mut bytes: &[u8]) -> (Vec<Owned>, Option<UnknownServerFrame>) {
    let mut frames = Vec::new();
    loop {
        match decode_server(bytes) {
            Ok(Some((frame, len))) => {
                assert!((1..=bytes.len()).contains(&len), "{len} of {} bytes", bytes.len());
                assert_written_alike(frame, &bytes[..len]);
                frames.push(owned(frame));
                bytes = &bytes[len..];
            }
            Ok(None) => return (frames, None),
            Err(wrong) => return (frames, Some(wrong)),
        }
    }
}

fn owned(frame: ServerFrame<'_>) -> Owned {
    match frame {
        ServerFrame::Waiting => (0, 0, Vec::new()),
        ServerFrame::Acquired(token) => (1, token.get(), Vec::new()),
        ServerFrame::Error { code, reason } => (2, code.get().into(), reason.to_vec()),
    }
}

fn assert_written_alike(frame: ServerFrame<'_>, bytes: &[u8]) {
    let token = match frame {
        ServerFrame::Waiting => None,
        ServerFrame::Acquired(token) => Some(token),
        ServerFrame::Error { .. } => return,
    };
    let mut written = [0; 16];
    let (count, len) = encode_standing(token, 1, &mut written);
    assert_eq!((count, &written[..len]), (1, bytes));
}
