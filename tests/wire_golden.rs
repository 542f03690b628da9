//! The bytes of the protocol as people read them (`tests/golden`), against what the decoders, the
//! encoders and the engine make of them, whatever the pieces in which they arrive.

#[path = "golden/cases.rs"]
mod cases;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::{Effect, OwnershipChange};
use monolock_core::engine::{Engine, EngineConfig};
use monolock_core::fencing::{Token, TokenMint};
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{
    Acquire, ERROR, ERROR_LEN_MAX, ErrorCode, Farewell, First, ServerFrame, decode_first,
    decode_server, encode_acquire, encode_standing,
};

use crate::cases::{Case, answers, cases, number, word};

#[test]
fn accepted_acquires_are_read_and_written_byte_for_byte() {
    for case in cases("client_frames.txt") {
        let bytes = &case.sent;
        let Ok(First::Complete { acquire, len }) = decode_first(bytes) else {
            panic!("{case}: {:?}", decode_first(bytes));
        };
        let Acquire { lease_ms, name } = acquire;
        assert_eq!(format!("{lease_ms} ms, {name:?}"), case.reading, "{case}");
        assert_eq!(len, bytes.len(), "{case}");
        let mut written = Vec::new();
        encode_acquire(acquire, &mut written);
        assert_eq!(&written, bytes, "{case}");
    }
}

#[test]
fn an_acquire_is_incomplete_at_every_point_before_its_last_byte() {
    for case in cases("client_frames.txt") {
        for split in 0..case.sent.len() {
            let start = &case.sent[..split];
            assert_eq!(decode_first(start), Ok(First::Incomplete), "{case}: {split}");
        }
    }
}

#[test]
fn what_follows_an_acquire_is_not_taken_for_a_part_of_it() {
    for case in cases("client_frames.txt") {
        let followed = [&case.sent[..], b"\x02\x02\xff"].concat();
        let alone = decode_first(&case.sent);
        assert_eq!(decode_first(&followed), alone, "{case}");
    }
}

#[test]
fn server_frames_are_read_whole_and_not_before_their_last_byte() {
    for case in answers("server_frames.txt").chain(answers("foreign_frames.txt")) {
        for split in 0..case.answered.len() {
            assert_eq!(decode_server(&case.answered[..split]), Ok(None), "{case}: {split}");
        }
        let followed = [&case.answered[..], b"\x11\x13\x00"].concat();
        for bytes in [&case.answered, &followed] {
            let Ok(Some((frame, len))) = decode_server(bytes) else {
                panic!("{case}: {:?}", decode_server(bytes));
            };
            assert_eq!(reading_of(frame), case.reading, "{case}");
            assert_eq!(len, case.answered.len(), "{case}");
        }
    }
}

#[test]
fn what_no_server_of_this_version_sends_is_refused_at_its_first_wrong_byte() {
    let foreign = cases("foreign_frames.txt");
    let refused: Vec<&Case> = foreign.iter().filter(|case| case.wrong_at.is_some()).collect();
    assert!(refused.len() >= 7, "the file has such cases");
    for case in refused {
        let wrong_at = case.wrong_at.expect("filtered for it");
        for split in 0..=case.sent.len() {
            match decode_server(&case.sent[..split]) {
                Ok(frame) => assert!(frame.is_none() && split <= wrong_at, "{case}: {split}"),
                Err(error) => {
                    assert!(split > wrong_at, "{case}: {split}");
                    assert_eq!(error.to_string(), case.reading, "{case}");
                }
            }
        }
    }
}

#[test]
fn a_claims_standing_is_written_as_the_golden_frames_have_it() {
    let mut standings = 0;
    for case in answers("server_frames.txt") {
        let token = match decode_server(&case.answered) {
            Ok(Some((ServerFrame::Waiting, _))) => None,
            Ok(Some((ServerFrame::Acquired(token), _))) => Some(token),
            _ => continue,
        };
        standings += 1;
        let mut out = vec![0; case.answered.len() * 3];
        assert_eq!(encode_standing(token, 3, &mut out), (3, out.len()), "{case}");
        assert_eq!(out, case.answered.repeat(3), "{case}");
    }
    assert_eq!(standings, 4);
}

