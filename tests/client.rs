//! The Rust client against the real server, and against servers that don't keep to the protocol.
//!
//! | file | topic |
//! |---|---|
//! | `acquiring.rs` | waiting, not waiting, trying again, what is refused before a dial |
//! | `running.rs` | work under a lock: how it ends, and what is said of it |
//! | `together.rs` | several locks at once |
//! | `electing.rs` | terms of a leader |
//! | `losing.rs` | everything that takes a lock away |
//! | `processes.rs` | clients that are stopped and killed |
//! | `handovers.rs` | many clients on one lock |

mod harness;

#[path = "client/acquiring.rs"]
mod acquiring;
#[path = "client/electing.rs"]
mod electing;
#[path = "client/handovers.rs"]
mod handovers;
#[path = "client/losing.rs"]
mod losing;
#[path = "client/processes.rs"]
mod processes;
#[path = "client/running.rs"]
mod running;
#[path = "client/scripted.rs"]
mod scripted;
#[path = "client/together.rs"]
mod together;
