//! How the last hold of each lock ended, for some time: who asks why a job has lost its lock does
//! so afterwards, when the lock is somebody else's or nobody's.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use monolock_core::effect::{Ownership, OwnershipChange, ReleaseReason};
use monolock_core::fencing::Token;
use monolock_core::lock_table::LockName;
use monolock_core::session::PeerAddress;
use monolock_core::time::{Instant, Now, UnixTime};

/// How long an end is kept at the longest.
pub const KEPT_FOR: Duration = Duration::from_secs(15 * 60);

/// For how many locks of an event loop it is kept at the most.
pub const LOCKS_MAX: usize = 16_384;

/// The end of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// Who held the lock.
    pub peer: PeerAddress,
    /// By which token.
    pub token: Token,
    /// For how long.
    pub held: Duration,
    /// Why no longer.
    pub reason: ReleaseReason,
    /// When it ended.
    pub ended_at: UnixTime,
    at: Instant,
}

/// The last ends of an event loop's locks.
#[derive(Debug)]
pub struct EndedHolds {
    locks_max: usize,
    by_lock: HashMap<LockName, EndedHold>,
    /// Every lock once, with an end of it that is not later than its last one.
    by_age: VecDeque<(Instant, LockName)>,
}

impl EndedHolds {
    /// Keeps nothing yet, and the ends of `locks_max` locks at the most.
    pub fn new(locks_max: usize) -> EndedHolds {
        EndedHolds { locks_max, by_lock: HashMap::new(), by_age: VecDeque::new() }
    }

    /// Notes the end of a hold; another change of an ownership is none.
    pub fn note(&mut self, change: &OwnershipChange, now: Now) {
        let Ownership::Released { held, reason } = change.what else { return };
        if self.locks_max == 0 {
            return;
        }
        let (peer, token) = (change.peer, change.token);
        let hold = EndedHold { peer, token, held, reason, ended_at: now.unix, at: now.instant };
        match self.by_lock.entry(change.lock.clone()) {
            Entry::Occupied(mut kept) => *kept.get_mut() = hold,
            Entry::Vacant(place) => {
                self.by_age.push_back((now.instant, place.key().clone()));
                place.insert(hold);
            }
        }
        // A few a time, so that no turn pays for the many of a turn long ago.
        for _ in 0..2 {
            self.forget_oldest(now.instant);
        }
    }

    /// How the last hold of this lock ended.
    pub fn of(&self, lock: &str, now: Instant) -> Option<&EndedHold> {
        self.by_lock.get(lock).filter(|hold| now.since(hold.at) <= KEPT_FOR)
    }

    fn forget_oldest(&mut self, now: Instant) {
        let Some((at, lock)) = self.by_age.pop_front() else { return };
        let last = self.by_lock.get(&lock).expect("every lock that has an age").at;
        let is_one_too_many = self.by_lock.len() > self.locks_max;
        if last == at && !is_one_too_many && now.since(at) <= KEPT_FOR {
            self.by_age.push_front((at, lock));
        } else if last != at {
            // It has had another hold since.
            self.by_age.push_back((last, lock));
        } else {
            self.by_lock.remove(&lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use monolock_core::session::SessionId;

    use super::*;

    fn at(secs: u64) -> Now {
        Now { instant: Instant::from_nanos(secs * 1_000_000_000), unix: UnixTime::new(secs, 0) }
    }

    fn end(holds: &mut EndedHolds, lock: &str, secs: u64) {
        let change = OwnershipChange {
            lock: lock.into(),
            session: SessionId { index: 0, generation: 0 },
            peer: SocketAddr::from(([10, 0, 0, 5], 1)).into(),
            token: Token::new(secs + 1).expect("not zero"),
            what: Ownership::Released {
                held: Duration::from_secs(1),
                reason: ReleaseReason::Expired,
            },
        };
        holds.note(&change, at(secs));
    }

    fn token(holds: &EndedHolds, lock: &str, secs: u64) -> Option<u64> {
        holds.of(lock, at(secs).instant).map(|hold| hold.token.get())
    }

    #[test]
    fn the_last_end_of_each_lock_is_kept_for_its_time() {
        let mut holds = EndedHolds::new(10);
        end(&mut holds, "a", 0);
        end(&mut holds, "b", 1);
        end(&mut holds, "a", 2);
        assert_eq!((token(&holds, "a", 3), token(&holds, "b", 3)), (Some(3), Some(2)));
        assert_eq!(token(&holds, "b", 1 + 900), Some(2));
        assert_eq!(token(&holds, "b", 1 + 901), None);
        for secs in 2000..2010 {
            end(&mut holds, "c", secs);
        }
        assert_eq!((holds.by_lock.len(), holds.by_age.len()), (1, 1), "old ones are forgotten");
    }

    #[test]
    fn a_busy_lock_does_not_drive_others_out_and_many_locks_are_bounded() {
        let mut holds = EndedHolds::new(3);
        end(&mut holds, "quiet", 0);
        for secs in 0..100 {
            end(&mut holds, "busy", secs);
        }
        assert_eq!(token(&holds, "quiet", 100), Some(1));
        for secs in 100..200 {
            end(&mut holds, &format!("lock {secs}"), secs);
            assert!(holds.by_lock.len() <= 4 && holds.by_lock.len() == holds.by_age.len());
        }
        assert_eq!(token(&holds, "lock 199", 200), Some(200));
        assert_eq!(token(&holds, "quiet", 200), None);
    }

    #[test]
    fn with_room_for_nothing_nothing_is_kept() {
        let mut holds = EndedHolds::new(0);
        end(&mut holds, "a", 0);
        assert_eq!(token(&holds, "a", 0), None);
    }
}
