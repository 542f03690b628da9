//! What is judged of servers that take over from each other: whether tokens grow from one to the
//! next, and for how long holders of the one and the other both believed that they hold a lock.
//!
//! Two holders of two servers break no promise: a lease can't reach into a holder that is cut off.
//! Tokens are what orders them. So overlaps are counted and timed, and a token that doesn't grow is
//! the verdict.

use monolock_core::fencing::Token;
use monolock_core::time::Instant;

use crate::checker::Who;

/// Servers whose newest grant of a lock is remembered one by one; what older ones granted is
/// remembered as if the last of them had granted it all.
const NEWEST_MAX: usize = 3;

/// A grant, with what is known of when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The lock, by its number in this thread.
    pub lock: u32,
    /// Who holds it.
    pub who: Who,
    /// The server, counted from 0.
    pub server: u32,
    /// Its token.
    pub token: Token,
    /// It was made after this: when the session had asked, or was told to wait.
    pub not_before: Instant,
    /// When it was read: it was made before.
    pub read_at: Instant,
}

/// Two holders of one lock, of different servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// When the later one was granted it.
    pub since: Instant,
    /// When the first of them no longer believed that it holds it.
    pub until: Instant,
}

/// What was seen of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTokens {
    /// How many it has granted.
    pub grants: u64,
    /// The smallest and the largest, of all locks.
    pub range: Option<(Token, Token)>,
    /// Tokens below one that an earlier server had surely granted before, for the same lock.
    pub behind: u64,
    /// When the last of those was read.
    pub behind_until: Option<Instant>,
    /// Tokens since then that were above all of those.
    pub grown_since: u64,
}

impl ServerTokens {
    /// Takes in what another thread has seen of the same server.
    pub fn add(&mut self, other: &ServerTokens) {
        self.grants += other.grants;
        self.behind += other.behind;
        self.behind_until = self.behind_until.max(other.behind_until);
        self.grown_since += other.grown_since;
        self.range = match (self.range, other.range) {
            (Some((low, high)), Some((other_low, other_high))) => {
                Some((low.min(other_low), high.max(other_high)))
            }
            (range, None) | (None, range) => range,
        };
    }
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    server: u32,
    token: Token,
    read_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Believer {
    who: Who,
    server: u32,
    since: Instant,
}

#[derive(Debug, Default)]
struct LockHistory {
    /// The largest token of each of the last servers, in their order.
    newest: Vec<Newest>,
    /// Who believes to hold it.
    believers: Vec<Believer>,
}

/// The locks of one thread.
#[derive(Debug)]
pub struct Succession {
    locks: Vec<LockHistory>,
    overlaps: Vec<Overlap>,
    servers: Vec<ServerTokens>,
}

impl Succession {
    /// Nothing has been granted.
    pub fn new(locks: u32) -> Succession {
        Succession {
            locks: (0..locks).map(|_| LockHistory::default()).collect(),
            overlaps: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// A grant was read. Returns what is wrong with its token, if it is one that another server has
    /// surely gone beyond before.
    pub fn granted(&mut self, grant: Grant) -> Option<String> {
        let Grant { lock, who, server, token, not_before, read_at } = grant;
        let history = &mut self.locks[lock as usize];
        history.believers.push(Believer { who, server, since: read_at });
        let elder = history
            .newest
            .iter()
            .filter(|other| other.server != server && other.read_at <= not_before)
            .max_by_key(|other| other.token)
            .copied();
        history.note(Newest { server, token, read_at });
        let place = server as usize;
        if self.servers.len() <= place {
            self.servers.resize(place + 1, ServerTokens::default());
        }
        let seen = &mut self.servers[place];
        seen.grants += 1;
        let (low, high) = seen.range.unwrap_or((token, token));
        seen.range = Some((low.min(token), high.max(token)));
        match elder {
            Some(elder) if token <= elder.token => {
                seen.behind += 1;
                seen.behind_until = Some(read_at);
                seen.grown_since = 0;
                Some(format!(
                    "lock {lock}: server {server} granted token {token} after server {} had \
                     granted token {}",
                    elder.server, elder.token
                ))
            }
            Some(_) => {
                seen.grown_since += 1;
                None
            }
            None => None,
        }
    }

    /// A session no longer believes, from this moment on, that it holds a lock; or it never did.
    pub fn left(&mut self, lock: u32, who: Who, believed_until: Instant) {
        let believers = &mut self.locks[lock as usize].believers;
        let Some(place) = believers.iter().position(|believer| believer.who == who) else {
            return;
        };
        let gone = believers.swap_remove(place);
        for other in believers.iter().filter(|other| other.server != gone.server) {
            let since = gone.since.max(other.since);
            if since < believed_until {
                self.overlaps.push(Overlap { since, until: believed_until });
            }
        }
    }

    /// Ends all beliefs: it is not looked any further.
    pub fn finish(&mut self, now: Instant) {
        for lock in 0..self.locks.len() {
            while let Some(last) = self.locks[lock].believers.last() {
                let who = last.who;
                self.left(u32::try_from(lock).expect("it was made from a u32"), who, now);
            }
        }
    }

    /// Takes the overlaps that have come to their end.
    pub fn take_overlaps(&mut self) -> Vec<Overlap> {
        std::mem::take(&mut self.overlaps)
    }

    /// What was seen of each server.
    pub fn servers(&self) -> &[ServerTokens] {
        &self.servers
    }
}

impl LockHistory {
    fn note(&mut self, grant: Newest) {
        match self.newest.iter_mut().find(|known| known.server == grant.server) {
            Some(known) if known.token < grant.token => *known = grant,
            Some(_) => {}
            None => self.newest.push(grant),
        }
        if self.newest.len() > NEWEST_MAX {
            let oldest = self.newest.remove(0);
            let next = &mut self.newest[0];
            next.token = next.token.max(oldest.token);
            next.read_at = next.read_at.max(oldest.read_at);
        }
    }
}
