//! Connections, by where they come from.

use std::net::IpAddr;
use std::rc::Rc;

use super::super::http::Response;
use super::request::{Query, parse_address};
use super::stream;
use super::views::{PeerFilter, Session};
use super::{Admin, Refusal};

/// Places of a table that are looked at in a slice.
const PLACES_A_SLICE: u32 = 256;

/// `GET /api/sessions`
pub(super) fn answer(admin: &Admin, query: &Query) -> Result<Response, Refusal> {
    query.only(&["address", "identity"])?;
    let filter = match query.text("address") {
        None => None,
        Some(text) => Some(match text.parse::<IpAddr>() {
            Ok(ip) => PeerFilter::Host(ip),
            Err(_) => PeerFilter::Exactly(parse_address(text)?),
        }),
    };
    // Nobody has an identity without TLS.
    let is_none_meant = query.text("identity").is_some_and(|identity| !identity.is_empty());
    let running = Rc::clone(&admin.running);
    Ok(stream::answer(|mut outgoing| async move {
        outgoing.text(r#"{"sessions":["#);
        let mut is_first = true;
        let shards = if is_none_meant { 0 } else { running.shards.len() };
        for shard in 0..shards {
            let mut from = Some(0);
            while let Some(place) = from {
                let (sessions, now, next) = running
                    .ask(shard, move |inspected| {
                        let (views, next) = inspected.engine.sessions_from(place, PLACES_A_SLICE);
                        let wanted = views
                            .filter(|view| filter.is_none_or(|filter| filter.matches(view.peer)));
                        (wanted.collect::<Vec<_>>(), inspected.now, next)
                    })
                    .await?;
                from = next;
                for session in sessions {
                    outgoing.text(if std::mem::take(&mut is_first) { "" } else { "," });
                    outgoing.json(&Session::new(session, now));
                }
                outgoing.flush_if_full().await?;
            }
        }
        outgoing.text("]}");
        Ok(outgoing)
    }))
}
