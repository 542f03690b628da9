//! The client's half of a claim, once for all clients: when to send a heartbeat, when to give up,
//! and what the server's frames mean. Like the engine it has no socket and no clock.
//!
//! A claim is made at the moment when its ACQUIRE is sent. From then on the caller gives it every
//! byte that arrives ([`Claim::receive`]) and every deadline that passes ([`Claim::pass`]), and
//! does what it is told.
//!
//! Safety rests on one rule: a claim is given up before the server could end it. So what counts is
//! when a confirmed message was *sent*, for the server can't have read it, and restarted the lease,
//! any earlier.

use alloc::boxed::Box;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::fencing::Token;
use crate::time::Instant;
use crate::wire::{ERROR_LEN_MAX, ErrorCode, ServerFrame, UnknownServerFrame, decode_server};

/// The shortest time between two heartbeats, unless a quarter of the lease is shorter.
const INTERVAL_MIN_NANOS: u64 = 100_000_000;

/// The longest time that is kept of a round trip. No lease is longer, and sums stay within 64 bits.
const RTT_MAX_NANOS: u64 = u32::MAX as u64 * 1_000_000;

/// Messages whose answers may be outstanding: the one in flight, and one that a promotion overtook.
const ANSWERS_DUE_MAX: u8 = 2;

/// Where a claim stands, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The ACQUIRE is on its way.
    Asking,
    /// In the queue.
    Queued,
    /// The lock is held, with this token.
    Holding(Token),
    /// It is over.
    Lost(Loss),
}

/// Why a claim is over. In every case the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing was confirmed for 0.8 of the lease: the server may be about to end the claim.
    Silence,
    /// The server closed the connection without a word.
    EndOfStream,
    /// The connection broke.
    Disconnected,
    /// The server ended the claim; [`ErrorCode::class`] says whether to try again, and
    /// [`Claim::reason`] what it said about it.
    Refused(ErrorCode),
    /// What arrived is not from a version 1 server.
    Unintelligible(UnknownServerFrame),
    /// A frame that contradicts an earlier one: WAITING after ACQUIRED, or another token.
    Contradiction,
}

/// What a frame meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The claim has come into the queue.
    Queued,
    /// The lock is held from now on.
    Granted(Token),
    /// Nothing has changed, which is good news: the claim stands.
    Standing,
    /// The claim is over.
    Lost(Loss),
}

/// A deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send a heartbeat now; it counts as sent.
    Heartbeat,
    /// Stop the work: the claim is lost.
    Lost(Loss),
}

/// One claim of a client.
#[derive(Debug)]
pub struct Claim {
    /// When the newest confirmed message was sent; before the first answer, when ACQUIRE was.
    confirmed_at: Instant,
    /// When the newest message was sent.
    sent_at: Instant,
    /// When the oldest message without an answer of its own was sent, if there is one.
    unanswered_at: Instant,
    /// The smoothed round trip, or zero before the first.
    rtt_nanos: u64,
    standing: Standing,
    /// The start of a frame whose rest hasn't come; after an ERROR, all of it.
    partial: Option<Box<PartialFrame>>,
    lease_ms: u32,
    answers_due: u8,
    /// A message was sent, and nothing has come since.
    in_flight: bool,
}

const _: () = assert!(size_of::<Claim>() <= 64, "a load generator has a million of them");

impl Claim {
    /// A claim whose ACQUIRE is sent now, with this lease.
    pub fn new(lease_ms: NonZeroU32, now: Instant) -> Claim {
        Claim {
            confirmed_at: now,
            sent_at: now,
            unanswered_at: now,
            rtt_nanos: 0,
            standing: Standing::Asking,
            partial: None,
            lease_ms: lease_ms.get(),
            answers_due: 1,
            in_flight: true,
        }
    }

