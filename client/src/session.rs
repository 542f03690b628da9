//! One connection, which is one claim on one lock: dialling it, waiting in the queue, holding.
//! What is due and what an answer means is decided by [`Claim`]; here bytes are moved.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::claim::{Claim, Due, Loss as CoreLoss, News};
use monolock_core::fencing::Token;
use monolock_core::wire::{Acquire, ErrorClass, HEARTBEAT, encode_acquire};
use tokio::io::Interest;
use tokio::net::{TcpStream, lookup_host};
use tokio::select;

use crate::clock::{self, Timer};
use crate::failure::{AcquireError, Loss, ServerError};
use crate::tenure::Tenure;

/// The longest that the dial of an address may take; the kernel alone would try for two minutes.
const DIAL_MAX: Duration = Duration::from_secs(5);

/// Reads in one turn, so that a server that doesn't stop talking can't keep the deadline away.
const READS_MAX: usize = 16;

/// A connection with a claim on it. Dropped, it is closed, which is the release.
#[derive(Debug)]
pub(crate) struct Session {
    stream: TcpStream,
    claim: Claim,
    /// Not yet taken by the kernel.
    unsent: Vec<u8>,
    timer: Timer,
}

/// What a waiter wants to know.
#[derive(Debug)]
pub(crate) enum Answer {
    Queued,
    Granted(Token),
}

impl Session {
    /// Dials and sends the ACQUIRE.
    pub(crate) async fn dial(
        address: &str,
        name: &str,
        lease_ms: NonZeroU32,
    ) -> Result<Session, AcquireError> {
        let mut timer = Timer::new().map_err(|error| AcquireError::system(&error))?;
        let unreachable = |reason: String| AcquireError::Unreachable {
            address: address.to_owned(),
            reason: reason.into(),
        };
        let stream = connect(address, &mut timer).await.map_err(unreachable)?;
        // A heartbeat is one byte, and must not wait for more.
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let mut unsent = Vec::new();
        encode_acquire(Acquire { lease_ms, name }, &mut unsent);
        let claim = Claim::new(lease_ms, clock::now());
        Ok(Session { stream, claim, unsent, timer })
    }

    /// Waits for the next change of where the claim stands.
    pub(crate) async fn answer(&mut self, name: &str) -> Result<Answer, AcquireError> {
        loop {
            match self.turn().await {
                Ok(Some(News::Queued)) => return Ok(Answer::Queued),
                Ok(Some(News::Granted(token))) => return Ok(Answer::Granted(token)),
                Ok(_) => {}
                Err(loss) => return Err(self.not_acquired(loss, name)),
            }
        }
    }

