//! A service of one's own, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use monolock_client::{Token, Written};

use crate::harness::http;
use crate::{Resource, check_at_once, check_in_turn};

#[path = "../../examples/recipes/service.rs"]
mod recipe;

use recipe::Guarded;

struct Service(SocketAddr);

/// A service that is as small as can be: a report that can be put and got.
fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let report = Arc::new(Guarded::new(0, String::new()));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, report) = (stream.expect("accepting"), Arc::clone(&report));
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                let head: Vec<String> = reader
                    .by_ref()
                    .lines()
                    .map_while(|line| line.ok().filter(|line| !line.is_empty()))
                    .collect();
                let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
                let len = header("Content-Length: ").map_or(0, |len| len.parse().expect("a len"));
                let mut body = vec![0; len];
                reader.read_exact(&mut body).expect("the body");
                let body = String::from_utf8(body).expect("UTF-8");
                let (status, text) = if head[0].starts_with("PUT ") {
                    recipe::put(&report, header("Fencing-Token: "), &body)
                } else {
                    (200, report.look(String::clone))
                };
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {}", text.len());
                stream.write_all(format!("{answer}\r\n\r\n{text}").as_bytes()).expect("a client");
            });
        }
    });
    address
}

fn put(service: SocketAddr, token: &str, body: &str) -> http::Answer {
    let len = body.len();
    let header =
        if token.is_empty() { String::new() } else { format!("Fencing-Token: {token}\r\n") };
    http::raw(
        service,
        &format!("PUT /report HTTP/1.1\r\n{header}Content-Length: {len}\r\n\r\n{body}"),
    )
}

impl Resource for Service {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        match put(self.0, &token.to_string(), text).status {
            200 => Written::Done(()),
            412 => Written::Refused,
            other => panic!("{other}"),
        }
    }

    fn content(&mut self) -> String {
        http::get(self.0, "/report").body
    }
}

#[test]
fn an_older_token_changes_nothing() {
    check_in_turn(&mut Service(start()));
    let address = start();
    check_at_once(|| Service(address));
}

#[test]
fn a_request_without_a_token_is_refused() {
    let address = start();
    for token in ["", "x", "-1"] {
        assert_eq!(put(address, token, "text").status, 428, "{token:?}");
    }
    assert_eq!(http::get(address, "/report").body, "");
}
