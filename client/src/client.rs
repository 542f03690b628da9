//! A client: one server's address, and the names that it has claims on.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::AcquireError;
use crate::held::{Held, HeldTogether};
use crate::input::{self, InvalidInput};
use crate::lock::Lock;

/// A client of one lock server.
///
/// Making one dials nothing, and a clone is the same client. All clients of a process share one
/// thread, which sends the heartbeats of all their claims and ends with the last of them.
///
/// To its locks a client is one party: while it has a claim on a name, queued or held, a second one
/// fails with [`AcquireError::AlreadyClaimed`]. Work that asked again for the lock that it runs
/// under would otherwise wait for itself for ever. Parts of a program that are to compete with each
/// other need a client each.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    address: String,
    claimed: Mutex<BTreeSet<String>>,
}

impl Client {
    /// A client of the server at `HOST:PORT`. The host may be a name: it is looked up with each
    /// dial, so that it may move.
    ///
    /// # Errors
    /// [`InvalidInput::BadAddress`] if that is not HOST:PORT.
    pub fn new(address: &str) -> Result<Client, InvalidInput> {
        let address = input::address(address)?;
        Ok(Client { shared: Arc::new(Shared { address, claimed: Mutex::default() }) })
    }

    /// One lock, to be held by calling [`Lock::run`]. The name is 1 to 255 bytes and means itself:
    /// upper and lower case differ, nothing is trimmed.
    pub fn lock(&self, name: impl Into<String>) -> Lock<Held> {
        Lock::new(self.clone(), vec![name.into()])
    }

    /// Several locks, to be held together or not at all.
    ///
    /// They are taken in the order of their names, whatever the order here, so that two parties
    /// that want the same locks never wait for each other.
    pub fn locks<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> Lock<HeldTogether> {
        Lock::new(self.clone(), names.into_iter().map(Into::into).collect())
    }

    /// The server.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Notes that there is a claim on each of these.
    pub(crate) fn reserve(&self, names: Vec<String>) -> Result<Reservation, AcquireError> {
        let mut claimed = self.shared.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.iter().find(|name| claimed.contains(*name)) {
            return Err(AcquireError::AlreadyClaimed { name: name.clone() });
        }
        claimed.extend(names.iter().cloned());
        Ok(Reservation { client: self.clone(), names })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.shared.address).finish_non_exhaustive()
    }
}

/// Names that no other claim of the same client may have.
#[derive(Debug)]
pub(crate) struct Reservation {
    client: Client,
    pub(crate) names: Vec<String>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let claimed = &self.client.shared.claimed;
        let mut claimed = claimed.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &self.names {
            claimed.remove(name);
        }
    }
}
