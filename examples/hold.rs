//! Claims a lock, says what the server says, and lets go of it when Enter is pressed.
//!
//! `cargo run --release --example hold -- NAME [HOST:PORT]`
//!
//! It is here to look at, not to build upon: it trusts the server to end the lease and does not
//! give up on its own before that, as a real client must.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::process;
use std::thread;
use std::time::Duration;

use monolock_core::wire::{
    Acquire, HEARTBEAT, NAME_LEN_MAX, ServerFrame, decode_server, encode_acquire,
};

const LEASE_MS: NonZeroU32 = NonZeroU32::new(2000).expect("not zero");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: hold NAME [HOST:PORT]")?;
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err("a lock name has 1 to 255 bytes".into());
    }
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7070".into());
    let server = TcpStream::connect(&address)
        .map_err(|error| format!("cannot reach a server at {address}: {error}"))?;
    server.set_nodelay(true)?;
    server.set_read_timeout(Some(Duration::from_millis(u64::from(LEASE_MS.get() / 4))))?;

    let mut claim = Vec::new();
    encode_acquire(Acquire { lease_ms: LEASE_MS, name: &name }, &mut claim);
    (&server).write_all(&claim)?;
    release_on_enter();
    follow(&server, &name)
}

/// Prints every change of where the claim stands, and sends a heartbeat whenever the server has
/// been silent for a quarter of the lease.
fn follow(mut server: &TcpStream, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut unread = Vec::new();
    let mut told = None;
    loop {
        let mut bytes = [0; 512];
        match server.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => unread.extend_from_slice(&bytes[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                server.write_all(&[HEARTBEAT])?;
            }
            // Stopped by Ctrl-Z, and going on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        while let Some((frame, len)) = decode_server(&unread)? {
            let news = match frame {
                ServerFrame::Waiting => format!("waiting for {name:?}"),
                ServerFrame::Acquired(token) => {
                    format!("holding {name:?} with token {token}; Enter releases it")
                }
                ServerFrame::Error { code, reason } => {
                    format!("ended by the server: {code} {:?}", String::from_utf8_lossy(reason))
                }
            };
            unread.drain(..len);
            if told.as_ref() != Some(&news) {
                println!("{news}");
                told = Some(news);
            }
        }
    }
    println!("lost: the server has closed the connection");
    Ok(())
}

/// To close the connection is to release the lock: there is no message for it, and to exit is
/// enough.
fn release_on_enter() {
    thread::spawn(move || {
        if matches!(io::stdin().read_line(&mut String::new()), Ok(1..)) {
            println!("released");
            process::exit(0);
        }
    });
}
