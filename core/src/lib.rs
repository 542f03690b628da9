//! The lock server as a pure state machine: what comes in is given to it together with the time,
//! what goes out is asked for. There are no sockets, clocks, threads or random numbers in here, so
//! the whole server can be simulated from a seed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wire`] | protocol v1: frames, limits, error codes |
//! | [`time`] | the moments that the caller gives |
//! | [`fencing`] | tokens and the mint they come from |
//! | [`session`] | one connection's claim on one lock, and the table of all of them |
//! | [`waiter_queue`] | the first-in-first-out queue of a lock |
//! | [`lease_heap`] | whose deadline comes next |
//! | [`lock_table`] | names to locks; an idle lock is forgotten |
//! | [`shard_map`] | which event loop owns which lock |
//! | [`places`] | how connections that move find room in another event loop |
//! | [`engine`] | all of it together: inputs in, effects out |
//! | [`effect`] | what the engine asks of its driver, and what it reports |
//! | [`duration`] | durations as flags take them |
//! | [`counts`], [`histogram`] | what the engine has counted |
//! | [`snapshot`] | read-only views of locks, queues and sessions |
//! | [`glob`] | patterns for names |
//! | [`claim`] | the client's half: heartbeats, giving up, what the server's frames mean |
//! | [`backoff`] | how long a client stays away before it tries again |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod backoff;
pub mod claim;
pub mod counts;
pub mod duration;
pub mod effect;
pub mod engine;
pub mod fencing;
pub mod glob;
pub mod histogram;
pub mod lease_heap;
pub mod lock_table;
pub mod places;
pub mod session;
pub mod shard_map;
pub mod snapshot;
pub mod time;
pub mod waiter_queue;
pub mod wire;

/// The end of an intrusive link, and the heap position of what is in no heap.
///
/// Links and positions are bare indexes without a generation: a session leaves its queue and the
/// heap before its place in the table is freed, which the engine asserts.
pub(crate) const NONE: u32 = u32::MAX;
