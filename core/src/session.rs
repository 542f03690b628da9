//! One connection's claim on one lock, and the table of all of them.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU32;
use core::ops::{Index, IndexMut};

use slab::Slab;

use crate::NONE;
use crate::fencing::Token;
use crate::lease_heap::HeapPositions;
use crate::time::Instant;
use crate::waiter_queue::{Links, QueueLinks};
use crate::wire::Farewell;

/// Names a session for as long as it lives, and none after it: a place in the table is used again,
/// the generation is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// The place in the table.
    pub index: u32,
    /// Which of the successive users of that place. The count wraps after 2^32 connections; an id
    /// would have to be kept for days to meet its double.
    pub generation: u32,
}

/// A peer's address and port in 18 bytes; IPv4 is kept mapped into IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    ip: [u8; 16],
    port: u16,
}

impl PeerAddress {
    /// The address without the port, an IPv4 address as one.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.ip).to_canonical()
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> PeerAddress {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        PeerAddress { ip: ip.octets(), port: address.port() }
    }
}

impl From<PeerAddress> for SocketAddr {
    fn from(address: PeerAddress) -> SocketAddr {
        SocketAddr::new(address.ip(), address.port)
    }
}

/// `a.b.c.d:port`, or `[addr]:port`; also for IPv4 on a dual-stack socket.
impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a session stands with its lock. ACQUIRED never returns to WAITING.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// The ACQUIRE has not come yet, or only a part of it.
    Connected,
    /// Its lock belongs to another event loop, and so will the connection.
    Moving,
    /// In the queue.
    Waiting(Links),
    /// Holds the lock, or held it until it was ended.
    Acquired(PackedToken),
}

/// A token in bytes, which need no alignment: so a session fits into a cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedToken([u8; 8]);

impl From<Token> for PackedToken {
    fn from(token: Token) -> PackedToken {
        PackedToken(token.get().to_ne_bytes())
    }
}

impl From<PackedToken> for Token {
    fn from(PackedToken(bytes): PackedToken) -> Token {
        Token::new(u64::from_ne_bytes(bytes)).expect("packed from a token")
    }
}

/// How far a session is on its way from its first byte to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Alive.
    Open,
    /// Alive, but its deadline has come: the driver was asked to read once more before that is
    /// taken for passed.
    Probing,
    /// Alive, but its answers are stuck: it is not read from, and the write has a deadline.
    Blocked,
    /// A holder whose peer the kernel gave up on. Nobody has closed the connection, so the lock is
    /// the peer's until the lease ends.
    Unreachable,
    /// Alive. There is a place for it in another event loop, and its socket is being taken out of
    /// this one's ring.
    Leaving,
    /// Ended. Answers, and an ERROR if there is one, are still to be sent.
    Finishing,
    /// Ended, and the ERROR is being sent.
    FarewellSent,
    /// Ended, all is sent. What the peer still sends is read away, so that no reset overtakes the
    /// ERROR.
    Draining,
    /// The driver was told to close the connection.
    Closed,
}

impl Phase {
    /// Whether the session still is a claim.
    pub(crate) const fn is_alive(self) -> bool {
        matches!(
            self,
            Phase::Open | Phase::Probing | Phase::Blocked | Phase::Unreachable | Phase::Leaving
        )
    }
}

/// What is under way with a session's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Nothing.
    Idle,
    /// The driver has been asked to come for them.
    Asked,
    /// The driver has some of them and has not said that they are sent.
    Sending,
}

/// One connection, in one cache line: among a million, that is what a heartbeat has to wait for.
/// Its size is also what an idle session costs, so fields are shared where their times don't
/// overlap.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Session {
    pub(crate) generation: u32,
    pub(crate) peer: PeerAddress,
    pub(crate) phase: Phase,
    pub(crate) output: Output,
    /// The peer will send nothing more.
    pub(crate) hung_up: bool,
    pub(crate) farewell: Option<Farewell>,
    pub(crate) standing: Standing,
    /// The lock's place in the lock table; of a connected session, that of its partial first frame;
    /// of a moving one, that of what is known of its claim.
    pub(crate) lock_or_frame: u32,
    pub(crate) lease_ms: u32,
    /// When the lease was last restarted.
    pub(crate) last_seen: Instant,
    /// When it connected, was queued, or was granted the lock, whichever was last.
    pub(crate) since: Instant,
    /// How often its standing is still to be told; while draining, the bytes read away so far.
    pub(crate) owed: u32,
}

