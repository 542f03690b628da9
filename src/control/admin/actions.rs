//! Taking a lock from its holder, and a waiter from its queue.

use hyper::StatusCode;
use monolock_core::engine::ForceReleaseError;
use monolock_core::fencing::Token;
use monolock_core::snapshot::QueueCursor;
use serde::Serialize;
use tracing::info;

use super::super::http::Response;
use super::request::{LockPath, Query, parse_address};
use super::views::Holder;
use super::{Admin, Refusal, ok};
use crate::audit::{Event, What};

/// Waiters that are looked at in a slice.
const WAITERS_A_SLICE: usize = 256;

/// `POST /api/locks/{name}/release`
pub(super) async fn release(
    admin: &Admin,
    LockPath(name): LockPath,
    query: &Query,
) -> Result<Response, Refusal> {
    query.only(&["token"])?;
    let token = query.number("token", 1..=u64::MAX)?.and_then(Token::new);
    let running = &admin.running;
    let asked = name.clone();
    let released = running
        .ask(running.owner(&name), move |inspected| {
            let holder = inspected.engine.lock(&asked).and_then(|lock| lock.holder());
            inspected.engine.force_release(&asked, token, inspected.now)?;
            let holder = holder.expect("it was held");
            if let (Some(recorder), Some(token)) = (inspected.recorder, holder.token) {
                // The release itself is told of behind it.
                let what = What::ForceRelease { token: token.get() };
                let (time, lock, peer) = (inspected.now.unix, asked, holder.peer);
                recorder.record(Event { time, lock, peer, what });
            }
            Ok((Holder::new(&holder, inspected.now), holder.peer))
        })
        .await?;
    match released {
        Ok((holder, peer)) => {
            info!(lock = &*name, %peer, "force-released by an administrator");
            #[derive(Serialize)]
            struct Released<'a> {
                name: &'a str,
                released: Holder,
            }
            Ok(ok(&Released { name: &name, released: holder }))
        }
        Err(error @ ForceReleaseError::NotHeld) => Err(Refusal::not_found(error.to_string())),
        Err(error @ ForceReleaseError::OtherToken(_)) => {
            Err(Refusal::new(StatusCode::CONFLICT, error.to_string()))
        }
    }
}

/// `DELETE /api/locks/{name}/waiters/{remote_addr}`
pub(super) async fn kick(
    admin: &Admin,
    LockPath(name): LockPath,
    address: &str,
) -> Result<Response, Refusal> {
    let peer = parse_address(address)?;
    let running = &admin.running;
    let shard = running.owner(&name);
    let mut cursor = Some(QueueCursor::default());
    while let Some(mut from) = cursor.take() {
        let asked = name.clone();
        let search = running
            .ask(shard, move |inspected| {
                let Some(lock) = inspected.engine.lock(&asked) else {
                    return Search::Over;
                };
                let (waiters, is_at_end) = lock.waiters_behind(&mut from, WAITERS_A_SLICE);
                match waiters.iter().find(|waiter| waiter.peer == peer) {
                    Some(waiter) => {
                        let kicked =
                            inspected.engine.kick_session(&asked, waiter.session, inspected.now);
                        kicked.expect("it has just been seen");
                        if let Some(recorder) = inspected.recorder {
                            let (time, what) = (inspected.now.unix, What::KickWaiter);
                            recorder.record(Event { time, lock: asked, peer, what });
                        }
                        Search::Kicked
                    }
                    None if is_at_end => Search::Over,
                    None => Search::GoesOn(from),
                }
            })
            .await?;
        match search {
            Search::GoesOn(from) => cursor = Some(from),
            Search::Over => break,
            Search::Kicked => {
                info!(lock = &*name, %peer, "kicked by an administrator");
                #[derive(Serialize)]
                struct Kicked<'a> {
                    name: &'a str,
                    kicked: String,
                }
                return Ok(ok(&Kicked { name: &name, kicked: peer.to_string() }));
            }
        }
    }
    Err(Refusal::not_found(format!("nobody from {peer} waits for this lock")))
}

/// How far the search for a waiter is.
enum Search {
    GoesOn(QueueCursor),
    Kicked,
    Over,
}
