//! Which event loop owns which lock.

use core::num::NonZeroU32;

use crate::lock_table::{HashKey, hash};

/// The number of an event loop among those of its server, from zero.
pub type ShardNumber = u32;

/// Spreads locks over event loops by their names. All loops of a server have the same map, so that
/// they agree about every lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMap {
    shards: NonZeroU32,
    key: HashKey,
}

impl ShardMap {
    /// A map for so many shards. Clients choose the names, so the key must be secret: otherwise all
    /// locks could be made to belong to one shard. It must not be the key of the locks' own tables
    /// either, or a table would hold only names whose hashes are alike.
    pub const fn new(shards: NonZeroU32, key: HashKey) -> ShardMap {
        ShardMap { shards, key }
    }

    /// The map of a server with one event loop.
    pub const fn single() -> ShardMap {
        ShardMap { shards: NonZeroU32::MIN, key: [0; 16] }
    }

    /// How many shards there are.
    pub const fn shards(&self) -> NonZeroU32 {
        self.shards
    }

    /// The shard to which the lock of this name belongs for ever.
    pub fn owner(&self, name: &str) -> ShardNumber {
        if self.shards == NonZeroU32::MIN {
            return 0;
        }
        // The upper half of the product is below the number of shards, and as even as the hash.
        let product = u128::from(hash(&self.key, name)) * u128::from(self.shards.get());
        u32::try_from(product >> 64).expect("below the number of shards")
    }
}
