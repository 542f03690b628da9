//! What the admin API says, as far as the commands show it. Servers of other makes leave out what
//! is optional here.

use std::fmt::{self, Display};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Some of the locks.
#[derive(Deserialize)]
pub(super) struct Page<Lock> {
    pub(super) locks: Vec<Lock>,
    /// There are more behind this one.
    pub(super) next_after: Option<String>,
}

/// A lock in a list.
#[derive(Deserialize)]
pub(super) struct ListedLock {
    pub(super) name: String,
    pub(super) holder: Option<Holder>,
    waiters_count: Option<u64>,
    /// Counted and not kept: from a server that sends them though nobody has asked, there may be
    /// more of them than locks.
    #[serde(rename = "waiters", deserialize_with = "count")]
    waiters_sent: u64,
}

impl ListedLock {
    pub(super) fn waiters_count(&self) -> u64 {
        self.waiters_count.unwrap_or(self.waiters_sent)
    }
}

/// A lock that is passed on as it came, and is looked at by nobody.
pub(super) type RawLock = Box<RawValue>;

/// A lock with its queue.
#[derive(Deserialize)]
pub(super) struct Lock {
    pub(super) holder: Option<Holder>,
    pub(super) waiters: Vec<Waiter>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Holder {
    pub(super) identity: String,
    pub(super) remote_addr: String,
    pub(super) since: String,
    pub(super) lease_ms: u64,
    pub(super) token: u64,
    pub(super) last_heard_ms: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Waiter {
    pub(super) identity: String,
    pub(super) remote_addr: String,
    pub(super) queued_at: String,
    pub(super) lease_ms: Option<u64>,
    pub(super) last_heard_ms: Option<u64>,
}

/// The answer to a release.
#[derive(Deserialize)]
pub(super) struct Released {
    pub(super) released: Holder,
}

/// How a hold ended.
#[derive(Deserialize)]
pub(super) struct LastHold {
    remote_addr: String,
    ended_at: String,
    reason: String,
}

impl Display for LastHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LastHold { remote_addr, ended_at, reason } = self;
        write!(f, "its last holder was {remote_addr}, until {ended_at} ({reason})")
    }
}

fn count<'de, D: Deserializer<'de>>(list: D) -> Result<u64, D::Error> {
    struct Count;
    impl<'de> Visitor<'de> for Count {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
            let mut count = 0;
            while list.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }
    list.deserialize_seq(Count)
}
