//! A connection as an event loop knows it, and what its peer is told.

use monolock_core::effect::Effect;
use monolock_core::engine::Engine;
use monolock_core::fencing::Token;
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::wire::{Acquire, ServerFrame, decode_server, encode_acquire};

/// From one that is over in any case to one that is not over while anything happens.
const LEASES_MS: [u32; 4] = [1, 40, 1_000, u32::MAX];

/// A connection as its driver knows it.
pub(crate) struct Peer {
    pub(crate) id: SessionId,
    pub(crate) address: PeerAddress,
    /// The kernel has a send of it.
    pub(crate) is_sending: bool,
    /// The driver has been asked to read once more.
    pub(crate) is_probed: bool,
    /// No bytes come any more.
    pub(crate) at_end: bool,
    /// Its write side was shut.
    pub(crate) is_shut: bool,
    /// The driver was told to close it.
    pub(crate) is_closed: bool,
    /// The last frame that it was sent.
    pub(crate) last: Option<Standing>,
    /// How many frames it was sent, the last one included.
    pub(crate) told: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting,
    Acquired(Token),
    Refused,
}

impl Peer {
    /// Nothing has happened to it.
    pub(crate) fn new(id: SessionId, address: PeerAddress) -> Peer {
        Peer {
            id,
            address,
            is_sending: false,
            is_probed: false,
            at_end: false,
            is_shut: false,
            is_closed: false,
            last: None,
            told: 0,
        }
    }

    /// Carries out what its engine asks for, other than a move.
    pub(crate) fn carry_out(&mut self, effect: Effect, engine: &mut Engine) {
        assert!(!self.is_closed, "{effect:?} after the close");
        match effect {
            Effect::Transmit(_) => self.transmit(engine),
            Effect::Probe(_) => self.is_probed = true,
            Effect::ShutdownWrite(_) => {
                assert!(!self.is_shut, "shut down twice");
                self.is_shut = true;
            }
            Effect::Close(_) => self.is_closed = true,
            Effect::Move { .. } | Effect::GiveBackPlace { .. } => {
                unreachable!("that is for the event loop")
            }
        }
    }

    fn transmit(&mut self, engine: &mut Engine) {
        assert!(!self.is_sending, "a second send while one is under way");
        let mut frames = [0; 512];
        let len = engine.transmit(self.id, &mut frames);
        self.is_sending = len > 0;
        assert!(len == 0 || !self.is_shut, "a send after the shutdown");
        let mut rest = &frames[..len];
        while !rest.is_empty() {
            let decoded = decode_server(rest).expect("frames of this version");
            let (frame, len) = decoded.expect("whole frames only");
            rest = &rest[len..];
            self.hear(frame);
        }
    }

    fn hear(&mut self, frame: ServerFrame<'_>) {
        let standing = match frame {
            ServerFrame::Waiting => Standing::Waiting,
            ServerFrame::Acquired(token) => Standing::Acquired(token),
            ServerFrame::Error { .. } => Standing::Refused,
        };
        let follows = match (self.last, standing) {
            (Some(Standing::Refused), _) => false,
            (Some(Standing::Acquired(_)), Standing::Waiting) => false,
            (Some(Standing::Acquired(before)), Standing::Acquired(token)) => before == token,
            _ => true,
        };
        assert!(follows, "{standing:?} after {:?}", self.last);
        self.last = Some(standing);
        self.told += 1;
    }
}

/// An ACQUIRE with one of several leases.
pub(crate) fn acquire(name: &str, lease: usize) -> Vec<u8> {
    let lease_ms = LEASES_MS[lease % LEASES_MS.len()].try_into().expect("none is zero");
    let mut frame = Vec::new();
    encode_acquire(Acquire { lease_ms, name }, &mut frame);
    frame
}
