//! The admin API as it is seen by who asks: one request a connection, and an answer that is read as
//! it comes.

use std::io::{self, BufReader, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::failure::Failure;
use super::views::LastHold;

const DIAL_MAX: Duration = Duration::from_secs(5);

/// How long an answer may make no progress.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// More than any error of the API has.
const ERROR_MAX_BYTES: u64 = 64 << 10;

/// Where the admin API is.
pub(super) struct Api {
    address: String,
    host: String,
    runtime: Runtime,
}

impl Api {
    /// Dials nothing yet.
    pub(super) fn new(address: &str) -> Result<Api, Failure> {
        let host = host_of(address).ok_or_else(|| Failure::BadAddress(address.to_owned()))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Failure::System)?;
        Ok(Api { address: address.to_owned(), host, runtime })
    }

    /// Asks for this path, query and all.
    pub(super) fn get(&self, path: &str) -> Result<Answer<'_>, Failure> {
        self.request(Method::GET, path)
    }

    /// Asks, and waits for the head of an answer that is no refusal.
    pub(super) fn request(&self, method: Method, path: &str) -> Result<Answer<'_>, Failure> {
        let stream = self.dial()?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .expect("host and path were checked and encoded");
        let exchange = async {
            stream.set_nonblocking(true).map_err(Failure::System)?;
            let stream = tokio::net::TcpStream::from_std(stream).map_err(Failure::System)?;
            timeout(SILENCE_MAX, exchange(stream, request))
                .await
                .map_err(|_| Failure::Silent(self.address.clone()))?
                .map_err(|error| self.no_answer(&error))
        };
        let (sender, response) = self.runtime.block_on(exchange)?;
        let status = response.status();
        let answer = Answer {
            api: self,
            body: response.into_body(),
            unread: Bytes::new(),
            status,
            _sender: sender,
        };
        if status.is_success() { Ok(answer) } else { Err(answer.refusal()) }
    }

    fn dial(&self) -> Result<TcpStream, Failure> {
        let unreachable = |error| Failure::Unreachable { address: self.address.clone(), error };
        let addresses = self.address.to_socket_addrs().map_err(unreachable)?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect_timeout(&address, DIAL_MAX) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(match last.kind() {
            io::ErrorKind::ConnectionRefused => Failure::NobodyListens(self.address.clone()),
            _ => unreachable(last),
        })
    }

    fn no_answer(&self, error: &hyper::Error) -> Failure {
        if error.is_parse() {
            self.stranger("it does not answer in HTTP")
        } else {
            Failure::BrokenOff(self.address.clone())
        }
    }

    /// What answers is not monolock, because of this.
    pub(super) fn stranger(&self, why: impl Into<String>) -> Failure {
        Failure::Stranger { address: self.address.clone(), why: why.into() }
    }
}

/// What is said in the Host header, if this is HOST:PORT.
fn host_of(address: &str) -> Option<String> {
    if let Ok(literal) = address.parse::<SocketAddr>() {
        // Without the zone of a link-local address, which means something on this machine only.
        let without_zone = SocketAddr::new(literal.ip(), literal.port());
        return (literal.port() != 0).then(|| without_zone.to_string());
    }
    let authority: Authority = address.parse().ok()?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let (host, port) = (authority.host(), authority.port_u16()?);
    let is_whole = format!("{host}:{}", authority.port()?) == address;
    let is_right = is_whole && port != 0 && !host.is_empty() && host.chars().all(is_name);
    is_right.then(|| address.to_owned())
}

async fn exchange(
    stream: tokio::net::TcpStream,
    request: Request<Empty<Bytes>>,
) -> Result<(SendRequest<Empty<Bytes>>, Response<Incoming>), hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // How it ends shows in the answer.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    Ok((sender, response))
}

/// An answer of which the head has come.
pub(super) struct Answer<'a> {
    api: &'a Api,
    status: StatusCode,
    body: Incoming,
    unread: Bytes,
    /// The connection ends when nobody could send another request.
    _sender: SendRequest<Empty<Bytes>>,
}

impl Answer<'_> {
    /// Whether there is something to be read: a server may say that it is done, and no more.
    pub(super) fn has_content(&self) -> bool {
        self.status != StatusCode::NO_CONTENT
    }

    /// Reads all of it.
    pub(super) fn json<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let api = self.api;
        let mut json = serde_json::Deserializer::from_reader(BufReader::new(self));
        let value = T::deserialize(&mut json).and_then(|value| json.end().map(|()| value));
        value.map_err(|error| match error.io_error_kind() {
            Some(io::ErrorKind::TimedOut) => Failure::Silent(api.address.clone()),
            Some(_) => Failure::BrokenOff(api.address.clone()),
            None if error.is_eof() => Failure::BrokenOff(api.address.clone()),
            None => api.stranger(format!("its answer is not what was asked for: {error}")),
        })
    }

    fn refusal(self) -> Failure {
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
            last_hold: Option<LastHold>,
        }
        let (api, status) = (self.api, self.status);
        let refusal: Result<Refusal, _> =
            serde_json::from_reader(BufReader::new(self.take(ERROR_MAX_BYTES)));
        match (refusal, status) {
            (Ok(Refusal { error, last_hold }), StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {
                let last = last_hold.map(|hold| format!("; {hold}")).unwrap_or_default();
                Failure::NotThere(error + &last)
            }
            (Ok(Refusal { error, .. }), _) => Failure::Refused(error),
            (Err(_), _) => api.stranger(format!("it answers with status {status}")),
        }
    }
}

impl Read for Answer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            let body = &mut self.body;
            let frame =
                self.api.runtime.block_on(async { timeout(SILENCE_MAX, body.frame()).await });
            match frame {
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(None) => return Ok(0),
                Ok(Some(Err(error))) => return Err(io::Error::other(error)),
                // Behind the data there may be trailers.
                Ok(Some(Ok(frame))) => self.unread = frame.into_data().unwrap_or_default(),
            }
        }
        let part = self.unread.split_to(into.len().min(self.unread.len()));
        into[..part.len()].copy_from_slice(&part);
        Ok(part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (address, host) in [
            ("127.0.0.1:7071", "127.0.0.1:7071"),
            ("[::1]:7071", "[::1]:7071"),
            ("[fe80::1%2]:7071", "[fe80::1]:7071"),
            ("locks.example:80", "locks.example:80"),
        ] {
            assert_eq!(host_of(address).as_deref(), Some(host));
        }
        for address in [
            "",
            ":",
            ":7071",
            "localhost",
            "localhost:",
            "localhost:0",
            "127.0.0.1:0",
            "localhost:65536",
            "localhost:+1",
            "::1:7071",
            "http://localhost:7071",
            "user@localhost:7071",
            "a b:1",
            "a:1/b",
            "ä:1",
            "a\r\nb:1",
        ] {
            assert_eq!(host_of(address), None, "{address:?}");
        }
    }
}
