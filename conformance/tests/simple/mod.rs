//! A client of some hundred lines, with a fault if one is wished.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::wire::{
    Acquire, ErrorClass, ErrorCode, HEARTBEAT, ServerFrame, decode_server, encode_acquire,
};

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    NeverHeartbeats,
    HeartbeatsTooOften,
    SecondAcquire,
    ReleasesEarly,
    /// Takes what a read brings for one frame.
    ReadsPackets,
    /// Takes a promotion for the answer to its heartbeat, and then that answer amiss.
    OneAnswerEach,
    TwoInFlight,
    TrustsSilence,
    CountsFromReceipt,
    IgnoresGarbage,
    IgnoresToken,
    IgnoresWaiting,
    ClaimsAgain,
    IgnoresEnd,
    RetriesEverything,
    NoBackoff,
    NeverRetries,
}

impl Fault {
    const ALL: [Fault; 18] = [
        Fault::None,
        Fault::NeverHeartbeats,
        Fault::HeartbeatsTooOften,
        Fault::SecondAcquire,
        Fault::ReleasesEarly,
        Fault::ReadsPackets,
        Fault::OneAnswerEach,
        Fault::TwoInFlight,
        Fault::TrustsSilence,
        Fault::CountsFromReceipt,
        Fault::IgnoresGarbage,
        Fault::IgnoresToken,
        Fault::IgnoresWaiting,
        Fault::ClaimsAgain,
        Fault::IgnoresEnd,
        Fault::RetriesEverything,
        Fault::NoBackoff,
        Fault::NeverRetries,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn named(name: &str) -> Fault {
        *Fault::ALL.iter().find(|fault| fault.name() == name).expect("a fault")
    }
}

/// How one attempt ended.
enum End {
    Held,
    Lost,
    /// It would only come again.
    Refused,
    Again {
        is_shutdown: bool,
    },
}

/// The exit status.
pub(crate) fn run(fault: Fault) -> i32 {
    let mut wait = Duration::from_millis(150);
    let mut has_hurried = false;
    loop {
        let is_shutdown = match attempt(fault) {
            End::Held => return 0,
            End::Lost if fault == Fault::ClaimsAgain => false,
            End::Lost => return 10,
            End::Refused if fault == Fault::RetriesEverything => false,
            End::Refused => return 11,
            End::Again { .. } if fault == Fault::NeverRetries => return 11,
            End::Again { is_shutdown } => is_shutdown,
        };
        if is_shutdown && !has_hurried {
            has_hurried = true;
        } else if fault != Fault::NoBackoff {
            thread::sleep(wait);
            wait *= 2;
        }
    }
}

fn attempt(fault: Fault) -> End {
    match TcpStream::connect(variable("MONOLOCK_ADDRESS")) {
        Ok(stream) => {
            stream.set_nodelay(true).expect("setting TCP_NODELAY");
            Claim::new(stream, fault).run()
        }
        Err(_) => End::Again { is_shutdown: false },
    }
}

struct Claim {
    stream: TcpStream,
    fault: Fault,
    lease: Duration,
    /// When the messages were sent that are not answered.
    unanswered: Vec<Instant>,
    confirmed_at: Instant,
    sent_at: Instant,
    token: Option<u64>,
    is_queued: bool,
    release_at: Option<Instant>,
    unread: Vec<u8>,
}

impl Claim {
    fn new(stream: TcpStream, fault: Fault) -> Claim {
        let lease = Duration::from_millis(number("MONOLOCK_LEASE_MS"));
        let now = Instant::now();
        let mut claim = Claim {
            stream,
            fault,
            lease,
            unanswered: vec![now],
            confirmed_at: now,
            sent_at: now,
            token: None,
            is_queued: false,
            release_at: None,
            unread: Vec::new(),
        };
        claim.send_acquire();
        claim
    }