    /// Takes the next frame from the front of `bytes` and says what it meant, or `None` when all
    /// bytes are taken; the start of an unfinished frame is kept. To be called until then, as one
    /// packet may bring several frames. After a loss the rest is taken unread.
    pub fn receive(&mut self, bytes: &mut &[u8], now: Instant) -> Option<News> {
        if bytes.is_empty() || self.is_lost() {
            *bytes = &[];
            return None;
        }
        let Some(mut frame) = self.partial.take() else {
            return match decode_server(bytes) {
                Ok(Some((frame, len))) => {
                    let whole = &bytes[..len];
                    *bytes = &bytes[len..];
                    Some(self.digest(frame, whole, now))
                }
                Ok(None) => {
                    self.partial = Some(PartialFrame::of(bytes));
                    *bytes = &[];
                    None
                }
                Err(unknown) => Some(self.lose(Loss::Unintelligible(unknown))),
            };
        };
        // A frame that came in pieces is rare: it may be completed byte by byte.
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            frame.push(byte);
            match decode_server(frame.bytes()) {
                Ok(Some((whole, _))) => return Some(self.digest(whole, frame.bytes(), now)),
                Ok(None) => {}
                Err(unknown) => return Some(self.lose(Loss::Unintelligible(unknown))),
            }
        }
        self.partial = Some(frame);
        None
    }

    /// The connection has come to its end, or broke.
    pub fn end(&mut self, loss: Loss) -> Loss {
        if let Standing::Lost(first) = self.standing {
            return first;
        }
        self.standing = Standing::Lost(loss);
        loss
    }

    /// What is due now, if anything. A heartbeat is taken to be sent by the caller at once.
    pub fn pass(&mut self, now: Instant) -> Option<Due> {
        if self.is_lost() {
            return None;
        }
        if now >= self.give_up_at() {
            self.end(Loss::Silence);
            return Some(Due::Lost(Loss::Silence));
        }
        if self.heartbeat_at() > now {
            return None;
        }
        self.send_heartbeat(now);
        Some(Due::Heartbeat)
    }

    /// Notes a heartbeat that the caller sends now, before it is due. False, and nothing is to be
    /// sent, while the last one is not answered.
    pub fn send_early(&mut self, now: Instant) -> bool {
        let may_send = self.may_send();
        if may_send {
            self.send_heartbeat(now);
        }
        may_send
    }

    /// When [`Claim::pass`] must be called next.
    pub fn deadline(&self) -> Instant {
        if self.is_lost() { Instant::NEVER } else { self.heartbeat_at().min(self.give_up_at()) }
    }

    /// When the next heartbeat is due: never while one is in flight.
    pub fn heartbeat_at(&self) -> Instant {
        if self.may_send() { self.sent_at.after(self.interval()) } else { Instant::NEVER }
    }

    /// When the claim must be given up unless something is confirmed before.
    pub fn give_up_at(&self) -> Instant {
        self.confirmed_at.after(Duration::from_nanos(u64::from(self.lease_ms) * 800_000))
    }

    /// The time between the sends of two heartbeats as it is now.
    ///
    /// A quarter of the lease, shortened so that the answer too is there after a quarter: by twice
    /// the usual round trip. When not even that helps, it is zero: as soon as the answer is in.
    pub fn interval(&self) -> Duration {
        let base_nanos = u64::from(self.lease_ms) * 250_000;
        let safe_rtt_nanos = 2 * self.rtt_nanos;
        let interval_nanos = if safe_rtt_nanos >= base_nanos {
            0
        } else {
            (base_nanos - safe_rtt_nanos).max(INTERVAL_MIN_NANOS.min(base_nanos))
        };
        Duration::from_nanos(interval_nanos)
    }

    /// The smoothed round trip; zero before the first answer.
    pub fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt_nanos)
    }

    /// The moment before which no server may end this claim for its silence: the lease counts from
    /// when the newest confirmed message was read, and it wasn't read before it was sent.
    pub fn lease_ends_no_earlier_than(&self) -> Instant {
        self.confirmed_at.after_ms(self.lease_ms)
    }

    /// When the newest confirmed message was sent.
    pub fn confirmed_at(&self) -> Instant {
        self.confirmed_at
    }

    /// When the newest message was sent.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Whether a message was sent, and nothing has come since.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Where the claim stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The lease that was asked for, in milliseconds.
    pub fn lease_ms(&self) -> u32 {
        self.lease_ms
    }

    /// What the server said for people in its ERROR: any bytes, meant to be UTF-8. Empty without.
    pub fn reason(&self) -> &[u8] {
        match (self.standing, &self.partial) {
            (Standing::Lost(Loss::Refused(_)), Some(frame)) => &frame.bytes()[3..],
            _ => &[],
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost(_))
    }

    fn may_send(&self) -> bool {
        !self.is_lost() && !self.in_flight && self.answers_due < ANSWERS_DUE_MAX
    }

    fn send_heartbeat(&mut self, now: Instant) {
        if self.answers_due == 0 {
            self.unanswered_at = now;
        }
        self.answers_due += 1;
        self.in_flight = true;
        self.sent_at = now;
    }

    fn lose(&mut self, loss: Loss) -> News {
        News::Lost(self.end(loss))
    }

    fn digest(&mut self, frame: ServerFrame<'_>, whole: &[u8], now: Instant) -> News {
        let token = match frame {
            ServerFrame::Error { code, .. } => {
                self.partial = Some(PartialFrame::of(whole));
                return self.lose(Loss::Refused(code));
            }
            ServerFrame::Waiting => None,
            ServerFrame::Acquired(token) => Some(token),
        };
        match (self.standing, token) {
            (Standing::Asking, None) => {
                self.standing = Standing::Queued;
                self.confirm(now);
                News::Queued
            }
            (Standing::Asking, Some(token)) => {
                self.standing = Standing::Holding(token);
                self.confirm(now);
                News::Granted(token)
            }
            (Standing::Queued, None) => {
                self.confirm(now);
                News::Standing
            }
            // The promotion. It acknowledges that the server is there, so the next heartbeat
            // needn't wait for it; but it may have crossed with one that the server hasn't read, so
            // it does not confirm any. That one's own answer is still to come.
            (Standing::Queued, Some(token)) => {
                self.standing = Standing::Holding(token);
                self.in_flight = false;
                News::Granted(token)
            }
            (Standing::Holding(own), Some(token)) if own == token => {
                self.confirm(now);
                News::Standing
            }
            (Standing::Holding(_), _) => self.lose(Loss::Contradiction),
            (Standing::Lost(loss), _) => News::Lost(loss),
        }
    }

    /// An answer: it confirms the oldest message that has none.
    fn confirm(&mut self, now: Instant) {
        self.in_flight = false;
        match self.answers_due {
            // A second answer to the ACQUIRE, of a claim that was promoted while the first was
            // made.
            0 => {}
            1 => {
                self.confirmed_at = self.unanswered_at;
                self.answers_due = 0;
                self.take_rtt(now.since(self.unanswered_at));
            }
            // One was overtaken by the promotion, and then another was sent. Whose answer this is
            // can't be told apart from a server that made one frame of promotion and answer, so it
            // is the older one's, and no round trip.
            _ => {
                self.confirmed_at = self.unanswered_at;
                self.answers_due = 1;
                self.unanswered_at = self.sent_at;
            }
        }
    }

    /// EWMA with alpha 0.2.
    fn take_rtt(&mut self, sample: Duration) {
        let sample_nanos = u64::try_from(sample.as_nanos()).unwrap_or(RTT_MAX_NANOS);
        let sample_nanos = sample_nanos.clamp(1, RTT_MAX_NANOS);
        self.rtt_nanos = match self.rtt_nanos {
            0 => sample_nanos,
            rtt_nanos => (rtt_nanos * 4 + sample_nanos) / 5,
        };
    }
}

/// A frame in pieces. Rare, so a claim has it on the heap.
#[derive(Debug)]
struct PartialFrame {
    bytes: [u8; ERROR_LEN_MAX],
    len: u16,
}

impl PartialFrame {
    fn of(bytes: &[u8]) -> Box<PartialFrame> {
        let mut frame = Box::new(PartialFrame { bytes: [0; ERROR_LEN_MAX], len: 0 });
        for &byte in bytes {
            frame.push(byte);
        }
        frame
    }

    /// No frame is longer than the longest ERROR, and a whole one is not added to.
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}
