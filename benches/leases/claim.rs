//! A claim on a blocking socket.

use std::error::Error;
use std::io::{IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::time::Duration;

use monolock_core::wire::{
    Acquire, ERROR_LEN_MAX, HEARTBEAT, ServerFrame, decode_server, encode_acquire,
};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::source;

/// Far above every wait in these measurements.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Claim {
    pub(crate) socket: TcpStream,
    /// Read, and not yet looked at.
    unread: Vec<u8>,
    /// When the last bytes arrived, by the kernel's wall clock, however late they were read.
    arrived: Option<Duration>,
}

impl Claim {
    /// Connects, which takes its time, but asks for nothing yet.
    pub(crate) fn connect(server: SocketAddr) -> Result<Claim, Box<dyn Error>> {
        let socket = source::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Claim { socket, unread: Vec::new(), arrived: None })
    }

    /// Has the kernel note when bytes arrive.
    pub(crate) fn note_arrivals(&self) -> Result<(), Box<dyn Error>> {
        Ok(setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true)?)
    }

    /// When the answer arrived that was read last.
    pub(crate) fn arrived(&self) -> Result<Duration, Box<dyn Error>> {
        self.arrived.ok_or_else(|| "the kernel has not noted when an answer arrived".into())
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
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let mut notes = nix::cmsg_space!(TimeSpec);
        let socket = self.socket.as_raw_fd();
        let message = recvmsg::<()>(socket, &mut slices, Some(&mut notes), MsgFlags::empty())?;
        for note in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampns(arrived) = note {
                self.arrived = Some(arrived.into());
            }
        }
        match message.bytes {
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
