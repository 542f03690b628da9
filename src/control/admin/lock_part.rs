//! One lock as lists show it: its holder, and its queue, which is fetched in slices because it may
//! be as long as the server has sessions.

use monolock_core::lock_table::LockName;
use monolock_core::snapshot::{ClaimView, LockView, QueueCursor};
use monolock_core::time::Now;

use super::super::running::Running;
use super::stream::{Incomplete, Outgoing};
use super::views::{Holder, LastHold, Waiter};

/// Claims that are fetched in a slice: each is a cache line somewhere in memory.
pub(super) const CLAIMS_A_SLICE: usize = 256;

/// A lock with the first part of its queue.
pub(super) struct LockPart {
    name: LockName,
    now: Now,
    holder: Option<ClaimView>,
    /// The length of the queue.
    waiters_len: u32,
    waiters: Vec<ClaimView>,
    /// How many more are wanted.
    waiters_left: usize,
    /// How to go on, if there is more of the queue.
    cursor: Option<QueueCursor>,
}

impl LockPart {
    pub(super) fn of(lock: LockView<'_>, now: Now, waiters_max: usize) -> LockPart {
        let mut cursor = QueueCursor::default();
        let (waiters, is_at_end) =
            lock.waiters_behind(&mut cursor, waiters_max.min(CLAIMS_A_SLICE));
        LockPart {
            name: lock.name().clone(),
            now,
            holder: lock.holder(),
            waiters_len: lock.waiters_len(),
            waiters_left: waiters_max - waiters.len(),
            waiters,
            cursor: (!is_at_end).then_some(cursor),
        }
    }

    /// How many claims there are in it.
    pub(super) fn claims(&self) -> usize {
        1 + self.waiters.len()
    }
}

impl Outgoing {
    /// Adds a lock with its queue, as far as it is wanted.
    pub(super) async fn lock(
        &mut self,
        running: &Running,
        shard: usize,
        part: LockPart,
        last_hold: Option<&LastHold>,
    ) -> Result<(), Incomplete> {
        let LockPart { name, now, holder, waiters_len, waiters, .. } = part;
        let LockPart { mut waiters_left, mut cursor, .. } = part;
        self.text(r#"{"name":"#);
        self.json(&name.as_str());
        self.text(r#","holder":"#);
        self.json(&holder.map(|holder| Holder::new(&holder, now)));
        if let Some(last_hold) = last_hold {
            self.text(r#","last_hold":"#);
            self.json(last_hold);
        }
        self.text(r#","waiters_count":"#);
        self.json(&waiters_len);
        self.text(r#","waiters":["#);
        let mut is_first = true;
        self.waiters(&waiters, now, &mut is_first);
        self.flush_if_full().await?;
        while let Some(mut from) = cursor.take().filter(|_| waiters_left > 0) {
            let name = name.clone();
            let count_max = waiters_left.min(CLAIMS_A_SLICE);
            let (waiters, now, next) = running
                .ask(shard, move |inspected| {
                    let Some(lock) = inspected.engine.lock(&name) else {
                        return (Vec::new(), inspected.now, None);
                    };
                    let (waiters, is_at_end) = lock.waiters_behind(&mut from, count_max);
                    (waiters, inspected.now, (!is_at_end).then_some(from))
                })
                .await?;
            self.waiters(&waiters, now, &mut is_first);
            waiters_left -= waiters.len();
            self.flush_if_full().await?;
            cursor = next;
        }
        self.text("]}");
        Ok(())
    }

    fn waiters(&mut self, waiters: &[ClaimView], now: Now, is_first: &mut bool) {
        for waiter in waiters {
            self.text(if std::mem::take(is_first) { "" } else { "," });
            self.json(&Waiter::new(waiter, now));
        }
    }
}
