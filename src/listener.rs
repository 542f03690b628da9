//! Listening sockets. Accepted ones inherit the options of theirs, so they are set here once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::fatal::Fatal;

/// What one socket may hold of unread input and of unsent answers; the kernel doubles both numbers
/// for its own bookkeeping. A claim's frames are a few bytes, and a million readers that don't read
/// must not own the memory.
const SOCKET_BUFFER_BYTES: usize = 16 << 10;

/// Below the timers of the usual NAT and load balancers, which forget a silent connection after
/// about five minutes, some after one.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(45);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;

/// How long sent bytes may stay unacknowledged before the kernel gives up on the peer.
const USER_TIMEOUT: Duration = Duration::from_secs(60);

/// As many connections as the kernel lets wait; it cuts the number down to `net.core.somaxconn`.
const BACKLOG: i32 = i32::MAX;

/// Listens on `address`, on IPv4 as well if it is `[::]`.
///
/// # Errors
/// A line that names the address and says what to do.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Fatal> {
    let listener = match bind(address) {
        // `:7070` on a machine without IPv6.
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
                && address.is_ipv6()
                && address.ip().is_unspecified() =>
        {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        bound => bound,
    };
    listener.map_err(|error| Fatal::dead_end(cannot_listen(address, "--listen", &error)))
}

/// Listens on `address`, which `flag` has chosen, for what is no session: HTTP.
///
/// # Errors
/// A line that names the address and says what to do.
pub fn listen_for_http(address: SocketAddr, flag: &str) -> Result<TcpListener, Fatal> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| Fatal::dead_end(cannot_listen(address, flag, &error)))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // With it the address can be bound again while old connections are still in the kernel. Never
    // SO_REUSEPORT: two servers on one address would be two lock services.
    socket.set_reuse_address(true)?;
    set_inherited_options(&socket)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Gives a socket that somebody else has bound, and that is listening already, what [`listen`]
/// gives its own. Connections that wait in its queue keep the options that it had before.
///
/// # Errors
/// The kernel's.
pub fn adopt(socket: &Socket) -> io::Result<()> {
    set_inherited_options(socket)?;
    socket.set_nonblocking(true)?;
    // On a listening socket this changes nothing but the length of its queue.
    socket.listen(BACKLOG)
}

/// The options that accepted sockets have from their listener.
fn set_inherited_options(socket: &Socket) -> io::Result<()> {
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES),
    )?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

fn cannot_listen(address: SocketAddr, flag: &str, error: &io::Error) -> String {
    let remedy = match error.kind() {
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            return format!(
                "cannot listen on {address}: {error}; raise the limit of open files (ulimit -n, \
                 LimitNOFILE= of the unit)"
            );
        }
        io::ErrorKind::AddrInUse => {
            "another process, perhaps a second monolock, has this address: stop it, or choose \
             another address"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address: choose another one"
        }
        io::ErrorKind::PermissionDenied if (1..1024).contains(&address.port()) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE: grant it, or choose another port"
        }
        _ => "choose another address",
    };
    format!("cannot listen on {address}: {error}; {remedy} with {flag}")
}
