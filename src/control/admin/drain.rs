//! Emptying a server before maintenance: nothing is granted any more, holders may finish, and when
//! they have, or when their time is over, the server shuts down. Until then it can be cancelled.
//!
//! It stays ready meanwhile, and clients may go on coming: their claims wait. If they were sent to
//! another server instead, that one would grant locks which are still held here.

use std::rc::Rc;
use std::time::Duration;

use hyper::StatusCode;
use monolock_core::duration::parse_duration;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;
use tracing::info;

use super::super::Event;
use super::super::http::Response;
use super::super::running::{Drain, Running};
use super::super::runtime;
use super::request::Query;
use super::{Admin, Refusal, ok};
use crate::clock::{self, whole_ms};
use crate::shards::Command;

/// How long holders have if nobody says.
const LIMIT_DEFAULT: Duration = Duration::from_secs(60);

/// How often it is looked whether they are gone.
const PERIOD: Duration = Duration::from_millis(100);

/// How far it is. Without a drain there are no times.
#[derive(Serialize)]
struct Progress {
    draining: bool,
    elapsed_ms: Option<u64>,
    remaining_ms: Option<u64>,
    holders: u64,
    waiters: u64,
}

/// `GET /api/drain`
pub(super) async fn progress(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&[])?;
    Ok(answer(&admin.running).await)
}

/// `POST /api/drain`
pub(super) async fn begin(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&["limit"])?;
    let limit = match query.text("limit") {
        None => LIMIT_DEFAULT,
        Some(text) => parse_duration(text)
            .map_err(|error| Refusal::bad_request(format!("limit: {text:?}: {error}")))?,
    };
    let running = &admin.running;
    is_not_too_late(running)?;
    let (drain, is_new) = running.begin_to_drain(limit);
    let limit_ms = whole_ms(limit);
    if is_new {
        info!(limit_ms, "nothing is granted any more, holders may finish");
        running.shards.iter().for_each(|shard| shard.tell(Command::StopGranting));
        runtime::spawn(watch(drain, Rc::clone(running), admin.tell.clone()));
    } else {
        info!(limit_ms, "holders have another limit to finish in");
    }
    Ok(answer(running).await)
}

/// `DELETE /api/drain`
pub(super) async fn cancel(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&[])?;
    let running = &admin.running;
    is_not_too_late(running)?;
    if !running.cancel_drain() {
        return Err(Refusal::not_found("the server is not being drained"));
    }
    info!("the drain is cancelled, locks are granted again");
    running.shards.iter().for_each(|shard| shard.tell(Command::ResumeGranting));
    Ok(answer(running).await)
}

fn is_not_too_late(running: &Running) -> Result<(), Refusal> {
    if running.is_shutting_down() {
        let why = "the server is shutting down already";
        return Err(Refusal::new(StatusCode::CONFLICT, why));
    }
    Ok(())
}

async fn answer(running: &Running) -> Response {
    let reports = running.loop_reports().await;
    let drain = running.drain();
    let now = clock::monotonic();
    ok(&Progress {
        draining: drain.is_some(),
        elapsed_ms: drain.map(|drain| whole_ms(now.since(drain.began))),
        remaining_ms: drain.map(|drain| whole_ms(drain.ends_at.since(now))),
        holders: reports.iter().map(|report| report.counts.locks_held).sum(),
        waiters: reports.iter().map(|report| report.counts.waiters).sum(),
    })
}

/// Has the server shut down when it may, unless the drain is cancelled before.
async fn watch(begun: Drain, running: Rc<Running>, tell: UnboundedSender<Event>) {
    loop {
        let reports = running.loop_reports().await;
        // Another limit may have been set meanwhile, or another drain have taken its place.
        let Some(drain) = running.drain().filter(|drain| drain.number == begun.number) else {
            return;
        };
        // Of a loop that does not answer it is not known.
        let is_empty =
            reports.iter().all(|report| report.is_current && report.counts.locks_held == 0);
        if is_empty || drain.ends_at <= clock::monotonic() {
            let holders: u64 = reports.iter().map(|report| report.counts.locks_held).sum();
            info!(holders, "the server is emptied as far as it was waited for");
            // From here on it can't be cancelled.
            running.begin_to_shut_down();
            // Nobody listens any more only when the process is about to end.
            let _ = tell.send(Event::Drained);
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}
