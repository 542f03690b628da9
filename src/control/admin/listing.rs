//! Locks in the order of their names. An event loop has them in no order at all, and may have a
//! million: so a page of names is picked out of slices of the loops' tables, and what it says of
//! each lock is fetched in slices too. Between two slices a loop serves its sessions.
//!
//! A lock that is there during the whole listing is in it exactly once, as it was at some time
//! within.

use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use hyper::StatusCode;
use monolock_core::engine::Engine;
use monolock_core::glob::{self, GLOB_MAX_BYTES};
use monolock_core::lock_table::LockName;
use monolock_core::time::Now;
use serde::Serialize;

use super::super::http::Response;
use super::super::running::{Running, Unanswered};
use super::lock_part::{CLAIMS_A_SLICE, LockPart};
use super::request::{LockPath, Query};
use super::stream::{self, Incomplete, Outgoing};
use super::views::LastHold;
use super::{Admin, Refusal, json};

/// Places of a table that are looked at in a slice.
const PLACES_A_SLICE: u32 = 1024;

/// Names of which a page is picked at a time, which bounds what a listing keeps in memory. All
/// tables are gone through once for each of them.
const NAMES_MAX: usize = 8192;

/// Matches against a pattern between which others may do something on this thread.
const MATCHES_A_SLICE: usize = 64;

/// `GET /api/locks`
pub(super) async fn answer(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&["match", "limit", "after", "waiters"])?;
    let selection = Selection {
        pattern: query.text("match").map(str::to_owned),
        after: query.text("after").map(LockName::new),
        limit: query.number("limit", 1..=u64::MAX)?.map(size),
        waiters_max: waiters_max(query)?,
    };
    if selection.pattern.as_ref().is_some_and(|pattern| pattern.len() > GLOB_MAX_BYTES) {
        let why = format!("match: a pattern has {GLOB_MAX_BYTES} bytes at most");
        return Err(Refusal::bad_request(why));
    }
    // Once before anything is said, so that an event loop that is stuck can still be told of.
    let running = Rc::clone(&admin.running);
    let first = selection.page(&running).await?;
    Ok(stream::answer(|outgoing| list(running, selection, first, outgoing)))
}

/// `GET /api/locks/{name}`
pub(super) async fn answer_one(
    admin: &Admin,
    LockPath(name): LockPath,
    query: &Query,
) -> Result<Response, Refusal> {
    query.only(&["waiters"])?;
    let waiters_max = waiters_max(query)?;
    let running = Rc::clone(&admin.running);
    let shard = running.owner(&name);
    let asked = name.clone();
    let (part, last_hold) = running
        .ask(shard, move |inspected| {
            let lock = inspected.engine.lock(&asked);
            let part = lock.map(|lock| LockPart::of(lock, inspected.now, waiters_max));
            let last_hold = inspected.ended_holds.of(&asked, inspected.now.instant);
            (part, last_hold.map(LastHold::new))
        })
        .await?;
    match part {
        Some(part) => Ok(stream::answer(|mut outgoing| async move {
            outgoing.lock(&running, shard, part, last_hold.as_ref()).await?;
            Ok(outgoing)
        })),
        None => {
            #[derive(Serialize)]
            struct Idle {
                error: &'static str,
                last_hold: Option<LastHold>,
            }
            let error = "nobody holds this lock or waits for it";
            Ok(json(StatusCode::NOT_FOUND, &Idle { error, last_hold }))
        }
    }
}

/// How many waiters of each lock are shown.
fn waiters_max(query: &Query) -> Result<usize, Refusal> {
    Ok(query.number("waiters", 0..=u64::MAX)?.map_or(usize::MAX, size))
}

fn size(number: u64) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

/// Which locks are listed.
struct Selection {
    pattern: Option<String>,
    after: Option<LockName>,
    limit: Option<usize>,
    waiters_max: usize,
}

/// The next names of a listing, and whose they are.
struct Page {
    names: Vec<(LockName, usize)>,
    /// There are more behind them.
    is_full: bool,
}

