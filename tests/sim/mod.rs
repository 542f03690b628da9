//! A world for the engine to live in, and a judge of what it does there.
//!
//! | module | what it holds |
//! |---|---|
//! | `draws` | random numbers: a stream of its own for each kind of draw |
//! | `workload` | what is drawn for a seed: sizes, times, what clients do, what goes wrong |
//! | `clock` | simulated time, up-time and wall clock |
//! | `network` | connections: delays, small buffers, cuts, half-closes, resets |
//! | `client` | one client after another at each place |
//! | `driver` | one event loop around an engine: what it does in a turn |
//! | `process` | the event loops of one process, the acceptor, and the messages between them |
//! | `lock_server` | what the driver uses of an engine; broken ones can stand in for it |
//! | `canary` | engines that are broken on purpose |
//! | `world` | all of it, one occasion after the other |
//! | `sighting` | what can be seen from outside |
//! | `frames` | the judge's own reading of the protocol |
//! | `invariants` | what must always hold |
//! | `auditor` | the judge: sees sightings, knows nothing of the engine |

pub(crate) mod auditor;
pub(crate) mod canary;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod draws;
pub(crate) mod driver;
pub(crate) mod frames;
pub(crate) mod invariants;
pub(crate) mod lock_server;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod sighting;
pub(crate) mod workload;
pub(crate) mod world;
