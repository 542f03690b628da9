//! What is played, by name: each a server that does one thing, and what is demanded of its client.

use std::time::Duration;

use crate::fault::Fault;
use crate::peer::GRANT;
use crate::stage::{Outcome, Stage};

/// A server that does one thing.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What it does, and what the client must do.
    pub(crate) summary: &'static str,
    /// How long the client is to hold the lock, in tenths of the lease.
    pub(crate) hold_tenths: u32,
    pub(crate) play: fn(&mut Stage) -> Result<(), Fault>,
}

/// A hold of some heartbeats.
const SHORT: u32 = 15;

/// A hold that doesn't end before the lock is lost.
const LONG: u32 = 1000;

const WAITING: &[u8] = &[0x11];
const ANOTHER_TOKEN: &[u8] = &[0x12, 0, 0, 0, 0, 0, 0, 0, 8];
const NO_TOKEN: &[u8] = &[0x12, 0, 0, 0, 0, 0, 0, 0, 0];
const GARBAGE: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
const SHUTTING_DOWN: &[u8] = &[0x13, 0x01, 2, b'b', b'y'];
const BY_ADMINISTRATOR: &[u8] = &[0x13, 0x02, 0];
const UNKNOWN_CONDITION: &[u8] = &[0x13, 0x0f, 5, b'l', b'a', b't', b'e', b'r'];
const NOT_AUTHORIZED: &[u8] = &[0x13, 0x18, 2, b'n', b'o'];
const UNKNOWN_CLIENT_ERROR: &[u8] = &[0x13, 0xfe, 2, b'n', b'o'];

const AT_ONCE: Duration = Duration::ZERO;

