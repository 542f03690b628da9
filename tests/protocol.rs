//! The wire protocol, byte by byte, against any server that speaks version 1.
//!
//! By default the server is the real binary of this package. `MONOLOCK_TEST_ADDR=HOST:PORT` names
//! another one that runs already; what it was told as the io-timeout goes into
//! `MONOLOCK_TEST_IO_TIMEOUT_MS` (5000 if not set). Nothing here depends on anything else of the
//! server's: each test uses lock names that no other test and no other run uses.
//!
//! | file | topic |
//! |---|---|
//! | `grants.rs` | who gets a lock, and with which token |
//! | `queue.rs` | first in, first out; promotion as a push; leaving the queue |
//! | `leases.rs` | silence ends a session, and nothing else of the kind does |
//! | `heartbeats.rs` | one answer each, in order |
//! | `framing.rs` | frames split and glued at every byte |
//! | `errors.rs` | each ERROR, at the byte where it is due |
//! | `farewell.rs` | an ERROR reaches its client; what an erring client can't do |
//! | `names.rs` | what is a name, and which names are the same |
//! | `stalled_peers.rs` | peers that don't finish a frame or don't read |
//!
//! Our own server has several event loops here, so that most claims move. `protocol_one_shard.rs`
//! runs the topics that take no time once more, with one.

mod harness;

#[path = "protocol/errors.rs"]
mod errors;
#[path = "protocol/farewell.rs"]
mod farewell;
#[path = "protocol/framing.rs"]
mod framing;
#[path = "protocol/grants.rs"]
mod grants;
#[path = "protocol/heartbeats.rs"]
mod heartbeats;
#[path = "protocol/leases.rs"]
mod leases;
#[path = "protocol/names.rs"]
mod names;
#[path = "protocol/queue.rs"]
mod queue;
#[path = "protocol/stalled_peers.rs"]
mod stalled_peers;
#[path = "protocol/subject.rs"]
mod subject;

use subject::{impatient_server, server, unique_name};

/// How many event loops our own server has.
const SHARDS: &str = "3";
