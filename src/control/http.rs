//! HTTP for those who look after the server: few connections, short waits, and no way for a client
//! that is slow, silent or many to keep others out for long.

use std::cell::Cell;
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use monolock_core::time::Instant;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tracing::{debug, warn};

use super::runtime;
use crate::clock;

/// Connections of one port at a time. Descriptors are kept back for them.
pub(super) const CONNECTIONS_MAX: usize = 8;

/// How long a connection may be without a whole request coming in or a part of an answer going out.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// After so long without progress a connection makes room for another one, if there is none
/// otherwise: one that could have sent its request by then, and one that takes nothing of its
/// answer.
const SILENT_MIN: Duration = Duration::from_millis(50);
const STALLED_MIN: Duration = Duration::from_secs(1);

/// After so long a connection that never lacks progress gives way to others all the same, if there
/// is no room otherwise: at the end of the answer that it is getting, or in the end at once.
const STAY_MIN: Duration = Duration::from_secs(1);
const STAY_MAX: Duration = Duration::from_secs(10);

/// How much of a request's head is taken in.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// How long to wait after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// An answer.
pub(super) type Response = hyper::Response<Body>;

/// What answers requests.
pub(super) trait Service: 'static {
    /// Answers one. Must not wait for long, nor compute for long without waiting.
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response;
}

/// Answers requests to this port for ever.
pub(super) async fn serve(listener: TcpListener, service: Rc<impl Service>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            warn!("cannot wait for connections to an HTTP port: {error}");
            return;
        }
    };
    let crowd = Rc::new(Crowd::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Those behind it wait in the kernel's queue meanwhile.
                crowd.has_room().await;
                let connection = crowd.enter();
                runtime::spawn(attend(stream, connection, Rc::clone(&crowd), Rc::clone(&service)));
            }
            Err(error) => {
                warn!("cannot accept a connection to an HTTP port, will try again: {error}");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn attend(
    stream: TcpStream,
    connection: Rc<Connection>,
    crowd: Rc<Crowd>,
    service: Rc<impl Service>,
) {
    // Without it answers are a little later, nothing worse.
    let _ = stream.set_nodelay(true);
    let exchange = service_fn(|request| {
        let (service, connection) = (Rc::clone(&service), Rc::clone(&connection));
        let crowd = Rc::clone(&crowd);
        async move {
            let progress = Answering::begin(connection, crowd);
            let mut response = service.answer(request).await;
            response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
            Ok::<_, Infallible>(response.map(|body| Watched { body, progress }))
        }
    });
    let serving = http1::Builder::new()
        // Who has sent all of its requests may say so by closing that side.
        .half_close(true)
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), exchange);
    let mut serving = pin!(serving);
    loop {
        tokio::select! {
            result = &mut serving => {
                if let Err(error) = result {
                    debug!("an HTTP connection ended: {error}");
                }
                break;
            }
            () = connection.must_finish.notified() => serving.as_mut().graceful_shutdown(),
            () = connection.is_idle() => {
                debug!("an HTTP connection was idle and is closed");
                break;
            }
            () = connection.must_go.notified() => {
                debug!("an HTTP connection is closed to let another one in");
                break;
            }
        }
    }
    crowd.leave(&connection);
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The connections of one port.
#[derive(Default)]
struct Crowd {
    /// In the order in which they came.
    connections: RefCell<Vec<Rc<Connection>>>,
    has_changed: Notify,
}

struct Connection {
    began: Instant,
    /// When it began, a request came, or a part of an answer went out.
    last_progress: Cell<Instant>,
    is_answered: Cell<bool>,
    /// The answer that it is getting is its last one.
    must_finish: Notify,
    must_go: Notify,
}