/// All of them.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "granted-at-once",
        summary: "grants, and answers every heartbeat: hold, send heartbeats in time, release",
        hold_tenths: SHORT,
        play: Stage::grant_and_see_it_held,
    },
    Scenario {
        name: "granted-after-waiting",
        summary: "WAITING for more than a lease, then the lock: send heartbeats in the queue too",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(WAITING);
            let wait = stage.terms.tenths(11);
            peer.serve_for(wait, |peer| peer.send(WAITING), AT_ONCE)?;
            peer.grant();
            peer.serve_until_release(|peer| peer.send(GRANT), AT_ONCE)?;
            stage.expect_exit(&[Outcome::Held])
        },
    },
    Scenario {
        name: "frames-in-pieces",
        summary: "every byte in a segment of its own: read frames, not packets",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant_in_pieces();
            peer.serve_until_release(|peer| peer.send_in_pieces(GRANT), AT_ONCE)?;
            stage.expect_exit(&[Outcome::Held])
        },
    },
    Scenario {
        name: "frames-glued",
        summary: "WAITING and ACQUIRED in one segment, later an answer and ERROR 0x02: read all",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(&[WAITING, GRANT].concat());
            peer.expect_heartbeat()?;
            peer.send(&[GRANT, BY_ADMINISTRATOR].concat());
            peer.expect_close()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "promotion-overtakes-answer",
        summary: "ACQUIRED comes while a heartbeat is unanswered, and the answer after it: \
                  take both, the token is the same",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(WAITING);
            peer.expect_heartbeat()?;
            peer.grant();
            let more = peer.listen_for(stage.terms.tenths(2))?;
            for _ in 0..=more {
                peer.send(GRANT);
            }
            peer.serve_until_release(|peer| peer.send(GRANT), AT_ONCE)?;
            stage.expect_exit(&[Outcome::Held])
        },
    },
    Scenario {
        name: "answers-late",
        summary: "every answer takes 0.3 of the lease: at most one heartbeat in flight, and hold",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            peer.serve_until_release(|peer| peer.send(GRANT), stage.terms.tenths(3))?;
            stage.expect_exit(&[Outcome::Held])
        },
    },
    Scenario {
        name: "silent-after-acquired",
        summary: "grants, and never answers a heartbeat: give up at 0.8 of the lease",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            peer.expect_given_up()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "silent-after-heartbeats",
        summary: "answers two heartbeats and no more: give up 0.8 of the lease after the second",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            for _ in 0..2 {
                peer.expect_heartbeat()?;
                peer.send(GRANT);
            }
            peer.expect_given_up()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "silent-after-waiting",
        summary: "WAITING, and then silence: give up at 0.8 of the lease, and dial again",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(WAITING);
            peer.expect_given_up()?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "silent-from-the-start",
        summary: "no answer to the ACQUIRE: give up at 0.8 of the lease, and dial again",
        hold_tenths: SHORT,
        play: |stage| {
            stage.accept()?.expect_given_up()?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "granted-late",
        summary: "grants after half the lease, then silence: give up at 0.8 of the lease after \
                  the ACQUIRE was sent",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            std::thread::sleep(stage.terms.tenths(5));
            peer.grant();
            peer.expect_given_up()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "garbage-after-acquire",
        summary: "answers in HTTP: close, report, and stop",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(GARBAGE);
            peer.expect_close()?;
            stage.expect_exit(&[Outcome::NotAcquired])
        },
    },
    Scenario {
        name: "token-zero",
        summary: "grants with the token 0, which there is not: close, report, and stop",
        hold_tenths: SHORT,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.send(NO_TOKEN);
            peer.expect_close()?;
            stage.expect_exit(&[Outcome::NotAcquired])
        },
    },
    Scenario {
        name: "garbage-while-held",
        summary: "answers the second heartbeat in HTTP: close, the lock is lost",
        hold_tenths: LONG,
        play: |stage| lose(stage, GARBAGE),
    },
    Scenario {
        name: "another-token",
        summary: "answers a heartbeat with another token: close, the lock is lost",
        hold_tenths: LONG,
        play: |stage| lose(stage, ANOTHER_TOKEN),
    },
    Scenario {
        name: "waiting-after-acquired",
        summary: "answers a holder's heartbeat with WAITING: close, the lock is lost",
        hold_tenths: LONG,
        play: |stage| lose(stage, WAITING),
    },
    Scenario {
        name: "shutdown-while-held",
        summary: "ERROR 0x01 to a holder: close, the lock is lost, and no silent claim again",
        hold_tenths: LONG,
        play: |stage| lose(stage, SHUTTING_DOWN),
    },
    Scenario {
        name: "forced-while-held",
        summary: "ERROR 0x02 in pieces, with the longest reason and no UTF-8: the lock is lost",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            peer.expect_heartbeat()?;
            peer.send_in_pieces(&[&[0x13, 0x02, 0xff][..], &[0xfe; 255]].concat());
            peer.expect_close()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "half-close-while-held",
        summary: "ends its stream and reads on: close, the lock is lost",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            peer.expect_heartbeat()?;
            peer.half_close();
            peer.expect_close()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "reset-while-held",
        summary: "the connection is reset: the lock is lost",
        hold_tenths: LONG,
        play: |stage| {
            let mut peer = stage.accept()?;
            peer.grant();
            peer.expect_heartbeat()?;
            peer.reset()?;
            stage.expect_exit(&[Outcome::Lost])
        },
    },
    Scenario {
        name: "refused",
        summary: "ERROR 0x18: report, and do not try again",
        hold_tenths: SHORT,
        play: |stage| refuse(stage, NOT_AUTHORIZED),
    },
    Scenario {
        name: "unknown-client-error",
        summary: "ERROR 0xfe, which nobody knows: its range says report, and do not try again",
        hold_tenths: SHORT,
        play: |stage| refuse(stage, UNKNOWN_CLIENT_ERROR),
    },
    Scenario {
        name: "unknown-condition",
        summary: "ERROR 0x0f, which nobody knows, three times: its range says try again, later",
        hold_tenths: SHORT,
        play: |stage| {
            stage.turn_away(3, UNKNOWN_CONDITION, false)?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "kicked-from-queue",
        summary: "ERROR 0x02 to a waiter: try again, later",
        hold_tenths: SHORT,
        play: |stage| {
            stage.turn_away(2, &[WAITING, BY_ADMINISTRATOR].concat(), false)?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "shutdown-then-closed-port",
        summary: "ERROR 0x01, and nobody listens for a second: come back all the same",
        hold_tenths: SHORT,
        play: |stage| {
            stage.accept()?.send(SHUTTING_DOWN);
            stage.close_port(Duration::from_secs(1))?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "shutdown-again-and-again",
        summary: "ERROR 0x01 four times: the first time come back at once, then stay away longer",
        hold_tenths: SHORT,
        play: |stage| {
            stage.turn_away(4, SHUTTING_DOWN, true)?;
            stage.grant_and_see_it_held()
        },
    },
    Scenario {
        name: "hangs-up",
        summary: "closes four connections without a word: try again, later",
        hold_tenths: SHORT,
        play: |stage| {
            stage.turn_away(4, &[], false)?;
            stage.grant_and_see_it_held()
        },
    },
];

/// Says this to a holder that has sent a heartbeat, which costs it the lock.
fn lose(stage: &mut Stage, last_word: &[u8]) -> Result<(), Fault> {
    let mut peer = stage.accept()?;
    peer.grant();
    peer.expect_heartbeat()?;
    peer.send(GRANT);
    peer.expect_heartbeat()?;
    peer.send(last_word);
    peer.expect_close()?;
    stage.expect_exit(&[Outcome::Lost])
}

/// Answers an ACQUIRE with this, which ends the matter.
fn refuse(stage: &mut Stage, answer: &[u8]) -> Result<(), Fault> {
    let mut peer = stage.accept()?;
    peer.send(answer);
    peer.expect_close()?;
    stage.expect_exit(&[Outcome::NotAcquired])
}
