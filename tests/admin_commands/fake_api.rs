//! An admin API that the test plays itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

/// One that answers.
pub(crate) struct FakeApi {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeApi {
    /// The first lines of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no answer failed").clone()
    }
}

/// Answers each request by what this makes of its first line, and closes.
pub(crate) fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> FakeApi {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepting");
            let head: Vec<String> = BufReader::new(&stream)
                .lines()
                .map_while(|line| line.ok().filter(|line| !line.is_empty()))
                .collect();
            let Some(first) = head.first() else { continue };
            seen.lock().expect("no test failed").push(first.clone());
            // Who has left already wants no answer.
            let _ = stream.write_all(answer(first).as_bytes());
        }
    });
    FakeApi { address, requests }
}

/// A whole answer of JSON.
pub(crate) fn json(status: u16, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n\
         {body}"
    )
}
