//! What can be seen from outside: the wire on the server's side of the network, what the process
//! reports about ownership, and what is done to it.

use monolock_core::effect::ReleaseReason;
use monolock_core::fencing::Token;
use monolock_core::shard_map::ShardMap;
use monolock_core::time::UnixTime;

/// A connection, numbered in the order in which they were begun.
pub(crate) type Connection = usize;

/// One of the server's event loops.
pub(crate) type Shard = usize;

/// How a connection comes to its end as the server learns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer has closed it, or its own direction of it.
    Closed,
    /// The peer has broken it off.
    Reset,
    /// The kernel got no answer for too long.
    GaveUp,
}

/// What the server counts at the end of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    pub(crate) connections: usize,
    pub(crate) unclaimed: usize,
    pub(crate) locks_held: usize,
    pub(crate) waiters: usize,
}

impl Gauges {
    /// Those of two event loops together.
    pub(crate) fn plus(self, other: Gauges) -> Gauges {
        Gauges {
            connections: self.connections + other.connections,
            unclaimed: self.unclaimed + other.unclaimed,
            locks_held: self.locks_held + other.locks_held,
            waiters: self.waiters + other.waiters,
        }
    }
}

/// What is left in a server when everybody is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    pub(crate) gauges: Gauges,
    pub(crate) places_taken: usize,
    pub(crate) sessions: usize,
    pub(crate) locks: usize,
    pub(crate) has_deadline: bool,
}

impl Remains {
    pub(crate) fn plus(self, other: Remains) -> Remains {
        Remains {
            gauges: self.gauges.plus(other.gauges),
            places_taken: self.places_taken + other.places_taken,
            sessions: self.sessions + other.sessions,
            locks: self.locks + other.locks,
            has_deadline: self.has_deadline || other.has_deadline,
        }
    }
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// The acceptor has taken the connection.
    Dealt(Connection),
    /// A shard has taken the connection.
    Accepted(Connection, Shard),
    /// A shard had a place for the connection and has none.
    HasNoPlace(Connection),
    /// The connection's lock belongs to another shard, in which there is no place for it.
    WaitsForPlace(Connection),
    /// There is one, and its socket is being taken out of the ring.
    Leaves(Connection),
    /// It is on its way to another shard, in no table.
    Departed(Connection),
    /// A shard has taken it from another one.
    Adopted(Connection, Shard),
    /// So many bytes are there for the server to be read.
    Arrived(Connection, usize),
    /// That the peer is done is there to be read.
    ArrivedEnd(Connection),
    /// The server has read these bytes.
    Read(Connection, Vec<u8>),
    /// The server has learned that nothing more will come.
    ReadEnd(Connection, End),
    /// The server has given these bytes to the kernel.
    Submitted(Connection, Vec<u8>),
    /// The kernel has no room for all of them.
    Stuck(Connection),
    /// The kernel has taken all of them.
    Taken(Connection),
    /// The server has closed its direction.
    ShutdownWrite(Connection),
    /// The server has closed the connection.
    Closed(Connection),
    /// A client has read these bytes.
    ClientRead(Connection, Vec<u8>),
    /// A reset by the server has reached a client, and destroyed what it had not read; whether it
    /// was reading all the time.
    ClientReset {
        connection: Connection,
        attentive: bool,
    },
    /// The server reports that a lock is granted, at this wall clock.
    Granted {
        lock: String,
        connection: Connection,
        token: Token,
        clock: UnixTime,
    },
    /// The server reports that a lock is taken back.
    Released {
        lock: String,
        connection: Connection,
        token: Token,
        reason: ReleaseReason,
    },
    /// An administrator wanted a lock back, from the holder of this token if there is one, and was
    /// told whom it was taken from.
    ForceRelease {
        lock: String,
        token: Option<Token>,
        from: Option<Connection>,
    },
    /// An administrator wanted a waiter out, and was told whether it was there.
    Kick {
        lock: String,
        connection: Connection,
        done: bool,
    },
    /// A shard was told to end.
    Shutdown(Shard),
    /// The session of this connection is told so, if it is not over yet.
    ToldOfShutdown(Connection),
    /// The whole process is stopped, and goes on.
    Stopped,
    Continued,
    /// The process is gone, and another one begins, which spreads locks over its shards like this.
    Died,
    Started(ShardMap),
    /// An event loop has turned once. How many places each has for who comes from another one.
    TurnEnds {
        gauges: Gauges,
        places: Vec<u32>,
    },
    /// Everybody is gone, and nothing happens any more.
    AtRest(Remains),
}