const _: () = assert!(size_of::<Session>() == 64, "what an idle session costs");
const _: () = assert!(size_of::<Option<Session>>() == 64, "a place in the slab costs no more");

impl Session {
    pub(crate) fn new(peer: PeerAddress, now: Instant) -> Session {
        Session {
            generation: 0,
            peer,
            phase: Phase::Open,
            output: Output::Idle,
            hung_up: false,
            farewell: None,
            standing: Standing::Connected,
            lock_or_frame: NONE,
            lease_ms: 0,
            last_seen: now,
            since: now,
            owed: 0,
        }
    }

    pub(crate) fn lease_end(&self) -> Instant {
        self.last_seen.after_ms(self.lease_ms)
    }

    /// Whether its ACQUIRE has come.
    pub(crate) const fn is_claim(&self) -> bool {
        !matches!(self.standing, Standing::Connected)
    }

    pub(crate) fn token(&self) -> Option<Token> {
        match self.standing {
            Standing::Acquired(token) => Some(token.into()),
            Standing::Connected | Standing::Moving | Standing::Waiting(_) => None,
        }
    }

    pub(crate) fn begin_claim(&mut self, lock: u32, lease_ms: NonZeroU32, now: Instant) {
        self.lock_or_frame = lock;
        self.lease_ms = lease_ms.get();
        self.last_seen = now;
        self.since = now;
        self.standing = Standing::Waiting(Links::UNLINKED);
    }
}

/// All sessions of one event loop, each at a place of its own that it keeps.
#[derive(Debug)]
pub(crate) struct SessionTable {
    sessions: Slab<Session>,
    /// By place. Apart from the sessions, because one that moves in the heap moves ten others at a
    /// million, of which nothing else is needed: this way they stay in the cache.
    heap_positions: Vec<u32>,
    generation: u32,
    sessions_max: usize,
}

impl SessionTable {
    /// Room for `sessions_max`; memory is touched only as places are used.
    pub(crate) fn new(sessions_max: u32) -> SessionTable {
        let sessions_max = sessions_max as usize;
        SessionTable {
            sessions: Slab::with_capacity(sessions_max),
            heap_positions: Vec::with_capacity(sessions_max),
            generation: 0,
            sessions_max,
        }
    }

    pub(crate) fn insert(&mut self, mut session: Session) -> Option<SessionId> {
        if self.sessions.len() == self.sessions_max {
            return None;
        }
        self.generation = self.generation.wrapping_add(1);
        session.generation = self.generation;
        let place = self.sessions.insert(session);
        if place == self.heap_positions.len() {
            self.heap_positions.push(NONE);
        }
        let index = u32::try_from(place).expect("sessions_max is a u32");
        Some(SessionId { index, generation: self.generation })
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        let session = self.sessions.get(id.index as usize)?;
        (session.generation == id.generation).then_some(session)
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.sessions.get_mut(id.index as usize)?;
        (session.generation == id.generation).then_some(session)
    }

    pub(crate) fn at(&self, index: u32) -> Option<&Session> {
        self.sessions.get(index as usize)
    }

    /// Places that may be in use are below this one.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.heap_positions.len()).expect("no more than sessions_max")
    }

    pub(crate) fn id(&self, index: u32) -> SessionId {
        SessionId { index, generation: self[index].generation }
    }

    pub(crate) fn remove(&mut self, index: u32) -> Session {
        assert_eq!(self.heap_positions[index as usize], NONE, "who is forgotten has no deadline");
        self.sessions.remove(index as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }
}

impl Index<u32> for SessionTable {
    type Output = Session;

    fn index(&self, index: u32) -> &Session {
        &self.sessions[index as usize]
    }
}

impl IndexMut<u32> for SessionTable {
    fn index_mut(&mut self, index: u32) -> &mut Session {
        &mut self.sessions[index as usize]
    }
}

impl QueueLinks for SessionTable {
    fn links(&mut self, index: u32) -> &mut Links {
        match &mut self[index].standing {
            Standing::Waiting(links) => links,
            standing => panic!("only waiters stand in a queue, not {standing:?}"),
        }
    }
}

impl HeapPositions for SessionTable {
    fn heap_position(&mut self, index: u32) -> &mut u32 {
        &mut self.heap_positions[index as usize]
    }
}
