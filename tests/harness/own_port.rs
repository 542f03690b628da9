//! Connections by the ten thousand without the ports that the kernel hands out, which are fewer
//! than all tests of a machine may want at one time.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use super::patience::PATIENCE;

/// Below those that the kernel hands out, so that nobody finds one of them taken.
const PORTS: std::ops::Range<u32> = 1_025..32_768;

/// An address of the loopback network that no other process uses for the same.
pub(crate) fn own_address(last_byte: u8) -> Ipv4Addr {
    let [.., high, low] = process::id().to_be_bytes();
    Ipv4Addr::new(127, 128 | high, low, last_byte)
}

/// Connects to a server on IPv4, from an address and a port that are this connection's alone.
#[track_caller]
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        let port = u16::try_from(PORTS.start + turn).expect("a port");
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
        let socket = socket.expect("a socket");
        // What is left of earlier connections is no hindrance.
        socket.set_reuse_address(true).expect("setting SO_REUSEADDR");
        let source = SocketAddr::from((own_address(250), port));
        let connecting = socket
            .bind(&source.into())
            .and_then(|()| socket.connect_timeout(&server.into(), PATIENCE));
        match connecting.map_err(|error| (error.kind(), error)) {
            Ok(()) => {
                // Otherwise the kernel would glue together what a test sends split.
                socket.set_tcp_nodelay(true).expect("setting TCP_NODELAY");
                return socket.into();
            }
            // Somebody listens on it, or it still belongs to a connection of this one's.
            Err((ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable, _)) => {}
            Err((_, error)) => panic!("connecting to {server} from {source}: {error}"),
        }
    }
    panic!("every port is taken")
}