    /// Keeps the lock until the tenure is over or the claim is lost, and closes the connection.
    pub(crate) async fn keep(mut self, tenure: Arc<Tenure>, index: usize) {
        // Also if this task is dropped before its end.
        let closing = Closing { tenure: &tenure, index };
        loop {
            select! {
                biased;
                () = tenure.until(|state| state.is_over(index).then_some(())) => break,
                turn = self.turn() => match turn {
                    Ok(_) => tenure.confirm(index, &self.claim),
                    Err(loss) => {
                        tenure.lose(index, Loss::of_claim(loss, self.claim.reason()));
                        break;
                    }
                }
            }
        }
        drop(self);
        drop(closing);
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Waits until something happens, and does what it asks for. May be dropped while it waits.
    ///
    /// What has come is taken in before a deadline counts as passed, and the deadline is looked at
    /// before anybody is told of what came: a process that didn't run for a while may find a grant
    /// that is no longer its own.
    async fn turn(&mut self) -> Result<Option<News>, CoreLoss> {
        let interest = if self.unsent.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        select! {
            biased;
            ready = self.stream.ready(interest) => {
                ready.map_err(|_| self.broken(CoreLoss::Disconnected))?;
            }
            // A timer that can't be set leaves no way to know when to stop, so it is time.
            waited = self.timer.at(self.claim.deadline()) => {
                waited.map_err(|_| self.claim.end(CoreLoss::Silence))?;
            }
        }
        let news = self.receive()?;
        match self.claim.pass(clock::now()) {
            Some(Due::Heartbeat) => self.unsent.push(HEARTBEAT),
            Some(Due::Lost(loss)) => return Err(loss),
            None => {}
        }
        self.send();
        Ok(news)
    }

    /// Takes in what is there. The last change counts, if there are several.
    fn receive(&mut self) -> Result<Option<News>, CoreLoss> {
        let mut change = None;
        let mut buffer = [0; 512];
        for _ in 0..READS_MAX {
            let len = match self.stream.try_read(&mut buffer) {
                Ok(0) => return Err(self.broken(CoreLoss::EndOfStream)),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(self.broken(CoreLoss::Disconnected)),
            };
            let mut bytes = &buffer[..len];
            while let Some(news) = self.claim.receive(&mut bytes, clock::now()) {
                match news {
                    News::Lost(loss) => return Err(loss),
                    News::Queued | News::Granted(_) => change = Some(news),
                    News::Standing => {}
                }
            }
        }
        Ok(change)
    }

    /// The connection has ended. Whoever didn't run for a lease has lost the claim by that, and the
    /// server has only closed what was over.
    fn broken(&mut self, how: CoreLoss) -> CoreLoss {
        let is_over = clock::now() >= self.claim.give_up_at();
        self.claim.end(if is_over { CoreLoss::Silence } else { how })
    }

    fn send(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.try_write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // An ERROR may have come before the connection broke, and is worth more than the
                // news that it is broken, which comes with the next read as well.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    fn not_acquired(&self, loss: CoreLoss, name: &str) -> AcquireError {
        let name = name.to_owned();
        let reason = self.claim.reason();
        match loss {
            CoreLoss::Refused(code) if code.class() == ErrorClass::ClientError => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                AcquireError::Refused { name, error: ServerError { code, reason } }
            }
            _ => AcquireError::Lost { name, loss: Loss::of_claim(loss, reason) },
        }
    }
}

/// Looks the host up, and tries its addresses one after the other: one that is silent must not take
/// the time of the others.
async fn connect(address: &str, timer: &mut Timer) -> Result<TcpStream, String> {
    let too_late = || format!("no answer within {DIAL_MAX:?}");
    let addresses = select! {
        biased;
        found = lookup_host(address) => found.map_err(|error| error.to_string())?,
        _ = timer.at(clock::now().after(DIAL_MAX)) => {
            return Err(format!("the host was not found within {DIAL_MAX:?}"));
        }
    };
    dial_any(addresses, timer)
        .await
        .map_err(|error| error.map_or_else(too_late, |error| error.to_string()))
}

/// Says what the last one of them has failed with; nothing, if it did not answer in time.
async fn dial_any(
    addresses: impl Iterator<Item = SocketAddr>,
    timer: &mut Timer,
) -> Result<TcpStream, Option<io::Error>> {
    let mut last = Some(io::Error::other("the host has no address"));
    for address in addresses {
        last = select! {
            biased;
            dialled = TcpStream::connect(address) => match dialled {
                Ok(stream) => return Ok(stream),
                Err(error) => Some(error),
            },
            _ = timer.at(clock::now().after(DIAL_MAX)) => None,
        };
    }
    Err(last)
}

/// Says at the end that a connection is closed.
struct Closing<'a> {
    tenure: &'a Tenure,
    index: usize,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // Counts only if neither a loss nor the release was the reason: then the driver was ended.
        self.tenure.lose(self.index, Loss::Network("the client's thread has ended".into()));
        self.tenure.connection_closed();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_silent_address_does_not_keep_the_next_one_from_being_tried() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        let silent_address = silent.local_addr().unwrap();
        // The only one for whom there is room; the kernel does not answer those behind it.
        let _first = TcpStream::connect(silent_address).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut timer = Timer::new().unwrap();
        let dialled = dial_any([silent_address, address].into_iter(), &mut timer).await;
        assert_eq!(dialled.unwrap().peer_addr().unwrap(), address);
        let failed = dial_any([silent_address].into_iter(), &mut timer).await;
        assert!(failed.unwrap_err().is_none(), "it took too long");
    }
}
