//! Reads lists of all locks, whole and in pages, and checks that every lock is there once and in
//! bytewise order.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::clients::name_of;

/// What stands before the name of a lock, and nowhere else in these lists.
const BEFORE_NAME: &[u8] = b"{\"name\":\"";

/// What stands before the name that the next page begins behind.
const BEFORE_NEXT: &[u8] = b"\"next_after\":\"";

/// Reads the list of all locks; gives its length in bytes.
pub(crate) fn read_whole(admin: &str, locks: usize) -> Result<usize, Box<dyn Error>> {
    let mut expected = 0;
    let answer = request(admin, "/api/locks")?;
    check(&answer, &mut expected)?;
    if expected == locks { Ok(answer.len()) } else { Err(format!("{expected} locks").into()) }
}

/// Reads all locks in pages; gives how many there were.
pub(crate) fn read_pages(admin: &str, locks: usize, limit: usize) -> Result<usize, Box<dyn Error>> {
    let (mut expected, mut pages) = (0, 0);
    let mut path = format!("/api/locks?limit={limit}");
    loop {
        let answer = request(admin, &path)?;
        check(&answer, &mut expected)?;
        pages += 1;
        let Some(place) = find(&answer, BEFORE_NEXT) else { break };
        let last = text_at(&answer, place + BEFORE_NEXT.len());
        path = format!("/api/locks?limit={limit}&after={}", last.replace('/', "%2F"));
    }
    if expected == locks { Ok(pages) } else { Err(format!("{expected} locks in pages").into()) }
}

fn request(admin: &str, path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = TcpStream::connect(admin)?;
    // By HTTP/1.0 it comes without chunks, up to the end of the stream.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.0 200 OK\r\n") || !answer.ends_with(b"}") {
        return Err(format!("{path}: an answer of {} bytes is no list", answer.len()).into());
    }
    Ok(answer)
}

/// The names in the answer are those of the locks from number `expected` on.
fn check(answer: &[u8], expected: &mut usize) -> Result<(), Box<dyn Error>> {
    let mut rest = answer;
    while let Some(place) = find(rest, BEFORE_NAME) {
        rest = &rest[place + BEFORE_NAME.len()..];
        let name = text_at(rest, 0);
        if name != name_of(*expected) {
            return Err(format!("{name} in the place of {}", name_of(*expected)).into());
        }
        *expected += 1;
    }
    Ok(())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// What stands from here to the next quotation mark.
fn text_at(text: &[u8], place: usize) -> String {
    let text = text[place..].split(|&byte| byte == b'"').next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
