//! Connections between clients and the server: bytes take their time, buffers are small, and what a
//! kernel does about closed, reset and vanished peers is done here.

use std::collections::VecDeque;

use super::draws::Draws;
use super::sighting::{Connection, End};

/// What goes over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// A new connection.
    Syn,
    Bytes(Vec<u8>),
    /// Nothing more will be sent in this direction.
    Fin,
    Reset,
}

/// Who is to look after something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

/// What a server finds when it reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Bytes(Vec<u8>),
    End(End),
    Nothing,
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    /// With the time at which each arrives, in order.
    under_way: VecDeque<(u64, Segment)>,
    last_arrival: u64,
    /// What is there to be read.
    arrived: VecDeque<u8>,
    /// All that will ever come has arrived.
    at_end: bool,
}

/// What the sender of one end has done.
#[derive(Default)]
struct Socket {
    /// Its own direction is closed.
    shut: bool,
    /// Both are: what still comes is answered with a reset.
    closed: bool,
}

#[derive(Default)]
struct Link {
    delay: (u64, u64),
    /// Nothing gets through before this time.
    cut_until: u64,
    was_cut: bool,
    to_server: Direction,
    to_client: Direction,
    server: Socket,
    client: Socket,
    /// Since when the server has had something to read.
    readable_since: u64,
    /// How the connection broke, as the server's kernel knows it.
    broken: Option<End>,
    /// What the buffers of both kernels hold towards the client, and what did not fit.
    room: usize,
    held: usize,
    waiting: VecDeque<u8>,
    /// Whether the client reads what has arrived, and has done so all the time.
    reads: bool,
    always_read: bool,
}

/// All connections that there ever were.
pub(crate) struct Network {
    links: Vec<Link>,
    draws: Draws,
    /// When somebody has to look after a connection.
    due: Vec<(u64, Side, Connection)>,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Network {
        Network { links: Vec::new(), draws: Draws::named(seed, "network"), due: Vec::new() }
    }

    /// Arrivals that were not asked for yet.
    pub(crate) fn take_due(&mut self) -> Vec<(u64, Side, Connection)> {
        std::mem::take(&mut self.due)
    }

    /// The next segment on its way to that side, if it is there by now: a reset may have overtaken
    /// it.
    pub(crate) fn arrive(
        &mut self,
        side: Side,
        connection: Connection,
        now: u64,
    ) -> Option<Segment> {
        let link = &mut self.links[connection];
        let under_way = match side {
            Side::Server => &mut link.to_server.under_way,
            Side::Client => &mut link.to_client.under_way,
        };
        let is_there = under_way.front().is_some_and(|&(arrival, _)| arrival <= now);
        is_there.then(|| under_way.pop_front())?.map(|(_, segment)| segment)
    }

    fn send(&mut self, side: Side, connection: Connection, segment: Segment, now: u64) {
        let link = &mut self.links[connection];
        let delay = self.draws.between(link.delay.0..=link.delay.1);
        let arrival = (now + delay).max(link.cut_until + delay);
        let direction = match side {
            Side::Server => &mut link.to_server,
            Side::Client => &mut link.to_client,
        };
        if segment == Segment::Reset {
            // It overtakes what was lost on the way and will not be sent again.
            direction.under_way.retain(|&(earlier, _)| earlier < arrival);
            direction.last_arrival = arrival;
        } else {
            direction.last_arrival = direction.last_arrival.max(arrival);
        }
        direction.under_way.push_back((direction.last_arrival, segment));
        self.due.push((direction.last_arrival, side, connection));
    }

    /// Nothing gets through from now on until then.
    pub(crate) fn cut(&mut self, connection: Connection, until: u64) {
        let link = &mut self.links[connection];
        link.cut_until = link.cut_until.max(until);
        link.was_cut = true;
    }
}

/// The client's end.
impl Network {
    pub(crate) fn open(&mut self, delay: (u64, u64), room: usize, now: u64) -> Connection {
        let link = Link { delay, room, reads: true, always_read: true, ..Link::default() };
        self.links.push(link);
        let connection = self.links.len() - 1;
        self.send(Side::Server, connection, Segment::Syn, now);
        connection
    }