#[test]
fn every_error_is_written_as_its_golden_frame_has_it() {
    let golden: Vec<Vec<u8>> = answers("server_frames.txt")
        .map(|case| case.answered)
        .filter(|bytes| bytes[0] == ERROR)
        .collect();
    assert_eq!(golden.iter().map(|bytes| farewell_of(bytes)).collect::<Vec<_>>(), golden);
    let codes: Vec<u8> = golden.iter().map(|bytes| bytes[1]).collect();
    let known: Vec<u8> = (0x01..=0x03).chain(0x10..=0x19).collect();
    assert_eq!(codes, known, "every ERROR that there is has a golden frame");
}

#[test]
fn wrong_bytes_are_refused_at_the_earliest_byte_that_shows_it() {
    for case in cases("malformed.txt") {
        let wrong_at = case.wrong_at.expect("every malformed case has a wrong byte");
        let mut dialogue = Dialogue::begin(&case);
        for (place, byte) in case.sent.iter().enumerate() {
            assert_eq!(dialogue.is_refused(), place > wrong_at, "{case}: before byte {place}");
            dialogue.receive(&[*byte]);
            dialogue.serve();
        }
        assert!(dialogue.is_refused(), "{case}");
    }
}

#[test]
fn the_decoder_alone_refuses_a_wrong_first_frame_at_the_same_byte() {
    let mut first_frames = 0;
    for case in cases("malformed.txt") {
        let wrong_at = case.wrong_at.expect("every malformed case has a wrong byte");
        if matches!(decode_first(&case.sent), Ok(First::Complete { .. })) {
            continue; // Wrong by a limit of the server, or by what follows the first frame.
        }
        first_frames += 1;
        for split in 0..=case.sent.len() {
            match decode_first(&case.sent[..split]) {
                Ok(First::Incomplete) => assert!(split <= wrong_at, "{case}: {split}"),
                Ok(complete) => panic!("{case}: {split}: {complete:?}"),
                Err(farewell) => {
                    assert!(split > wrong_at, "{case}: {split}");
                    assert_eq!(encoded(farewell), case.answered, "{case}: {split}");
                }
            }
        }
    }
    assert!(first_frames >= 30);
}

#[test]
fn the_engine_answers_alike_at_every_split_of_the_input() {
    for case in cases("malformed.txt").iter().chain(&cases("conversations.txt")) {
        for split in 0..=case.sent.len() {
            let (first, second) = case.sent.split_at(split);
            let answered = Dialogue::whole(case, &[first, second]).output;
            assert_eq!(answered, case.answered, "{case}: split at {split}");
        }
        let answered = Dialogue::whole(case, &case.sent.chunks(1).collect::<Vec<_>>()).output;
        assert_eq!(answered, case.answered, "{case}: byte by byte");
    }
}

#[test]
fn the_engines_effects_are_the_same_at_every_split_of_the_input() {
    for case in cases("malformed.txt").iter().chain(&cases("conversations.txt")) {
        let at_once = Dialogue::effects(case, &[&case.sent]);
        for split in 0..=case.sent.len() {
            let (first, second) = case.sent.split_at(split);
            assert_eq!(Dialogue::effects(case, &[first, second]), at_once, "{case}: {split}");
        }
        let pieces: Vec<&[u8]> = case.sent.chunks(1).collect();
        assert_eq!(Dialogue::effects(case, &pieces), at_once, "{case}: byte by byte");
    }
}

fn reading_of(frame: ServerFrame<'_>) -> String {
    match frame {
        ServerFrame::Waiting => "WAITING".to_owned(),
        ServerFrame::Acquired(token) => format!("ACQUIRED {token}"),
        ServerFrame::Error { code, reason } => {
            let reason = reason.utf8_chunks().fold(String::new(), |text, chunk| {
                format!("{text}{}{}", chunk.valid(), chunk.invalid().escape_ascii())
            });
            format!("ERROR {code} \"{reason}\"")
        }
    }
}

/// The ERROR with the same code, as this server writes it.
fn farewell_of(golden: &[u8]) -> Vec<u8> {
    encoded(match ErrorCode::new(golden[1]) {
        ErrorCode::UNSUPPORTED_VERSION => Farewell::unsupported_version(2),
        ErrorCode::UNKNOWN_TYPE => Farewell::unknown_type(0x7f),
        code => Farewell::new(code),
    })
}

fn encoded(farewell: Farewell) -> Vec<u8> {
    let mut out = [0; ERROR_LEN_MAX];
    let len = farewell.encode(&mut out);
    out[..len].to_vec()
}

/// An engine with the one client of a case, and all that was sent to this client.
struct Dialogue {
    engine: Engine,
    client: SessionId,
    holder: Option<SessionId>,
    output: Vec<u8>,
    refused: bool,
}

