//! Emptying a server before maintenance: nothing is granted any more, holders may finish, and when
//! they have, or when their time is over, the server shuts down.
//!
//! It stays ready meanwhile, and clients may go on coming: their claims wait. If they were sent to
//! another server instead, that one would grant locks which are still held here.

use std::rc::Rc;
use std::time::Duration;

use monolock_core::duration::parse_duration;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

use super::super::Event;
use super::super::http::Response;
use super::super::running::Running;
use super::super::runtime;
use super::request::Query;
use super::{Admin, Refusal, ok};
use crate::clock;
use crate::shards::Command;

/// How long holders have if nobody says.
const LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// How often it is looked whether they are gone.
const PERIOD: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Draining {
    draining: bool,
    limit_ms: u64,
    holders: u64,
}

/// `POST /api/drain`
pub(super) async fn answer(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&["limit"])?;
    let limit = match query.text("limit") {
        None => LIMIT_DEFAULT,
        Some(text) => parse_duration(text)
            .map_err(|error| Refusal::bad_request(format!("limit: {text:?}: {error}")))?,
    };
    let running = &admin.running;
    let is_new = running.begin_to_drain(clock::monotonic().after(limit));
    if is_new {
        info!(limit_ms = limit.as_millis(), "nothing is granted any more, holders may finish");
        for shard in running.shards.iter() {
            shard.tell(Command::StopGranting);
        }
    }
    let holders = running.locks_held().await;
    if is_new {
        runtime::spawn(watch(Rc::clone(running), admin.tell.clone()));
    }
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    Ok(ok(&Draining { draining: true, limit_ms, holders }))
}

/// Has the server shut down when it may.
async fn watch(running: Rc<Running>, tell: UnboundedSender<Event>) {
    loop {
        let holders = running.locks_held().await;
        let is_over = running.drain_ends_at().is_none_or(|at| at <= clock::monotonic());
        if holders == 0 || is_over {
            info!(holders, "the server is emptied as far as it was waited for");
            // Nobody listens any more only when the process is about to end.
            let _ = tell.send(Event::Drained);
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}
