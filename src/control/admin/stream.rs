//! An answer that is sent while it is still being made, so that neither a million locks nor a slow
//! reader take memory.

use std::future::Future;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use serde::Serialize;
use tokio::sync::mpsc;

use super::super::http::{self, Response};
use super::super::running::Unanswered;
use super::super::runtime;

/// Parts are sent when they have come to this size.
const PART_BYTES: usize = 32 << 10;

/// Why an answer is not completed. The connection is broken off, so that nobody takes a part of a
/// list for all of it.
#[derive(Debug)]
pub(super) enum Incomplete {
    /// An event loop does not answer.
    Unanswered,
    /// Nobody reads any more.
    Unread,
}

impl From<Unanswered> for Incomplete {
    fn from(_: Unanswered) -> Incomplete {
        Incomplete::Unanswered
    }
}

/// Where the parts of an answer go.
pub(super) struct Outgoing {
    parts: mpsc::Sender<Result<Bytes, http::BrokenOff>>,
    buffer: Vec<u8>,
}

impl Outgoing {
    /// Adds text as it is.
    pub(super) fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Adds a value as JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.buffer, value).expect("plain structs can be written");
    }

    /// Sends what there is, if it is enough for a part, and waits until it is taken.
    pub(super) async fn flush_if_full(&mut self) -> Result<(), Incomplete> {
        if self.buffer.len() < PART_BYTES { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Incomplete> {
        let part = std::mem::take(&mut self.buffer).into();
        self.parts.send(Ok(part)).await.map_err(|_| Incomplete::Unread)
    }
}

/// An answer of JSON that `make` makes.
pub(super) fn answer<F, M>(make: M) -> Response
where
    F: Future<Output = Result<Outgoing, Incomplete>> + 'static,
    M: FnOnce(Outgoing) -> F,
{
    let (parts, body) = mpsc::channel(1);
    let making = make(Outgoing { parts: parts.clone(), buffer: Vec::new() });
    runtime::spawn(async move {
        let made = match making.await {
            Ok(mut outgoing) => outgoing.flush().await,
            Err(incomplete) => Err(incomplete),
        };
        if let Err(Incomplete::Unanswered) = made {
            // Who has left meanwhile does not need it.
            let _ = parts.send(Err(http::BrokenOff)).await;
        }
    });
    let mut response = hyper::Response::new(http::Body::Parts(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
