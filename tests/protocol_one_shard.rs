//! The topics of `protocol.rs` that don't wait for leases and timeouts, against a server with one
//! event loop: no claim moves there.

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
#[path = "protocol/names.rs"]
mod names;
#[path = "protocol/queue.rs"]
mod queue;
#[path = "protocol/subject.rs"]
mod subject;

use subject::{impatient_server, server, unique_name};

/// How many event loops our own server has.
const SHARDS: &str = "1";
