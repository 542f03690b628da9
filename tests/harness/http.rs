//! HTTP/1.1 as raw text on a blocking socket, so that a test can also say what no client library
//! would.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::patience::PATIENCE;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header, if it is there.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Reads this path.
#[track_caller]
pub(crate) fn get(server: SocketAddr, path: &str) -> Answer {
    request(server, "GET", path, "")
}

/// One request, with these header lines beside Host and Connection.
#[track_caller]
pub(crate) fn request(server: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    raw(
        server,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n{headers}\r\n"
        ),
    )
}

/// Sends exactly this, and reads up to the end of the stream.
#[track_caller]
pub(crate) fn raw(server: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(server).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("setting the read timeout");
    stream.write_all(request.as_bytes()).expect("sending the request");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // What was read before stays.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("reading the answer to {request:?}: {error}"),
    }
    parse(&bytes).unwrap_or_else(|| {
        panic!("no answer to {request:?}: {:?}", String::from_utf8_lossy(&bytes))
    })
}

/// Sends exactly this to a server that leaves the connection open, whatever it is asked for, and
/// takes its time.
#[track_caller]
pub(crate) fn raw_patiently(server: SocketAddr, request: &str, patience: Duration) -> Answer {
    let mut stream = TcpStream::connect(server).expect("somebody listens");
    stream.set_read_timeout(Some(patience)).expect("setting the read timeout");
    stream.write_all(request.as_bytes()).expect("sending the request");
    let mut bytes = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        match stream.read(&mut part) {
            Ok(len @ 1..) => bytes.extend_from_slice(&part[..len]),
            result => panic!("the end of the answer to {request:?}: {result:?}"),
        }
        if let Some(answer) = parse(&bytes) {
            let len = answer.header("content-length").expect("the length is told");
            if answer.body.len() == len.parse::<usize>().expect("a length") {
                return answer;
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let head_len = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..head_len].to_vec()).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, head, body: String::new() };
    let body = &bytes[head_len + 4..];
    let body = match answer.header("transfer-encoding") {
        Some("chunked") => without_chunks(body)?,
        _ => body.to_vec(),
    };
    answer.body = String::from_utf8(body).ok()?;
    Some(answer)
}

/// `None` if the last chunk is missing.
fn without_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        if len == 0 {
            return Some(body);
        }
        rest = &rest[line + 2..];
        body.extend_from_slice(rest.get(..len)?);
        rest = rest.get(len + 2..)?;
    }
}
