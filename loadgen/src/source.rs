//! Outgoing connections: sockets that are being connected, from as many addresses as it takes.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::clock;

/// Sessions for which one source address is taken. It has some 28,000 ports, of which others have
/// some, and some have been used not long ago.
const SESSIONS_PER_ADDRESS: u32 = 10_000;

/// Loopback addresses that are used at most, 127.0.0.1 to 127.0.0.250.
const ADDRESSES_MAX: u32 = 250;

/// Addresses and ports that are tried for one connection.
const TRIES: u32 = 200;

/// The ports that the kernel gives to outgoing connections by default.
const PORTS_DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

/// Why a connection can't even be begun.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The server's machine said no.
    #[error("refused: {0}")]
    Refused(io::Error),
    /// This machine has no port left for it.
    #[error("no local port is left: {0}")]
    Ports(io::Error),
    /// This process has no descriptor left for it.
    #[error("no file descriptor is left: {0}")]
    Descriptors(io::Error),
    /// Something else is wrong on this side.
    #[error("cannot connect: {0}")]
    Other(io::Error),
}

impl ConnectError {
    /// Whether it says something about the load generator, and nothing about the server.
    pub fn is_own_limit(&self) -> bool {
        !matches!(self, ConnectError::Refused(_))
    }

    /// Whether it says that nobody listens there, rather than that somebody has hung up.
    pub fn is_nobody_there(&self) -> bool {
        let code = match self {
            ConnectError::Refused(error) => Errno::from_io_error(error),
            _ => None,
        };
        matches!(code, Some(Errno::CONNREFUSED | Errno::HOSTUNREACH))
    }
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED | Errno::CONNRESET | Errno::HOSTUNREACH) => {
                ConnectError::Refused(error)
            }
            Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => ConnectError::Ports(error),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                ConnectError::Descriptors(error)
            }
            _ => ConnectError::Other(error),
        }
    }
}

/// Begins connections to one server.
///
/// To a server on this machine they come from several loopback addresses, and from ports that are
/// counted up here: with 40,000 sessions the kernel's own search for a free port of a given address
/// took twenty times as long as the rest of connecting.
#[derive(Clone, Debug)]
pub struct Source {
    server: SocketAddr,
    /// How many source addresses there are; none if the kernel chooses address and port.
    addresses: u32,
    ports: RangeInclusive<u16>,
    /// The number of the next pair of address and port.
    next: u32,
    /// From one number to the next: how many threads count, each from another start.
    step: u32,
}

impl Source {
    /// For `sessions` at once.
    pub fn new(server: SocketAddr, sessions: u32) -> Source {
        let is_ipv4_loopback = matches!(server.ip(), IpAddr::V4(ip) if ip.is_loopback());
        let addresses = sessions.div_ceil(SESSIONS_PER_ADDRESS).clamp(1, ADDRESSES_MAX);
        // Not where the last run began, whose ports may not be free yet.
        let next = u32::try_from(clock::now().as_nanos() >> 10 & 0xff_ffff).expect("24 bits");
        Source {
            server,
            addresses: if is_ipv4_loopback { addresses } else { 0 },
            ports: local_ports(),
            next,
            step: 1,
        }
    }

    /// The part of one of so many threads.
    #[must_use]
    pub fn of_worker(self, worker: u32, workers: u32) -> Source {
        Source { next: self.next + worker, step: workers, ..self }
    }

    /// Goes on with another server on the same machine. Addresses and ports are counted on, so that
    /// none is soon used again: a port whose last connection the server's machine has not forgotten
    /// yet takes another try of the kernel's, some 10 ms later.
    pub fn lead_to(&mut self, server: SocketAddr) {
        self.server = server;
    }

    /// A socket that is being connected. What is sent on it waits until it is.
    ///
    /// # Errors
    /// What is known at once; the rest shows when something is sent.
    pub fn connect(
        &mut self,
        receive_buffer_bytes: Option<usize>,
    ) -> Result<OwnedFd, ConnectError> {
        let mut tries = 1;
        loop {
            let error = match self.try_once(receive_buffer_bytes) {
                Ok(socket) => return Ok(socket),
                Err(error) => ConnectError::from(error),
            };
            if self.addresses == 0 || tries == TRIES || !matches!(error, ConnectError::Ports(_)) {
                return Err(error);
            }
            tries += 1;
        }
    }

    fn try_once(&mut self, receive_buffer_bytes: Option<usize>) -> io::Result<OwnedFd> {
        let domain = Domain::for_address(self.server);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if let Some(bytes) = receive_buffer_bytes {
            // Before connecting: the window that the server is offered depends on it.
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.set_tcp_nodelay(true)?;
        if self.addresses > 0 {
            // A port whose last connection is over may be used again, to another one if need be.
            socket.set_reuse_address(true)?;
            socket.bind(&self.next_address().into())?;
        }
        match socket.connect(&self.server.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(socket.into()),
        }
    }

    /// Never the server's own: from there a socket would connect to itself while no server listens,
    /// and keep the server from its address.
    fn next_address(&mut self) -> SocketAddr {
        loop {
            let number = self.next;
            self.next = self.next.wrapping_add(self.step);
            let last = u8::try_from(1 + number % self.addresses).expect("at most 250");
            let count = u32::from(self.ports.end() - self.ports.start()) + 1;
            let offset = u16::try_from(number / self.addresses % count).expect("a port");
            let ip = Ipv4Addr::new(127, 0, 0, last);
            let address = SocketAddr::from((ip, self.ports.start() + offset));
            if address != self.server {
                return address;
            }
        }
    }
}

/// The ports of outgoing connections, so that no server's port is taken.
fn local_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) if first <= last => first..=last,
        _ => PORTS_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_comes_from_the_servers_own_address() {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_001));
        let ports = 40_000..=40_002;
        let mut source = Source { server, addresses: 2, ports, next: 0, step: 1 };
        let seen: Vec<_> = (0..10).map(|_| source.next_address()).collect();
        assert!(!seen.contains(&server), "{seen:?}");
        let others = seen[..5].iter().collect::<std::collections::HashSet<_>>();
        assert_eq!(others.len(), 5, "all others are used: {seen:?}");
    }
}
