//! One thread of a forwarder: connections in pairs, and bytes from one to the other.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use monolock_ring::{Bell, ConnectionId, Event, Reading, Ring, SEND_LEN};

use super::{Broken, Inbox, Order, Share, Switchboard, Target};
use crate::source::Source;

/// What one side may have in store for the other before it isn't read from any more.
const PENDING_MAX: usize = 4096;

/// The sides of a pair, and their places in it.
const CLIENT: usize = 0;
const SERVER: usize = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Gone,
    Open,
    /// What is pending is still sent, and then it is closed.
    Ending,
    Closing,
}

/// One side of a forwarded connection.
#[derive(Debug, Default)]
struct Side {
    stage: Stage,
    /// What came from the other side and is to be sent on this one.
    pending: Vec<u8>,
}

/// A client's connection and the one to its server.
#[derive(Debug, Default)]
struct Pair {
    generation: u32,
    /// The server has said something.
    is_answered: bool,
    /// Somebody waits for its end.
    is_awaited: bool,
    sides: [Side; 2],
}

impl Pair {
    fn is_gone(&self) -> bool {
        self.sides.iter().all(|side| side.stage == Stage::Gone)
    }
}

pub(super) struct Relay {
    ring: Ring,
    inbox: Inbox,
    switchboard: Arc<Switchboard>,
    bell: Bell,
    taken: Arc<AtomicU32>,
    pairs: Vec<Pair>,
    free: Vec<u32>,
    share: Share,
    /// Where connections to servers come from.
    source: Option<Source>,
    /// Connections that are being broken, and whom to tell when all of them are gone.
    awaited: usize,
    awaiting: Option<Sender<()>>,
    is_stopped: bool,
}

impl Relay {
    /// With room for so many pairs, for which there is room in the ring.
    pub(super) fn new(
        ring: Ring,
        inbox: Inbox,
        share: Share,
        switchboard: Arc<Switchboard>,
        bell: Bell,
        taken: Arc<AtomicU32>,
    ) -> Relay {
        Relay {
            ring,
            inbox,
            switchboard,
            bell,
            taken,
            pairs: Vec::new(),
            free: Vec::new(),
            share,
            source: None,
            awaited: 0,
            awaiting: None,
            is_stopped: false,
        }
    }

