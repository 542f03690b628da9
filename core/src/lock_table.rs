//! Names to locks. A lock is in the table for as long as it has a holder; an idle one costs
//! nothing.

use core::hash::Hasher;

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;
use slab::Slab;
use smol_str::SmolStr;

use crate::waiter_queue::WaiterQueue;

/// The key of the hash over lock names. Names are chosen by whoever connects, so it must be secret
/// and different in every process.
pub type HashKey = [u8; 16];

/// The name of a lock: 1 to 255 bytes of UTF-8, held inline up to 23.
pub type LockName = SmolStr;

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) name: LockName,
    /// The session that holds it.
    pub(crate) holder: u32,
    pub(crate) waiters: WaiterQueue,
}

const _: () = assert!(size_of::<Lock>() == 40, "what a held lock costs, beside its table entry");
const _: () = assert!(size_of::<Option<Lock>>() == 40, "a place in the slab costs no more");

/// All locks of one event loop that somebody holds.
#[derive(Debug)]
pub(crate) struct LockTable {
    locks: Slab<Lock>,
    by_name: HashTable<u32>,
    hash_key: HashKey,
}

impl LockTable {
    /// An empty table that takes `capacity` locks before it has to grow.
    pub(crate) fn new(capacity: usize, hash_key: HashKey) -> LockTable {
        LockTable {
            locks: Slab::with_capacity(capacity),
            by_name: HashTable::with_capacity(capacity),
            hash_key,
        }
    }

    /// The place of the lock with this name.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        let hash = hash(&self.hash_key, name);
        self.by_name.find(hash, |&lock| self.locks[lock as usize].name == name).copied()
    }

    /// The place of the lock with this name, and whether it had none until now; a new lock is held
    /// by `holder`.
    pub(crate) fn find_or_insert(&mut self, name: &str, holder: u32) -> (u32, bool) {
        let hash = hash(&self.hash_key, name);
        let LockTable { locks, by_name, hash_key } = self;
        let entry = by_name.entry(
            hash,
            |&lock| locks[lock as usize].name == name,
            |&lock| self::hash(hash_key, &locks[lock as usize].name),
        );
        match entry {
            hashbrown::hash_table::Entry::Occupied(entry) => (*entry.get(), false),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let place = entry.into_table();
                let lock = Lock { name: LockName::new(name), holder, waiters: WaiterQueue::new() };
                let index = u32::try_from(locks.insert(lock)).expect("no more locks than sessions");
                place.insert_unique(hash, index, |&lock| {
                    self::hash(hash_key, &locks[lock as usize].name)
                });
                (index, true)
            }
        }
    }

    /// Forgets a lock that nobody holds any more.
    pub(crate) fn remove(&mut self, lock: u32) -> Lock {
        let hash = hash(&self.hash_key, &self.locks[lock as usize].name);
        let Ok(entry) = self.by_name.find_entry(hash, |&other| other == lock) else {
            panic!("every lock can be found by its name");
        };
        entry.remove();
        self.locks.remove(lock as usize)
    }

    pub(crate) fn get(&self, lock: u32) -> Option<&Lock> {
        self.locks.get(lock as usize)
    }

    pub(crate) fn get_mut(&mut self, lock: u32) -> &mut Lock {
        &mut self.locks[lock as usize]
    }

    /// Places that may be in use are below this one.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.locks.capacity()).unwrap_or(u32::MAX)
    }
}

pub(crate) fn hash(key: &HashKey, name: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(name.as_bytes());
    hasher.finish()
}
