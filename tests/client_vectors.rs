//! The byte vectors for writers of clients (`clients/conformance/vectors.json`) say what the golden
//! files say, as the core reads them.
//!
//! After a change: `MONOLOCK_WRITE_VECTORS=1 cargo test --test client_vectors`.

#[path = "golden/cases.rs"]
mod cases;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use monolock_core::wire::{
    Acquire, ErrorClass, First, HEARTBEAT, PROTOCOL_VERSION, ServerFrame, decode_first,
    decode_server, encode_acquire,
};
use serde_json::{Value, json};

use crate::cases::{Case, answers, cases};

#[test]
fn the_vectors_are_those_of_the_golden_files() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/conformance/vectors.json");
    let vectors = vectors();
    if std::env::var_os("MONOLOCK_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&vectors).expect("JSON") + "\n";
        fs::write(&path, text).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).expect("the file is there");
    let written: Value = serde_json::from_str(&written).expect("the file is JSON");
    assert!(
        written == vectors,
        "{} is not what the golden files say: run this test with MONOLOCK_WRITE_VECTORS=1",
        path.display()
    );
}

fn vectors() -> Value {
    let server_frames: Vec<Case> =
        answers("server_frames.txt").chain(answers("foreign_frames.txt")).collect();
    let malformed = cases("foreign_frames.txt");
    let malformed: Vec<&Case> = malformed.iter().filter(|case| case.wrong_at.is_some()).collect();
    assert!(server_frames.len() > 20 && malformed.len() >= 7, "there are cases");
    json!({
        "protocol_version": PROTOCOL_VERSION,
        "heartbeat": hex(&[HEARTBEAT]),
        "acquire": cases("client_frames.txt").iter().map(acquire).collect::<Vec<_>>(),
        "server_frames": server_frames.iter().map(server_frame).collect::<Vec<_>>(),
        "streams": streams(&server_frames),
        "malformed": malformed.into_iter().map(malformed_frame).collect::<Vec<_>>(),
    })
}

/// What a client sends for a lease and a name.
fn acquire(case: &Case) -> Value {
    let Ok(First::Complete { acquire: Acquire { lease_ms, name }, .. }) = decode_first(&case.sent)
    else {
        panic!("{case}");
    };
    let mut written = Vec::new();
    encode_acquire(Acquire { lease_ms, name }, &mut written);
    assert_eq!(written, case.sent, "{case}");
    json!({
        "title": title(case),
        "lease_ms": lease_ms.get(),
        "name": name,
        "bytes": hex(&case.sent),
    })
}

fn server_frame(case: &Case) -> Value {
    let mut frame = reading(&case.answered);
    frame["title"] = title(case).into();
    frame["bytes"] = hex(&case.answered).into();
    frame
}

/// What is read from one frame. A token is a string, as not every reader of JSON has 64 bits.
fn reading(bytes: &[u8]) -> Value {
    match decode_server(bytes) {
        Ok(Some((frame, len))) if len == bytes.len() => match frame {
            ServerFrame::Waiting => json!({ "frame": "WAITING" }),
            ServerFrame::Acquired(token) => {
                json!({ "frame": "ACQUIRED", "token": token.get().to_string() })
            }
            ServerFrame::Error { code, reason } => json!({
                "frame": "ERROR",
                "code": code.get(),
                "reason_bytes": hex(reason),
                "then": match code.class() {
                    ErrorClass::ServerCondition => "try again",
                    ErrorClass::ClientError => "report and stop",
                },
            }),
        },
        other => panic!("{other:?}"),
    }
}

/// What comes in pieces, and what is read after all of them.
fn streams(frames: &[Case]) -> Vec<Value> {
    let waiting = frames.iter().find(|case| case.answered == [0x11]).expect("WAITING");
    let acquired = frames.iter().find(|case| case.answered[0] == 0x12).expect("ACQUIRED");
    let error = frames.iter().find(|case| case.answered[0] == 0x13).expect("ERROR");
    let all = [waiting, acquired, acquired, error];
    let bytes: Vec<u8> = all.iter().flat_map(|case| case.answered.clone()).collect();
    let read: Vec<Value> = all.iter().map(|case| reading(&case.answered)).collect();
    let stream = |title: String, pieces: Vec<&[u8]>| {
        let pieces: Vec<String> = pieces.into_iter().map(hex).collect();
        json!({ "title": title, "pieces": pieces, "frames": read })
    };
    let mut streams = vec![
        stream("Four frames in one segment".into(), vec![&bytes]),
        stream("The same byte by byte".into(), bytes.chunks(1).collect()),
    ];
    for split in 1..bytes.len() {
        let (first, second) = bytes.split_at(split);
        streams.push(stream(format!("The same, split after {split} bytes"), vec![first, second]));
    }
    streams
}

/// What no version 1 server sends: the client closes at the wrong byte, reports, and stops.
fn malformed_frame(case: &Case) -> Value {
    let wrong_at = case.wrong_at.expect("filtered for it");
    assert_eq!(decode_server(&case.sent[..wrong_at]), Ok(None), "{case}");
    assert!(decode_server(&case.sent[..=wrong_at]).is_err(), "{case}");
    json!({
        "title": title(case),
        "bytes": hex(&case.sent),
        "wrong_at": wrong_at,
        "then": "close, report and stop",
    })
}

/// Without the file's name.
fn title(case: &Case) -> &str {
    case.title.split_once(": ").expect("a file and a title").1
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}