impl Crowd {
    /// Waits until one more may come in. Who has made no progress for longest makes room, or else
    /// who has been in for longest.
    async fn has_room(&self) {
        loop {
            let has_changed = self.has_changed.notified();
            {
                let connections = self.connections.borrow();
                if connections.len() < CONNECTIONS_MAX {
                    return;
                }
                let longest = (connections.iter())
                    .filter(|connection| connection.is_dispensable())
                    .min_by_key(|connection| connection.last_progress.get());
                if let Some(longest) = longest {
                    longest.must_go.notify_one();
                } else if let Some(first) = connections.first() {
                    first.give_way();
                }
            }
            // If nobody has left meanwhile, somebody may have become dispensable.
            let _ = tokio::time::timeout(SILENT_MIN, has_changed).await;
        }
    }

    fn enter(&self) -> Rc<Connection> {
        let now = clock::monotonic();
        let connection = Rc::new(Connection {
            began: now,
            last_progress: Cell::new(now),
            is_answered: Cell::new(false),
            must_finish: Notify::new(),
            must_go: Notify::new(),
        });
        self.connections.borrow_mut().push(Rc::clone(&connection));
        connection
    }

    fn leave(&self, connection: &Rc<Connection>) {
        self.connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, connection));
        self.has_changed.notify_one();
    }
}

impl Connection {
    fn is_dispensable(&self) -> bool {
        let least = if self.is_answered.get() { STALLED_MIN } else { SILENT_MIN };
        clock::monotonic().since(self.last_progress.get()) >= least
    }

    fn give_way(&self) {
        let stay = clock::monotonic().since(self.began);
        if stay >= STAY_MAX {
            self.must_go.notify_one();
        } else if stay >= STAY_MIN {
            self.must_finish.notify_one();
        }
    }

    async fn is_idle(&self) {
        loop {
            let idle = clock::monotonic().since(self.last_progress.get());
            let Some(left) = IDLE_MAX.checked_sub(idle).filter(|left| !left.is_zero()) else {
                return;
            };
            tokio::time::sleep(left).await;
        }
    }
}

/// A request of a connection that is being answered.
struct Answering {
    connection: Rc<Connection>,
    crowd: Rc<Crowd>,
}

impl Answering {
    fn begin(connection: Rc<Connection>, crowd: Rc<Crowd>) -> Answering {
        connection.is_answered.set(true);
        connection.last_progress.set(clock::monotonic());
        Answering { connection, crowd }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.connection.is_answered.set(false);
        self.connection.last_progress.set(clock::monotonic());
        self.crowd.has_changed.notify_one();
    }
}

/// What an answer says.
pub(super) enum Body {
    /// All of it.
    Whole(Full<Bytes>),
    /// Parts that are still being made. The one who makes them waits for each to be taken.
    Parts(mpsc::Receiver<Result<Bytes, BrokenOff>>),
}

/// An answer can't be completed; its connection is broken off, so that nobody takes the part for
/// the whole.
#[derive(Debug, Error)]
#[error("the answer could not be completed")]
pub(super) struct BrokenOff;

/// A body whose going out counts as progress of its connection.
struct Watched {
    body: Body,
    progress: Answering,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        // Asked for more only when what was given before has been taken by the socket.
        this.progress.connection.last_progress.set(clock::monotonic());
        match &mut this.body {
            Body::Whole(body) => {
                Pin::new(body).poll_frame(context).map_err(|infallible| match infallible {})
            }
            Body::Parts(parts) => parts.poll_recv(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Body::Whole(body) => body.is_end_stream(),
            Body::Parts(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Body::Whole(body) => body.size_hint(),
            Body::Parts(_) => SizeHint::default(),
        }
    }
}

/// A whole answer.
pub(super) fn whole(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response {
    let mut response = hyper::Response::new(Body::Whole(Full::new(text.into())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A short answer in words.
pub(super) fn text(status: StatusCode, text: &str) -> Response {
    whole(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// Says which methods there are in place of the one that was used.
pub(super) fn permitting(mut response: Response, methods: &'static str) -> Response {
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

/// Whether the request only wants to read; hyper leaves the body of an answer to HEAD away.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
