//! The Rust client of monolock, a lock server: hold a named lock while work runs.
//!
//! Start a server (`monolock`), and hold a lock:
//!
//! ```no_run
//! use monolock_client::{Client, Held};
//!
//! # async fn import(_: u64) -> std::io::Result<()> { Ok(()) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("127.0.0.1:7070")?;
//! client
//!     .lock("nightly/import")
//!     .run(|held: Held| async move {
//!         // Only one process at a time is here. What it writes carries the token.
//!         let token = held.token().map_err(std::io::Error::other)?;
//!         import(token.get()).await
//!     })
//!     .await??;
//! # Ok(())
//! # }
//! ```
//!
//! [`Lock::run`] waits its turn, runs the work, and releases when the work has ended, however it
//! ends: by returning, by an error, by a panic. The first `?` is the lock's, the second the work's.
//!
//! # What a lock can promise, and what the token is for
//!
//! A lock of this kind has a *lease*: a holder that is silent for so long loses it, or nobody could
//! ever have it after a crash. The client sends heartbeats from a thread of its own, stops before
//! the server does (after 0.8 of the lease without an answer), and counts on a clock that runs on
//! while the machine sleeps. And still a process can be paused between its look at the clock and
//! its next write. So each grant has a *fencing token*, larger than all before it, and what the
//! lock guards should refuse a write whose token is smaller than the largest that it has seen:
//! see [`Held::write`].
//!
//! # When the lock is lost
//!
//! - [`Held::stopping`] ends, [`Held::stop_reason`] says why, and [`Held::token`] fails.
//! - After a grace ([`Lock::stop_within`]) async work is dropped at its next `await`.
//! - [`Lock::run`] returns [`RunError::Lost`] with the [`Loss`], though the work may have returned
//!   success: part of it may have been done while somebody else held the lock.
//!
//! Nothing is ever acquired again behind the work's back.
//!
//! # Which call
//!
//! | to | call |
//! |---|---|
//! | wait as long as it takes | [`client.lock(name)`](Client::lock)[`.run(work)`](Lock::run) |
//! | do it only if nobody else does | [`.no_wait()`](Lock::no_wait) |
//! | wait for some time | [`.wait_at_most(limit)`](Lock::wait_at_most) |
//! | outlast a restart of the server in the queue | [`.retrying()`](Lock::retrying) |
//! | hold several locks, all or none | [`client.locks(names)`](Client::locks)`.run(work)` |
//! | be the leader whenever possible | [`.elect(lead)`](Lock::elect) |
//! | give others a turn | [`.hold_at_most(limit)`](Lock::hold_at_most) |
//! | do it without async | [`.run_blocking(work)`](Lock::run_blocking) |
//!
//! Only how to get the lock is ever tried again: work never runs twice by one call of `run`.
//!
//! | module | what it holds |
//! |---|---|
//! | `client`, `lock` | what a caller says |
//! | `held`, `failure`, `input` | what a caller gets: the hold, and what went wrong |
//! | `driver`, `acquisition`, `session` | the thread, one call's claims on it, one connection |
//! | `tenure` | what thread and work both know of locks that are held |
//! | `clock` | the clock, and timers on it |

#![forbid(unsafe_code)]

mod acquisition;
mod client;
mod clock;
mod driver;
mod failure;
mod held;
mod input;
mod lock;
mod session;
mod tenure;

pub use acquisition::Progress;
pub use client::Client;
pub use clock::sleep;
pub use failure::{AcquireError, Loss, RunError, ServerError, WriteError};
pub use held::{Handle, Held, HeldTogether, Written};
pub use input::InvalidInput;
pub use lock::Lock;
pub use monolock_core::fencing::Token;
pub use monolock_core::wire::{ErrorClass, ErrorCode};
pub use tenure::StopReason;