    pub(crate) fn client_send(&mut self, connection: Connection, bytes: Vec<u8>, now: u64) {
        let client = &self.links[connection].client;
        if !client.shut && !client.closed && !bytes.is_empty() {
            self.send(Side::Server, connection, Segment::Bytes(bytes), now);
        }
    }

    pub(crate) fn client_shut(&mut self, connection: Connection, now: u64) {
        let client = &mut self.links[connection].client;
        if !std::mem::replace(&mut client.shut, true) && !client.closed {
            self.send(Side::Server, connection, Segment::Fin, now);
        }
    }

    /// What the client has not read makes a reset of the close.
    pub(crate) fn client_close(&mut self, connection: Connection, now: u64) {
        if !self.links[connection].to_client.arrived.is_empty() {
            return self.client_reset(connection, now);
        }
        self.client_shut(connection, now);
        self.links[connection].client.closed = true;
    }

    pub(crate) fn client_reset(&mut self, connection: Connection, now: u64) {
        if !std::mem::replace(&mut self.links[connection].client.closed, true) {
            self.send(Side::Server, connection, Segment::Reset, now);
        }
    }

    /// A client that goes on reading finds what has arrived meanwhile.
    pub(crate) fn set_reads(&mut self, connection: Connection, reads: bool) {
        let link = &mut self.links[connection];
        link.reads = reads;
        link.always_read &= reads;
    }

    /// What the client reads now, and whether the server's direction is at its end.
    pub(crate) fn client_read(&mut self, connection: Connection) -> (Vec<u8>, bool) {
        let link = &mut self.links[connection];
        if !link.reads || link.client.closed {
            return (Vec::new(), false);
        }
        let bytes: Vec<u8> = link.to_client.arrived.drain(..).collect();
        (bytes, link.to_client.at_end)
    }

    /// There is room for what the client has read, and more is taken from the server: whether all
    /// of it is taken by that.
    pub(crate) fn make_room(&mut self, connection: Connection, len: usize, now: u64) -> bool {
        let link = &mut self.links[connection];
        link.held -= len;
        let was_stuck = !link.waiting.is_empty();
        self.take(connection, now);
        was_stuck && self.links[connection].waiting.is_empty()
    }

    /// Bytes, or the end of the stream, have reached the client.
    pub(crate) fn deliver(&mut self, connection: Connection, segment: &Segment, now: u64) {
        let link = &mut self.links[connection];
        match segment {
            // Nobody is there any more to read it.
            Segment::Bytes(_) if link.client.closed => {
                self.send(Side::Server, connection, Segment::Reset, now);
            }
            Segment::Bytes(bytes) => link.to_client.arrived.extend(bytes),
            Segment::Fin => link.to_client.at_end = true,
            Segment::Reset => {
                link.to_client.arrived.clear();
                link.to_client.under_way.clear();
                link.client.closed = true;
            }
            Segment::Syn => unreachable!("clients connect"),
        }
    }

    /// Whether nothing ever kept the client from reading.
    pub(crate) fn is_attentive(&self, connection: Connection) -> bool {
        let link = &self.links[connection];
        link.always_read && !link.was_cut && !link.client.closed
    }

    pub(crate) fn client_is_open(&self, connection: Connection) -> bool {
        !self.links[connection].client.closed
    }
}

/// The server's end.
impl Network {
    /// Something has reached the server: whether there is something new to be read.
    pub(crate) fn reach(&mut self, connection: Connection, segment: Segment, now: u64) -> bool {
        let link = &mut self.links[connection];
        if link.server.closed || link.broken.is_some() {
            if matches!(segment, Segment::Bytes(_)) && link.broken != Some(End::Reset) {
                self.send(Side::Client, connection, Segment::Reset, now);
            }
            return false;
        }
        if !link.is_readable() {
            link.readable_since = now;
        }
        match segment {
            Segment::Bytes(bytes) => link.to_server.arrived.extend(bytes),
            Segment::Fin => link.to_server.at_end = true,
            Segment::Reset => {
                link.broken = Some(End::Reset);
                link.waiting.clear();
            }
            Segment::Syn => unreachable!("the backlog takes it"),
        }
        true
    }

