//! Why an admin command has not done what it was asked for.

use std::io;

use thiserror::Error;

use crate::cli::exit_code;

#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error(
        "--admin-address: {0:?} is not an address: write HOST:PORT, such as 127.0.0.1:7071, \
         locks.example:7071 or [::1]:7071"
    )]
    BadAddress(String),
    #[error(
        "nobody listens on {0}. The admin port is off unless the server is started with \
         --admin-listen {0}; if it is elsewhere, say so by --admin-address or \
         MONOLOCK_ADMIN_ADDRESS"
    )]
    NobodyListens(String),
    #[error("cannot reach the admin API on {address}: {error}")]
    Unreachable { address: String, error: io::Error },
    #[error("no answer from {0} for 10 seconds: does the server hang, or is it no admin API?")]
    Silent(String),
    #[error("the answer from {0} broke off: ask again")]
    BrokenOff(String),
    #[error(
        "what answers on {address} is not the admin API of a lock server: {why}. The API is where \
         --admin-listen of the server says"
    )]
    Stranger { address: String, why: String },
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("{0}")]
    NotThere(String),
    #[error("{0}")]
    System(io::Error),
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl Failure {
    /// Says it, unless nobody wants to know any more, and gives the exit code.
    pub(super) fn report(&self) -> u8 {
        match self {
            // As with `| head`: who reads has enough.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Failure::NotThere(_) => {
                crate::cli::say(self);
                exit_code::NOT_THERE
            }
            _ => {
                crate::cli::say(self);
                exit_code::FAILED
            }
        }
    }
}
