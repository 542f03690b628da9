//! Why a lock was not acquired, why it was lost, and what that means for the work.

use std::fmt;
use std::sync::Arc;

use monolock_core::claim;
use monolock_core::wire::{ErrorClass, ErrorCode};
use thiserror::Error;

use crate::input::InvalidInput;

/// An ERROR of the server. Programs go by the code; the reason is for people.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("ERROR {code} {reason:?}")]
pub struct ServerError {
    /// What was wrong, for programs. [`ErrorCode::class`] says whether trying again can help.
    pub code: ErrorCode,
    /// The same for people, as the server put it: any text.
    pub reason: String,
}

/// Why a claim ended that had been made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing was confirmed for 0.8 of the lease: the network was silent, or this process didn't
    /// run. The server may be about to give the lock to the next.
    #[error("nothing was confirmed in time: the lease is running out")]
    Expired,
    /// A condition at the server, such as its shutdown.
    #[error("the server ended the claim: {0}")]
    Server(ServerError),
    /// An administrator released the lock by force, or removed the waiter.
    #[error("an administrator ended the claim: {0}")]
    Administrator(ServerError),
    /// The connection was closed or broke.
    #[error("the connection was lost: {0}")]
    Network(Arc<str>),
    /// The server said what no version 1 server says at this point, or accuses this client of the
    /// same.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(Arc<str>),
    /// The guarded resource has seen a newer token, so somebody else holds the lock by now.
    #[error("the guarded resource has seen a newer token")]
    Fenced,
    /// The lock was released: this handle has outlived the work that it was made for.
    #[error("the lock was released when its work ended")]
    Released,
}

impl Loss {
    pub(crate) fn of_claim(loss: claim::Loss, reason: &[u8]) -> Loss {
        match loss {
            claim::Loss::Silence => Loss::Expired,
            claim::Loss::EndOfStream => Loss::Network("the server closed it".into()),
            claim::Loss::Disconnected => Loss::Network("it broke".into()),
            claim::Loss::Unintelligible(unknown) => Loss::Protocol(unknown.to_string().into()),
            claim::Loss::Contradiction => {
                Loss::Protocol("it contradicts what it said before".into())
            }
            claim::Loss::Refused(code) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                let error = ServerError { code, reason };
                match code.class() {
                    ErrorClass::ClientError => Loss::Protocol(error.to_string().into()),
                    ErrorClass::ServerCondition if code == ErrorCode::CLOSED_BY_ADMINISTRATOR => {
                        Loss::Administrator(error)
                    }
                    ErrorClass::ServerCondition => Loss::Server(error),
                }
            }
        }
    }

    /// What the core calls it, where it comes from there.
    pub(crate) fn in_core(&self) -> Option<claim::Loss> {
        match self {
            Loss::Expired => Some(claim::Loss::Silence),
            Loss::Server(error) | Loss::Administrator(error) => {
                Some(claim::Loss::Refused(error.code))
            }
            Loss::Network(_) => Some(claim::Loss::Disconnected),
            Loss::Protocol(_) | Loss::Fenced | Loss::Released => None,
        }
    }
}

/// Why a lock was not acquired. The work was not begun.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// What was asked for can't be; nothing was dialled.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// This client holds or wants the lock already, so it would wait for itself.
    #[error("this client has a claim on the lock {name:?} already")]
    AlreadyClaimed {
        /// The lock.
        name: String,
    },
    /// Somebody else holds it, and waiting was not wished.
    #[error("the lock {name:?} is held by somebody else")]
    Taken {
        /// The lock.
        name: String,
    },
    /// It was not acquired within the time to wait.
    #[error("the lock was not acquired in time{}", Behind(.last_failure))]
    TimedOut {
        /// What the last attempt failed with, if attempts failed: then it was not only the queue.
        last_failure: Option<Box<AcquireError>>,
    },
    /// No connection could be made.
    #[error("no connection to {address}: {reason}")]
    Unreachable {
        /// The server.
        address: String,
        /// What the system said.
        reason: Arc<str>,
    },
    /// The claim ended while it waited. Its place in the queue is lost.
    #[error("the claim on {name:?} ended before the lock was granted: {loss}")]
    Lost {
        /// The lock.
        name: String,
        /// Why.
        loss: Loss,
    },
    /// The server refused the claim, and would again.
    #[error("the server refused the claim on {name:?}: {error}")]
    Refused {
        /// The lock.
        name: String,
        /// What it said.
        error: ServerError,
    },
    /// This process lacks a descriptor or a thread.
    #[error("the client can't run: {0}")]
    System(Arc<str>),
}

impl AcquireError {
    pub(crate) fn system(error: &std::io::Error) -> AcquireError {
        AcquireError::System(error.to_string().into())
    }
}

struct Behind<'a>(&'a Option<Box<AcquireError>>);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(failure) => write!(f, "; the last attempt: {failure}"),
        }
    }
}

/// Why there is no result of work that was done under the lock from beginning to end.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The work was not begun.
    #[error(transparent)]
    NotAcquired(#[from] AcquireError),
    /// The lock was lost while the work ran, so part of it may have been done while somebody else
    /// held the lock. Reported also when the work itself has succeeded.
    #[error("the lock was lost while the work ran: {loss}")]
    Lost {
        /// Why.
        loss: Loss,
        /// What the work returned; `None` if it didn't end by itself and was dropped.
        output: Option<T>,
    },
    /// The lock was held for as long as was permitted. The work was told to stop, and the lock was
    /// released when it had.
    #[error("the work did not end within the time for which it may hold the lock")]
    HeldTooLong {
        /// What the work returned; `None` if it didn't end by itself and was dropped.
        output: Option<T>,
    },
}

// By hand, so that the output needn't be printable for the error to be an error.
impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotAcquired(error) => f.debug_tuple("NotAcquired").field(error).finish(),
            RunError::Lost { loss, output } => {
                let mut shown = f.debug_struct("Lost");
                shown.field("loss", loss).field("has_output", &output.is_some()).finish()
            }
            RunError::HeldTooLong { output } => {
                let mut shown = f.debug_struct("HeldTooLong");
                shown.field("has_output", &output.is_some()).finish()
            }
        }
    }
}

/// Why a guarded write was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError<E> {
    /// The lock is not held any more; unless the loss is [`Loss::Fenced`], nothing was tried.
    #[error("not written: {0}")]
    Lost(Loss),
    /// The write itself failed; the lock is still held as far as is known.
    #[error(transparent)]
    Failed(E),
}
