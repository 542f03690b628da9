//! A claim on a blocking socket.
#![allow(dead_code, reason = "each bench uses its own part of this module")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::wire::{
    Acquire, ERROR_LEN_MAX, HEARTBEAT, ServerFrame, decode_server, encode_acquire,
};

/// Far above every wait in these measurements.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Claim {
    pub(crate) socket: TcpStream,
    /// Read, and not yet looked at.
    unread: Vec<u8>,
}

impl Claim {
    /// Connects, which takes its time, but asks for nothing yet.
    pub(crate) fn connect(server: SocketAddr) -> Result<Claim, Box<dyn Error>> {
        let socket = TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Claim { socket, unread: Vec::new() })
    }

    pub(crate) fn acquire(&mut self, name: &str, lease_ms: NonZeroU32) -> std::io::Result<()> {
        let mut frame = Vec::new();
        encode_acquire(Acquire { lease_ms, name }, &mut frame);
        self.socket.write_all(&frame)
    }

    pub(crate) fn heartbeat(&mut self) -> std::io::Result<()> {
        self.socket.write_all(&[HEARTBEAT])
    }

    /// Reads one frame; whether it is ACQUIRED, or else WAITING.
    pub(crate) fn is_acquired(&mut self) -> Result<bool, Box<dyn Error>> {
        loop {
            let (acquired, len) = match decode_server(&self.unread)? {
                None => {
                    self.read()?;
                    continue;
                }
                Some((ServerFrame::Waiting, len)) => (false, len),
                Some((ServerFrame::Acquired(_), len)) => (true, len),
                Some((ServerFrame::Error { code, .. }, _)) => {
                    return Err(format!("the server says {code}").into());
                }
            };
            self.unread.drain(..len);
            return Ok(acquired);
        }
    }

    fn read(&mut self) -> Result<(), Box<dyn Error>> {
        let mut bytes = [0; ERROR_LEN_MAX];
        match self.socket.read(&mut bytes)? {
            0 => Err("the server has closed a connection".into()),
            len => {
                self.unread.extend_from_slice(&bytes[..len]);
                Ok(())
            }
        }
    }

    /// Waits for the end of the stream.
    pub(crate) fn expect_end(&mut self) -> Result<(), Box<dyn Error>> {
        match self.socket.read(&mut [0; 64])? {
            0 => Ok(()),
            len => Err(format!("{len} bytes in place of the end of the stream").into()),
        }
    }
}
