//! The opt-in limit of connections from one address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts connections by their address. It is shared by all event loops and the acceptor, which
/// touch it once when a connection comes and once when it goes.
#[derive(Debug)]
pub struct PeerLimit {
    sessions_max: NonZeroU32,
    sessions: Mutex<HashMap<IpAddr, u32>>,
}

impl PeerLimit {
    /// Nobody is there, and `sessions_max` may come from each address.
    pub fn new(sessions_max: NonZeroU32) -> PeerLimit {
        PeerLimit { sessions_max, sessions: Mutex::default() }
    }

    /// Whether one more from this address is within the limit; if so, it is counted.
    pub fn enter(&self, address: IpAddr) -> bool {
        let mut sessions = self.sessions();
        let count = sessions.entry(address).or_default();
        let enters = *count < self.sessions_max.get();
        *count += u32::from(enters);
        enters
    }

    /// One that had entered is gone.
    pub fn leave(&self, address: IpAddr) {
        let mut sessions = self.sessions();
        let Entry::Occupied(mut count) = sessions.entry(address) else {
            unreachable!("who leaves has entered");
        };
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_for_each_address_and_freed_by_leaving() {
        let limit = PeerLimit::new(NonZeroU32::new(2).unwrap());
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!(limit.enter(one) && limit.enter(one));
        assert!(!limit.enter(one) && !limit.enter(one));
        assert!(limit.enter(other));
        limit.leave(one);
        assert!(limit.enter(one) && !limit.enter(one));
        for address in [one, one, other] {
            limit.leave(address);
        }
        assert!(limit.sessions().is_empty(), "addresses without connections are forgotten");
    }
}