async fn list(
    running: Rc<Running>,
    mut selection: Selection,
    mut page: Page,
    mut outgoing: Outgoing,
) -> Result<Outgoing, Incomplete> {
    outgoing.text(r#"{"locks":["#);
    let mut is_first = true;
    loop {
        let mut fetched = Fetched::new(&page.names, running.shards.len(), selection.waiters_max);
        for (_, shard) in &page.names {
            // Those that were let go of meanwhile are left out.
            if let Some(part) = fetched.next(&running, *shard).await? {
                outgoing.text(if std::mem::take(&mut is_first) { "" } else { "," });
                outgoing.lock(&running, *shard, part, None).await?;
            }
        }
        if let Some(limit) = &mut selection.limit {
            *limit -= page.names.len();
        }
        if let Some((last, _)) = page.names.pop() {
            selection.after = Some(last);
        }
        if !page.is_full || selection.limit == Some(0) {
            break;
        }
        page = selection.page(&running).await?;
    }
    outgoing.text("]");
    if page.is_full {
        outgoing.text(r#","next_after":"#);
        outgoing.json(&selection.after.as_deref());
    }
    outgoing.text("}");
    Ok(outgoing)
}

impl Selection {
    /// Picks the first names behind `after`.
    async fn page(&self, running: &Running) -> Result<Page, Unanswered> {
        let names_max = self.limit.unwrap_or(usize::MAX).min(NAMES_MAX);
        // One more than asked for tells whether there are more; the last in order is on top.
        let mut picked: BinaryHeap<(LockName, usize)> = BinaryHeap::new();
        for shard in 0..running.shards.len() {
            let mut from = Some(0);
            while let Some(place) = from {
                let below = (picked.len() > names_max)
                    .then(|| picked.peek().map(|(name, _)| name.clone()))
                    .flatten();
                let after = self.after.clone();
                let (names, next) = running
                    .ask(shard, move |inspected| {
                        names_between(inspected.engine, place, after.as_ref(), below.as_ref())
                    })
                    .await?;
                from = next;
                for names in names.chunks(MATCHES_A_SLICE) {
                    let wanted = names.iter().filter(|name| self.matches(name));
                    for name in wanted {
                        picked.push((name.clone(), shard));
                        if picked.len() > names_max + 1 {
                            picked.pop();
                        }
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        let is_full = picked.len() > names_max;
        let mut names = picked.into_sorted_vec();
        names.truncate(names_max);
        Ok(Page { names, is_full })
    }

    fn matches(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Names in a slice of the table, and where the next slice begins.
fn names_between(
    engine: &Engine,
    place: u32,
    after: Option<&LockName>,
    below: Option<&LockName>,
) -> (Vec<LockName>, Option<u32>) {
    let (locks, next) = engine.locks_from(place, PLACES_A_SLICE);
    let names = locks
        .map(|lock| lock.name())
        .filter(|name| after.is_none_or(|after| *name > after))
        .filter(|name| below.is_none_or(|below| *name < below))
        .cloned()
        .collect();
    (names, next)
}

/// The locks of a page, fetched from each event loop ahead of their turn.
struct Fetched {
    waiters_max: usize,
    by_shard: Vec<FetchedFrom>,
}

#[derive(Default)]
struct FetchedFrom {
    names: VecDeque<LockName>,
    parts: VecDeque<Option<LockPart>>,
}

impl Fetched {
    fn new(names: &[(LockName, usize)], shards: usize, waiters_max: usize) -> Fetched {
        let mut by_shard: Vec<_> = (0..shards).map(|_| FetchedFrom::default()).collect();
        for (name, shard) in names {
            by_shard[*shard].names.push_back(name.clone());
        }
        Fetched { waiters_max, by_shard }
    }

    /// The next lock of this loop, or `None` if it is nobody's any more.
    async fn next(
        &mut self,
        running: &Running,
        shard: usize,
    ) -> Result<Option<LockPart>, Unanswered> {
        let waiters_max = self.waiters_max;
        let from = &mut self.by_shard[shard];
        if from.parts.is_empty() {
            let count = from.names.len().min(CLAIMS_A_SLICE);
            let names: Vec<LockName> = from.names.iter().take(count).cloned().collect();
            let parts = running
                .ask(shard, move |inspected| {
                    parts_of(inspected.engine, &names, inspected.now, waiters_max)
                })
                .await?;
            from.names.drain(..parts.len());
            from.parts.extend(parts);
        }
        Ok(from.parts.pop_front().expect("at least one lock is looked up"))
    }
}

/// The first of these locks, as many as are in a slice.
fn parts_of(
    engine: &Engine,
    names: &[LockName],
    now: Now,
    waiters_max: usize,
) -> Vec<Option<LockPart>> {
    let mut claims = 0;
    let mut parts = Vec::new();
    for name in names {
        let part = engine.lock(name).map(|lock| LockPart::of(lock, now, waiters_max));
        claims += part.as_ref().map_or(1, LockPart::claims);
        parts.push(part);
        if claims >= CLAIMS_A_SLICE {
            break;
        }
    }
    parts
}
