//! The endpoints for probes and for monitoring.

use std::fmt::Write;
use std::rc::Rc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::http::{self, Response, Service};
use super::metrics;
use super::running::Running;

/// Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What can be read.
pub const PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Answers probes and scrapes.
pub(super) struct Ops {
    pub(super) running: Rc<Running>,
}

impl Service for Ops {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response {
        let path = request.uri().path();
        if !PATHS.contains(&path) {
            let paths = format!("there is {}", PATHS.join(", "));
            return http::text(StatusCode::NOT_FOUND, &paths);
        }
        if !http::is_read(request.method()) {
            let answer = http::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
            return http::permitting(answer, "GET, HEAD");
        }
        match path {
            "/metrics" => {
                let exposition = metrics::exposition(&self.running).await;
                http::whole(StatusCode::OK, EXPOSITION, exposition)
            }
            "/healthz" => probe(self.health()),
            _ => probe(self.readiness()),
        }
    }
}

impl Ops {
    /// Whether the process should live on.
    fn health(&self) -> Result<(), String> {
        self.readiness()?;
        let stuck = self.running.loop_watch.stuck();
        if stuck.is_empty() {
            return Ok(());
        }
        let mut text = "event loops that do not turn:".to_owned();
        for shard in stuck {
            write!(text, " {shard}").expect("writing to a string");
        }
        Err(text)
    }

    /// Whether clients should come here.
    fn readiness(&self) -> Result<(), String> {
        if self.running.is_shutting_down() { Err("shutting down".into()) } else { Ok(()) }
    }
}

fn probe(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => http::text(StatusCode::OK, "ok"),
        Err(why) => http::text(StatusCode::SERVICE_UNAVAILABLE, &why),
    }
}