    /// Forwards until it is told to stop.
    ///
    /// # Errors
    /// If the kernel refuses the ring what it granted at the start.
    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.is_stopped {
            self.ring.wait(None)?;
            self.take_in();
            self.carry_out_orders();
            self.tell_if_gone();
        }
        Ok(())
    }

    fn take_in(&mut self) {
        while let Some(event) = self.ring.next_event() {
            match event {
                Event::Received { id, bytes } => {
                    let (pair, side) = place_of(id);
                    self.pairs[pair].is_answered |= side == SERVER;
                    let other = &mut self.pairs[pair].sides[1 - side];
                    if other.stage == Stage::Open {
                        other.pending.extend_from_slice(bytes);
                        self.flush(pair, 1 - side);
                    }
                }
                Event::Sent { id } => {
                    let (pair, side) = place_of(id);
                    self.flush(pair, side);
                }
                Event::EndOfStream { id }
                | Event::ReceiveFailed { id, .. }
                | Event::SendFailed { id, .. } => {
                    let (pair, side) = place_of(id);
                    self.close(pair, side);
                    self.end(pair, 1 - side);
                }
                Event::Closed { id } => {
                    let (pair, side) = place_of(id);
                    self.pairs[pair].sides[side] = Side::default();
                    self.free_if_gone(pair);
                }
                Event::Detached { .. } | Event::DetachFailed { .. } => {
                    unreachable!("nothing is detached here")
                }
                Event::SendBlocked { .. } | Event::Silent { .. } | Event::Woken => {}
            }
        }
    }

    /// Sends what is pending, if nothing is in flight, and holds the other side to what fits.
    fn flush(&mut self, pair: usize, side: usize) {
        let id = self.id(pair, side);
        let this = &mut self.pairs[pair].sides[side];
        if !self.ring.is_sending(id) {
            if !this.pending.is_empty() {
                let len = this.pending.len().min(SEND_LEN);
                self.ring.send(id, |buffer| {
                    buffer[..len].copy_from_slice(&this.pending[..len]);
                    len
                });
                this.pending.drain(..len);
            } else if this.stage == Stage::Ending {
                self.close(pair, side);
                return;
            }
        }
        let is_full = this.pending.len() >= PENDING_MAX;
        if self.pairs[pair].sides[1 - side].stage == Stage::Open {
            let reading = if is_full { Reading::Off } else { Reading::Stream };
            self.ring.read(self.id(pair, 1 - side), reading);
        }
    }

    /// Closes a side when all that is pending on it is sent.
    fn end(&mut self, pair: usize, side: usize) {
        let this = &mut self.pairs[pair].sides[side];
        if this.stage == Stage::Open {
            this.stage = Stage::Ending;
            self.flush(pair, side);
        }
    }

    fn close(&mut self, pair: usize, side: usize) {
        let id = self.id(pair, side);
        let this = &mut self.pairs[pair].sides[side];
        if matches!(this.stage, Stage::Open | Stage::Ending) {
            this.stage = Stage::Closing;
            self.ring.close(id);
        }
    }

    fn free_if_gone(&mut self, pair: usize) {
        if self.pairs[pair].is_gone() {
            self.free.push(u32::try_from(pair).expect("below room"));
            self.awaited -= usize::from(self.pairs[pair].is_awaited);
            self.give_up_place();
        }
    }

    fn give_up_place(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.bell.ring();
    }

    fn carry_out_orders(&mut self) {
        while let Ok(order) = self.inbox.try_recv() {
            match order {
                Order::Forward(client, address) => {
                    if self.forward(client, address).is_none() {
                        self.give_up_place();
                    }
                }
                Order::Break(broken, gone) => {
                    self.break_off(broken);
                    self.awaiting = Some(gone);
                }
                Order::Stop => self.is_stopped = true,
            }
        }
    }

    fn break_off(&mut self, broken: Broken) {
        for number in 0..self.pairs.len() {
            let pair = &mut self.pairs[number];
            if pair.is_gone() || broken == Broken::Unanswered && pair.is_answered {
                continue;
            }
            self.awaited += usize::from(!pair.is_awaited);
            pair.is_awaited = true;
            self.close(number, CLIENT);
            self.close(number, SERVER);
        }
    }

    fn tell_if_gone(&mut self) {
        if self.awaited == 0
            && let Some(gone) = self.awaiting.take()
        {
            // Whoever wanted to know may have lost patience.
            let _ = gone.send(());
        }
    }

    /// Connects a client to the present server. Nothing, and the client is closed, if that can't be
    /// done; a server that isn't there closes it later.
    fn forward(&mut self, client: OwnedFd, address: SocketAddr) -> Option<()> {
        let target = self.switchboard.target()?;
        let server = self.dial(target)?;
        // A connection made while the target changed could lead to either.
        if self.switchboard.target() != Some(target) {
            return None;
        }
        self.switchboard.routes.note(address, target.server);
        let pair = self.take_pair();
        let generation = self.pairs[pair].generation.wrapping_add(1);
        self.pairs[pair] = Pair { generation, ..Pair::default() };
        for (side, socket) in [(CLIENT, client), (SERVER, server)] {
            let id = self.id(pair, side);
            if self.ring.attach(id, socket).is_err() {
                // The other one is closed, or was never there.
                self.close(pair, CLIENT);
                if self.pairs[pair].is_gone() {
                    self.free.push(u32::try_from(pair).expect("below room"));
                    return None;
                }
                return Some(());
            }
            self.pairs[pair].sides[side].stage = Stage::Open;
            self.ring.read(id, Reading::Stream);
        }
        Some(())
    }

    fn dial(&mut self, target: Target) -> Option<OwnedFd> {
        let Share { number, of, room } = self.share;
        let new = || Source::new(target.address, room * of).of_worker(number, of);
        let source = self.source.get_or_insert_with(new);
        source.lead_to(target.address);
        source.connect(None).ok()
    }

    /// A pair that is gone, or a new one. There is one, as room was taken for it.
    fn take_pair(&mut self) -> usize {
        match self.free.pop() {
            Some(pair) => pair as usize,
            None => {
                assert!(self.pairs.len() < self.share.room as usize, "more connections than room");
                self.pairs.push(Pair::default());
                self.pairs.len() - 1
            }
        }
    }

    fn id(&self, pair: usize, side: usize) -> ConnectionId {
        let index = u32::try_from(2 * pair + side).expect("below the ring's slots");
        ConnectionId { index, generation: self.pairs[pair].generation }
    }
}

fn place_of(id: ConnectionId) -> (usize, usize) {
    let index = id.index as usize;
    (index / 2, index % 2)
}
