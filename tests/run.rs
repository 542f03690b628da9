//! `monolock run` as a process: what the command sees, how it ends, and what the exit code says.
//!
//! | file | topic |
//! |---|---|
//! | `command.rs` | the command's environment, streams and exit code; usage |
//! | `waiting.rs` | the queue, and a server that is not there |
//! | `signals.rs` | what is passed on, and to whom |
//! | `losing.rs` | a loss, a wrapper that is killed or stopped, `--max-hold` |
//! | `terminal.rs` | keys, Ctrl-Z and job control in a shell |

mod harness;

#[path = "run/command.rs"]
mod command;
#[path = "run/losing.rs"]
mod losing;
#[path = "run/signals.rs"]
mod signals;
#[path = "run/terminal.rs"]
mod terminal;
#[path = "run/waiting.rs"]
mod waiting;
#[path = "run/wrapper.rs"]
mod wrapper;
