//! The mechanics of an io_uring event loop for many small connections, and nothing of locks.
//!
//! One [`Ring`] belongs to one thread. The caller attaches sockets, asks for reads and sends, and
//! in turns calls [`Ring::wait`] and drains [`Ring::next_event`]:
//!
//! ```no_run
//! # use monolock_ring::{Config, ConnectionId, Event, Reading, Ring};
//! # fn socket() -> std::os::fd::OwnedFd { unimplemented!() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut ring = Ring::new(&Config::default())?;
//! let id = ConnectionId { index: 0, generation: 1 };
//! ring.attach(id, socket())?;
//! ring.read(id, Reading::Stream);
//! loop {
//!     ring.wait(None)?;
//!     while let Some(event) = ring.next_event() {
//!         match event {
//!             Event::Received { id, bytes } => println!("{id:?} sent {} bytes", bytes.len()),
//!             Event::EndOfStream { id } => ring.close(id),
//!             _ => {}
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! Nothing is called back: completions are first reaped into a list and handed out afterwards, so
//! that an event can be answered with any call on the ring.
//!
//! # Contents
//!
//! | file | idea |
//! |---|---|
//! | `ring` | the turn: submit, wait, reap, hand out |
//! | `requests` | what the caller asks of a connection, from attaching it to closing it |
//! | `connection` | the record of 16 bytes that a connection costs, and its table |
//! | `event` | what is handed out |
//! | `operation` | kernel operations and the `user_data` that names them |
//! | `queues` | submission and completion queue; a full one loses nothing |
//! | `buffers` | receive buffers, lent to the kernel |
//! | `arrivals` | when bytes arrived, where that is wanted |
//! | `send_pool` | send buffers, held while a send is in flight |
//! | `mapping` | memory that the kernel reads and writes too |
//! | `descriptors` | the limit of descriptors, and so of a ring's connections |
//! | `acceptor` | accepting connections on a thread of its own |
//! | `waker` | wake-ups from other threads |
//! | `setup` | what the kernel must offer, and what to tell the operator if it doesn't |
//!
//! # Three things the kernel taught
//!
//! - A slot is reused only after the last completion of its former user, so a completion always
//!   finds the generation that it was made for. Closing therefore cancels, waits, and only then
//!   takes the socket out of the file table: a socket closed under an armed receive stays open.
//! - A multishot receive ends at once when there is no buffer, even without data. It is armed again
//!   only after buffers came back, or the loop would spin.
//! - With deferred task running an empty completion queue doesn't mean that nothing happened; see
//!   [`Ring::is_settled`].

// The kernel works on memory that the compiler can't see it touch. All of the workspace's unsafe
// code is here, so that the other crates can do without.
#![allow(unsafe_code)]

mod acceptor;
mod arrivals;
mod buffers;
mod connection;
mod descriptors;
mod event;
mod mapping;
mod operation;
mod queues;
mod requests;
mod ring;
mod send_pool;
mod setup;
mod waker;

pub use acceptor::{Acceptor, Bell, Dealer};
pub use connection::{ConnectionId, Reading};
pub use descriptors::raise_descriptor_limit;
pub use event::{Errno, Event, Socket};
pub use ring::Ring;
pub use send_pool::SEND_LEN;
pub use setup::{Config, SetupError};
pub use waker::Waker;
