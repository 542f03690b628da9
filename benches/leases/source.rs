//! Connections from addresses and ports of our own: those that the kernel hands out are too few for
//! a storm of connections, each of which leaves one behind for a minute.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

/// Below those that the kernel hands out.
const PORTS: Range<u32> = 1_025..32_768;

/// The last bytes of the clients' addresses.
const HOSTS: Range<u32> = 2..255;

/// An address of the loopback network that no other process uses; the server has the first.
pub(crate) fn own_address(host: u32) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 64 | (high & 63), low, 0).to_bits() | host)
}

/// Connects, each time from another port, and when all had their turn from another address.
pub(crate) fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = PORTS.end - PORTS.start;
    loop {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let host = HOSTS.start + turn / ports % (HOSTS.end - HOSTS.start);
        let port = u16::try_from(PORTS.start + turn % ports).expect("a port");
        let source = SocketAddr::from((own_address(host), port));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        // What is left of earlier connections is no hindrance.
        socket.set_reuse_address(true)?;
        match socket.bind(&source.into()).and_then(|()| socket.connect(&server.into())) {
            Ok(()) => return Ok(socket.into()),
            // Somebody listens on it on every address.
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}
