//! The admin API, and a page that drives it. It has no authentication: who reaches the port may do
//! everything, so the address that it is bound to is the access control, and a page from elsewhere
//! in somebody's browser must not be able to reach it in that person's stead.

mod actions;
mod drain;
mod info;
mod listing;
mod lock_part;
mod origin;
mod page;
mod request;
mod sessions;
mod stream;
mod top;
mod views;

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;

use self::request::{LockPath, Query};
use super::Event;
use super::http::{self, Response, Service};
use super::running::{Running, Unanswered};
use crate::config::Config;

/// What can be asked: methods and paths.
pub const ENDPOINTS: [(&str, &str); 11] = [
    ("GET", "/"),
    ("GET", "/api/info"),
    ("GET", "/api/locks"),
    ("GET", "/api/locks/{name}"),
    ("POST", "/api/locks/{name}/release"),
    ("DELETE", "/api/locks/{name}/waiters/{remote_addr}"),
    ("GET", "/api/top"),
    ("GET", "/api/sessions"),
    ("GET", "/api/drain"),
    ("POST", "/api/drain"),
    ("DELETE", "/api/drain"),
];

/// Answers administrators.
pub(super) struct Admin {
    pub(super) running: Rc<Running>,
    pub(super) config: Config,
    pub(super) tell: UnboundedSender<Event>,
}

/// Why a request is not carried out.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    why: String,
    /// Where others would be permitted, which ones.
    methods: Option<&'static str>,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into(), methods: None }
    }

    fn bad_request(why: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, why)
    }

    fn not_found(why: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, why)
    }

    fn only(methods: &'static str) -> Refusal {
        let why = format!("only {methods} here");
        Refusal { methods: Some(methods), ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, why) }
    }

    fn response(self) -> Response {
        #[derive(Serialize)]
        struct Error {
            error: String,
        }
        let response = json(self.status, &Error { error: self.why });
        match self.methods {
            Some(methods) => http::permitting(response, methods),
            None => response,
        }
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, unanswered.to_string())
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("plain structs can be written");
    http::whole(status, "application/json", text)
}

fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}

impl Service for Admin {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response {
        let answer = match origin::check(&request, &self.config.admin_hosts) {
            Ok(()) => self.route(&request).await,
            Err(refusal) => Err(refusal),
        };
        answer.unwrap_or_else(Refusal::response)
    }
}

impl Admin {
    async fn route(&self, request: &Request<Incoming>) -> Result<Response, Refusal> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let method = request.method();
        match path.as_slice() {
            ["api", "info"] => {
                only_read(method)?;
                query.only(&[])?;
                Ok(info::answer(self).await)
            }
            ["api", "locks"] => {
                only_read(method)?;
                listing::answer(self, &query).await
            }
            ["api", "top"] => {
                only_read(method)?;
                top::answer(self, &query).await
            }
            ["api", "sessions"] => {
                only_read(method)?;
                sessions::answer(self, &query)
            }
            ["api", "drain"] => match *method {
                Method::GET | Method::HEAD => drain::progress(self, &query).await,
                Method::POST => drain::begin(self, &query).await,
                Method::DELETE => drain::cancel(self, &query).await,
                _ => Err(Refusal::only("GET, HEAD, POST, DELETE")),
            },
            ["api", "locks", name, rest @ ..] => {
                let lock = LockPath::parse(name)?;
                match rest {
                    [] => {
                        only_read(method)?;
                        listing::answer_one(self, lock, &query).await
                    }
                    ["release"] => {
                        only(method, &Method::POST, "POST")?;
                        actions::release(self, lock, &query).await
                    }
                    ["waiters", address] => {
                        only(method, &Method::DELETE, "DELETE")?;
                        query.only(&[])?;
                        actions::kick(self, lock, address).await
                    }
                    _ => Err(no_such_path()),
                }
            }
            [name] => {
                let file = page::file(name).ok_or_else(no_such_path)?;
                only_read(method)?;
                query.only(&[])?;
                Ok(file)
            }
            _ => Err(no_such_path()),
        }
    }
}

fn no_such_path() -> Refusal {
    let known: Vec<String> =
        ENDPOINTS.iter().map(|(method, path)| format!("{method} {path}")).collect();
    Refusal::not_found(format!(
        "no such path: there is {}; a name in a path is percent-encoded, / as %2F",
        known.join(", ")
    ))
}

fn only_read(method: &Method) -> Result<(), Refusal> {
    if http::is_read(method) { Ok(()) } else { Err(Refusal::only("GET, HEAD")) }
}

fn only(method: &Method, permitted: &Method, name: &'static str) -> Result<(), Refusal> {
    if method == permitted { Ok(()) } else { Err(Refusal::only(name)) }
}
