//! The locks that stand out: with the longest queue, the oldest wait, the oldest hold.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use monolock_core::lock_table::LockName;
use monolock_core::snapshot::LockView;
use monolock_core::time::Now;
use serde::Serialize;

use super::super::http::Response;
use super::request::Query;
use super::views::{Holder, age_ms};
use super::{Admin, Refusal, ok};

/// Places of a table that are looked at in a slice; of each lock up to two claims.
const PLACES_A_SLICE: u32 = 256;

const LIMIT_DEFAULT: u64 = 20;
const LIMIT_MAX: u64 = 1000;

/// What a list is ordered by.
#[derive(Clone, Copy)]
enum By {
    Waiters,
    OldestWait,
    OldestHold,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    holder: Option<Holder>,
    held_ms: Option<u64>,
    waiters: u32,
    oldest_wait_ms: Option<u64>,
}

#[derive(Serialize)]
struct Top {
    locks: Vec<Entry>,
}

/// `GET /api/top`
pub(super) async fn answer(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&["by", "limit"])?;
    let by = match query.text("by") {
        Some("waiters") | None => By::Waiters,
        Some("oldest_wait") => By::OldestWait,
        Some("oldest_hold") => By::OldestHold,
        Some(_) => {
            return Err(Refusal::bad_request("by: choose waiters, oldest_wait or oldest_hold"));
        }
    };
    let limit = query.number("limit", 1..=LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let limit = usize::try_from(limit).expect("limited");
    let running = &admin.running;
    // The least of those found so far is on top.
    let mut found: BinaryHeap<Reverse<(u64, Reverse<LockName>)>> = BinaryHeap::new();
    for shard in 0..running.shards.len() {
        let mut from = Some(0);
        while let Some(place) = from {
            let is_full = found.len() == limit;
            let least = found.peek().filter(|_| is_full).map_or(0, |Reverse((rank, _))| *rank);
            let (ranked, next) = running
                .ask(shard, move |inspected| {
                    let (locks, next) = inspected.engine.locks_from(place, PLACES_A_SLICE);
                    let ranked: Vec<(u64, LockName)> = locks
                        .filter_map(|lock| Some((by.rank(lock, inspected.now)?, lock)))
                        .filter(|(rank, _)| *rank >= least)
                        .map(|(rank, lock)| (rank, lock.name().clone()))
                        .collect();
                    (ranked, next)
                })
                .await?;
            from = next;
            for (rank, name) in ranked {
                found.push(Reverse((rank, Reverse(name))));
                if found.len() > limit {
                    found.pop();
                }
            }
        }
    }
    let mut locks = Vec::new();
    for Reverse((_, Reverse(name))) in found.into_sorted_vec() {
        let entry = running
            .ask(running.owner(&name), move |inspected| {
                inspected.engine.lock(&name).map(|lock| Entry::new(lock, inspected.now))
            })
            .await?;
        locks.extend(entry);
    }
    Ok(ok(&Top { locks }))
}

impl By {
    /// The more, the higher in the list; `None` is not in it.
    fn rank(self, lock: LockView<'_>, now: Now) -> Option<u64> {
        let age = |since| u64::try_from(now.instant.since(since).as_nanos()).unwrap_or(u64::MAX);
        match self {
            By::Waiters => Some(lock.waiters_len().into()).filter(|&waiters: &u64| waiters > 0),
            By::OldestWait => lock.first_waiter().map(|waiter| age(waiter.since)),
            By::OldestHold => lock.holder().map(|holder| age(holder.since)),
        }
    }
}

impl Entry {
    fn new(lock: LockView<'_>, now: Now) -> Entry {
        let holder = lock.holder();
        Entry {
            name: lock.name().to_string(),
            holder: holder.as_ref().map(|holder| Holder::new(holder, now)),
            held_ms: holder.map(|holder| age_ms(holder.since, now)),
            waiters: lock.waiters_len(),
            oldest_wait_ms: lock.first_waiter().map(|waiter| age_ms(waiter.since, now)),
        }
    }
}
