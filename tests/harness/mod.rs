//! What the black-box suites stand on: the real binary as a process, a client that speaks raw
//! bytes, and what the kernel tells about both.
//!
//! Nothing here uses the server's own crates. The encoder and the decoder are written from the
//! protocol's description, so that a mistake in the server's can't hide behind the same mistake in
//! the tests'.
#![allow(
    dead_code,
    reason = "each suite is a crate of its own and uses its own part of this module"
)]

pub(crate) mod bystanders;
pub(crate) mod client;
pub(crate) mod crowd;
pub(crate) mod http;
pub(crate) mod outside;
pub(crate) mod own_port;
pub(crate) mod patience;
pub(crate) mod procfs;
pub(crate) mod server;
pub(crate) mod wire;