    fn run(mut self) -> End {
        loop {
            let now = Instant::now();
            if self.release_at.is_some_and(|at| now >= at) {
                return End::Held;
            }
            let give_up_at = self.confirmed_at + self.lease * 8 / 10;
            if now >= give_up_at && self.fault != Fault::TrustsSilence {
                return self.ended(false);
            }
            if self.may_send() && now >= self.heartbeat_at() {
                self.heartbeat();
            }
            let mut bytes = [0; 512];
            // So short that nothing is noticed much too late.
            let timeout = Some(Duration::from_millis(5));
            self.stream.set_read_timeout(timeout).expect("setting the timeout");
            match self.stream.read(&mut bytes) {
                Ok(0) if self.fault == Fault::IgnoresEnd => thread::sleep(self.lease / 20),
                Ok(0) => return self.ended(false),
                Ok(len) => self.unread.extend_from_slice(&bytes[..len]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => continue,
                Err(_) => return self.ended(false),
            }
            if let Some(end) = self.digest() {
                return end;
            }
        }
    }

    fn digest(&mut self) -> Option<End> {
        let mut unread = std::mem::take(&mut self.unread);
        loop {
            let (frame, len) = match decode_server(&unread) {
                Ok(Some(whole)) => whole,
                Ok(None) => break,
                Err(_) if self.fault == Fault::IgnoresGarbage => return None,
                Err(_) => return Some(self.ended(true)),
            };
            if let Some(end) = self.take(frame) {
                return Some(end);
            }
            drop(unread.drain(..len));
            if self.fault == Fault::ReadsPackets {
                return None;
            }
        }
        if self.fault != Fault::ReadsPackets {
            self.unread = unread;
        }
        None
    }

    fn take(&mut self, frame: ServerFrame<'_>) -> Option<End> {
        match (frame, self.token) {
            (ServerFrame::Waiting, None) => self.is_queued = true,
            (ServerFrame::Waiting, Some(_)) if self.fault == Fault::IgnoresWaiting => {}
            (ServerFrame::Waiting, Some(_)) => return Some(End::Lost),
            (ServerFrame::Acquired(token), None) => {
                self.token = Some(token.get());
                let hold = Duration::from_millis(number("MONOLOCK_HOLD_MS"));
                let hold = if self.fault == Fault::ReleasesEarly { hold / 2 } else { hold };
                self.release_at = Some(Instant::now() + hold);
                // A promotion is no answer, and what it crossed with may be unread.
                if self.is_queued && self.fault != Fault::OneAnswerEach {
                    return None;
                }
            }
            (ServerFrame::Acquired(token), Some(own)) if token.get() != own => {
                if self.fault != Fault::IgnoresToken {
                    return Some(End::Lost);
                }
            }
            (ServerFrame::Acquired(_), Some(_)) => {}
            (ServerFrame::Error { code, .. }, _) => {
                let is_refusal = code.class() == ErrorClass::ClientError;
                let end = self.ended(is_refusal);
                return Some(match end {
                    End::Again { .. } => {
                        End::Again { is_shutdown: code == ErrorCode::SHUTTING_DOWN }
                    }
                    end => end,
                });
            }
        }
        self.confirm()
    }

    /// An answer is the oldest message's.
    fn confirm(&mut self) -> Option<End> {
        if self.unanswered.is_empty() {
            return (self.fault == Fault::OneAnswerEach).then_some(End::Lost);
        }
        let sent_at = self.unanswered.remove(0);
        let from_receipt = self.fault == Fault::CountsFromReceipt;
        self.confirmed_at = if from_receipt { Instant::now() } else { sent_at };
        None
    }

    fn ended(&self, is_refusal: bool) -> End {
        match self.token {
            Some(_) => End::Lost,
            None if is_refusal => End::Refused,
            None => End::Again { is_shutdown: false },
        }
    }

    fn may_send(&self) -> bool {
        match self.fault {
            Fault::NeverHeartbeats => false,
            Fault::TwoInFlight => true,
            _ => self.unanswered.is_empty(),
        }
    }

    fn heartbeat_at(&self) -> Instant {
        let too_often = self.fault == Fault::HeartbeatsTooOften;
        self.sent_at + if too_often { Duration::from_millis(10) } else { self.lease / 5 }
    }

    fn heartbeat(&mut self) {
        self.sent_at = Instant::now();
        self.unanswered.push(self.sent_at);
        if self.fault == Fault::SecondAcquire {
            self.send_acquire();
        } else {
            // That it is broken is seen by the next read.
            let _ = self.stream.write_all(&[HEARTBEAT]);
        }
    }

    fn send_acquire(&mut self) {
        let lease_ms = u32::try_from(self.lease.as_millis()).ok().and_then(NonZeroU32::new);
        let name = &variable("MONOLOCK_LOCK");
        let mut bytes = Vec::new();
        encode_acquire(Acquire { lease_ms: lease_ms.expect("a lease"), name }, &mut bytes);
        let _ = self.stream.write_all(&bytes);
    }
}

fn number(name: &str) -> u64 {
    variable(name).parse().expect("a number")
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