impl Dialogue {
    /// 2026-08-08 12:00:00 UTC.
    const NOW: Now = Now { instant: Instant::from_nanos(0), unix: UnixTime::new(1_786_190_400, 0) };

    fn begin(case: &Case) -> Dialogue {
        let limit = case.before.iter().find(|event| word(event) == "lease_max_ms");
        let config = EngineConfig {
            sessions_max: 2,
            io_timeout: Duration::from_secs(5),
            lease_max_ms: limit.and_then(|limit| NonZeroU32::new(number(limit))),
            hash_key: [7; 16],
        };
        let mut engine = Engine::new(config, Arc::new(TokenMint::new()));
        let holder = case.before.iter().any(|event| event == "held").then(|| {
            let holder = engine.connect(peer(1), Self::NOW).expect("there is room");
            engine.receive(holder, b"\x01\x01\x00\x00\x27\x10\x00\x01a", Self::NOW);
            holder
        });
        let client = engine.connect(peer(2), Self::NOW).expect("there is room");
        let mut dialogue = Dialogue { engine, client, holder, output: Vec::new(), refused: false };
        dialogue.serve();
        dialogue
    }

    /// All of a case, served after every piece: a driver that has time.
    fn whole(case: &Case, pieces: &[&[u8]]) -> Dialogue {
        let mut dialogue = Dialogue::begin(case);
        for piece in pieces {
            dialogue.receive(piece);
            dialogue.serve();
        }
        for event in &case.after {
            dialogue.happen(event);
            dialogue.serve();
        }
        dialogue
    }

    /// All that the engine asks for and reports, to a driver that comes for it only at the end.
    fn effects(case: &Case, pieces: &[&[u8]]) -> (Vec<Effect>, Vec<OwnershipChange>) {
        let mut dialogue = Dialogue::begin(case);
        for piece in pieces {
            dialogue.receive(piece);
        }
        for event in &case.after {
            dialogue.happen(event);
        }
        let Dialogue { engine, .. } = &mut dialogue;
        (
            std::iter::from_fn(|| engine.poll_effect()).collect(),
            std::iter::from_fn(|| engine.poll_change()).collect(),
        )
    }

    /// No read ever gives nothing: that would be the end of the stream.
    fn receive(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.engine.receive(self.client, bytes, Self::NOW);
        }
    }

    fn happen(&mut self, event: &str) {
        let Dialogue { engine, client, .. } = self;
        match word(event) {
            "shut_down" => {
                engine.shut_down();
                engine.tell_of_shutdown(0, u32::MAX, Self::NOW);
            }
            "force_release" => {
                engine.force_release("a", None, Self::NOW).expect("the client holds it");
            }
            "kick" => {
                engine.kick_waiter("a", peer(2), Self::NOW).expect("the client waits for it");
            }
            "refuse" => {
                let code = u8::try_from(number(event)).expect("a code is a byte");
                engine.refuse(*client, ErrorCode::new(code), Self::NOW);
            }
            "end_of_stream" => engine.end_of_stream(*client, Self::NOW),
            "holder_leaves" => {
                engine.disconnected(self.holder.expect("somebody holds it"), Self::NOW);
            }
            _ => panic!("what is {event:?}?"),
        }
    }

    /// Does what the engine asks for.
    fn serve(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Transmit(id) => self.transmit(id),
                Effect::ShutdownWrite(id) => self.refused |= id == self.client,
                Effect::Close(id) => drop(self.engine.forget(id)),
                Effect::Probe(_) => unreachable!("no time passes"),
                Effect::Move { .. } | Effect::GiveBackPlace { .. } => {
                    unreachable!("there is one shard")
                }
            }
        }
    }

    fn transmit(&mut self, id: SessionId) {
        let mut out = [0; ERROR_LEN_MAX];
        let len = self.engine.transmit(id, &mut out);
        if id == self.client {
            self.output.extend_from_slice(&out[..len]);
        }
        self.engine.sent(id, Self::NOW);
    }

    /// Whether the client was sent an ERROR, and then that nothing more follows it.
    fn is_refused(&self) -> bool {
        self.refused
    }
}

fn peer(port: u16) -> PeerAddress {
    PeerAddress::from(std::net::SocketAddr::from(([10, 0, 0, 5], port)))
}

/// Tokens are made by the mint: the golden ones are only read.
#[test]
fn the_golden_token_tells_when_it_was_granted() {
    let token = Token::new(1_872_956_384_870_401).expect("not zero");
    assert_eq!(token.unix_secs(), Dialogue::NOW.unix.secs());
}
