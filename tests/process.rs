//! The server as a process: how it is told what to do, what it says, and how it ends.
//!
//! | file | topic |
//! |---|---|
//! | `configuration.rs` | flags, environment, defaults; what a bad value leads to |
//! | `startup.rs` | what can go wrong at start, and what a start must set up |
//! | `shutdown.rs` | SIGTERM and SIGINT, once and twice |
//! | `signals.rs` | the signals that don't end it |
//! | `logging.rs` | what goes to stderr, and that nobody must read it |
//! | `restart.rs` | SIGKILL, and the next process after it |
//! | `quiet.rs` | what must come about when nobody says anything |
//! | `refused_accepts.rs` | a kernel that refuses to accept for a while |
//! | `opt_in_limits.rs` | `--max-lease` and `--max-sessions-per-peer` |

mod harness;

#[path = "process/configuration.rs"]
mod configuration;
#[path = "process/logging.rs"]
mod logging;
#[path = "process/opt_in_limits.rs"]
mod opt_in_limits;
#[path = "process/quiet.rs"]
mod quiet;
#[path = "process/refused_accepts.rs"]
mod refused_accepts;
#[path = "process/restart.rs"]
mod restart;
#[path = "process/shutdown.rs"]
mod shutdown;
#[path = "process/signals.rs"]
mod signals;
#[path = "process/startup.rs"]
mod startup;