    /// Nobody listens, or nobody is there any more: the client is told so.
    pub(crate) fn refuse(&mut self, connection: Connection, now: u64) {
        self.links[connection].server.closed = true;
        self.send(Side::Client, connection, Segment::Reset, now);
    }

    /// The server's kernel has waited for too long: whether it had still hoped.
    pub(crate) fn give_up(&mut self, connection: Connection, now: u64) -> bool {
        let link = &mut self.links[connection];
        let hoped = !link.server.closed && link.broken.is_none();
        if hoped {
            if !link.is_readable() {
                link.readable_since = now;
            }
            link.broken = Some(End::GaveUp);
            link.waiting.clear();
        }
        hoped
    }

    /// Since when there has been something to read, if there is.
    pub(crate) fn readable_since(&self, connection: Connection) -> Option<u64> {
        let link = &self.links[connection];
        link.is_readable().then_some(link.readable_since)
    }

    /// How many bytes are there to be read.
    pub(crate) fn readable_len(&self, connection: Connection) -> usize {
        self.links[connection].to_server.arrived.len()
    }

    /// Reads without waiting, at most so many bytes. What had arrived goes before the end.
    pub(crate) fn read(&mut self, connection: Connection, len_max: usize) -> Input {
        let link = &mut self.links[connection];
        let arrived = &mut link.to_server.arrived;
        if !arrived.is_empty() {
            return Input::Bytes(arrived.drain(..len_max.min(arrived.len())).collect());
        }
        match link.broken {
            Some(end) => Input::End(end),
            None if link.to_server.at_end => Input::End(End::Closed),
            None => Input::Nothing,
        }
    }

    /// How the connection is broken, for who writes to it.
    pub(crate) fn broken(&self, connection: Connection) -> Option<End> {
        self.links[connection].broken
    }

    /// Takes bytes from the server: whether there was room for all of them.
    pub(crate) fn submit(&mut self, connection: Connection, bytes: &[u8], now: u64) -> bool {
        let link = &mut self.links[connection];
        assert!(link.waiting.is_empty(), "one send at a time");
        assert!(!link.server.shut && !link.server.closed, "nothing is sent after the end");
        if link.broken.is_some() {
            return false;
        }
        link.waiting.extend(bytes);
        self.take(connection, now);
        self.links[connection].waiting.is_empty()
    }

    fn take(&mut self, connection: Connection, now: u64) {
        let link = &mut self.links[connection];
        let len = link.waiting.len().min(link.room - link.held);
        if len > 0 && !link.server.closed {
            let bytes = link.waiting.drain(..len).collect();
            link.held += len;
            self.send(Side::Client, connection, Segment::Bytes(bytes), now);
        }
    }

    pub(crate) fn shutdown_write(&mut self, connection: Connection, now: u64) {
        if !std::mem::replace(&mut self.links[connection].server.shut, true) {
            self.send(Side::Client, connection, Segment::Fin, now);
        }
    }

    /// What the server has not read makes a reset of the close.
    pub(crate) fn close(&mut self, connection: Connection, now: u64) {
        let link = &mut self.links[connection];
        link.waiting.clear();
        if std::mem::replace(&mut link.server.closed, true) || link.broken.is_some() {
            return;
        }
        if !link.to_server.arrived.is_empty() {
            self.send(Side::Client, connection, Segment::Reset, now);
        } else if !link.server.shut {
            self.send(Side::Client, connection, Segment::Fin, now);
        }
    }
}

impl Link {
    fn is_readable(&self) -> bool {
        !self.to_server.arrived.is_empty() || self.to_server.at_end || self.broken.is_some()
    }
}
