//! Listening sockets that were passed to the server by systemd's protocol, without systemd: the
//! test binds it, and a shell gives it the number 3 and the variables their values before it
//! becomes the server, under the same process number.

mod harness;

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::Signal;

use harness::client::Client;
use harness::http;
use harness::patience::{LONG_LEASE_MS, wait_until};
use harness::procfs;
use harness::server::{Launch, Server};
use harness::wire::code;

/// Moves what came as stdin to the number 3, where passed descriptors begin.
const MOVE_TO_3: &str = "exec 3<&0 </dev/null";

fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// The binary with this descriptor as number 3, after these words of the shell.
fn launch_with(descriptor: impl Into<OwnedFd>, words: &str) -> Launch {
    // Nobody can listen on this address: a server that tries to ends with an error.
    Launch::on("192.0.2.1:7070")
        .stdin(descriptor)
        .after_shell(&format!("{MOVE_TO_3}; export LISTEN_PID=$$ {words}"))
}

/// Starts it and checks where it says it listens.
#[track_caller]
fn start(launch: &Launch, address: SocketAddr) -> Server {
    let server = launch.start();
    assert_eq!(server.address(), address);
    server
}

#[test]
fn a_passed_listener_takes_the_place_of_the_listen_address() {
    for words in [
        "LISTEN_FDS=1 LISTEN_FDNAMES=protocol",
        "LISTEN_FDS=1",
        "LISTEN_FDS=1 LISTEN_FDNAMES=",
        "LISTEN_FDS=1 LISTEN_FDNAMES=monolock.socket",
    ] {
        let (listener, address) = bind();
        let server = start(&launch_with(listener, words), address);
        let (mut owner, token) = Client::owner(address, "lock", LONG_LEASE_MS);
        owner.expect_held(token);
        drop(server);
    }
}

#[test]
fn variables_for_another_process_are_ignored() {
    let (listener, address) = bind();
    for words in [
        "LISTEN_PID=1 LISTEN_FDS=1 LISTEN_FDNAMES=protocol",
        "LISTEN_PID= LISTEN_FDS=1",
        "LISTEN_FDS=0",
    ] {
        let duplicate = listener.try_clone().expect("duplicating a descriptor");
        let server = Launch::on_loopback()
            .stdin(duplicate)
            .after_shell(&format!("{MOVE_TO_3}; export LISTEN_PID=$$ {words}"))
            .start();
        assert_ne!(server.address(), address, "{words}");
        Client::owner(server.address(), "lock", LONG_LEASE_MS);
    }
}

#[test]
fn what_is_no_listening_tcp_socket_is_refused_in_one_line() {
    let (listener, address) = bind();
    let connected = TcpStream::connect(address).expect("connecting");
    let name = format!("monolock test {}", std::process::id());
    let name = UnixAddress::from_abstract_name(name).expect("an address");
    let unix = UnixListener::bind_addr(&name).expect("binding");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let file = File::open("/dev/zero").expect("a file");
    drop(listener);
    let wrong: [(OwnedFd, &str); 4] = [
        (connected.into(), "not listening"),
        (unix.into(), "no TCP socket"),
        (datagrams.into(), "no TCP socket"),
        (file.into(), "no socket"),
    ];
    for (descriptor, what) in wrong {
        let finished = launch_with(descriptor, "LISTEN_FDS=1 LISTEN_FDNAMES=protocol").run();
        let line = finished.expect_one_line(1);
        assert!(line.contains(what) && line.contains("descriptor 3"), "{what}: {line}");
    }
}

#[test]
fn a_number_that_nothing_was_passed_under_is_refused_in_one_line() {
    // Whatever the tests' own parent has left open there: 3 is the first that the server opens.
    let words = "exec 3<&-; export LISTEN_PID=$$ LISTEN_FDS=1";
    let finished = Launch::on_loopback().after_shell(words).run();
    let line = finished.expect_one_line(1);
    assert!(line.contains("no descriptor has this number"), "{line}");
}

#[test]
fn names_and_numbers_without_a_meaning_are_refused_in_one_line() {
    let (listener, _) = bind();
    for (words, variable) in [
        ("LISTEN_FDS=some", "LISTEN_FDS"),
        ("LISTEN_FDS=1 LISTEN_FDNAMES=smtp", "LISTEN_FDNAMES"),
        ("LISTEN_FDS=1 LISTEN_FDNAMES=protocol:protocol", "LISTEN_FDNAMES"),
        ("LISTEN_FDS=2 LISTEN_FDNAMES=protocol:smtp; exec 4<&3", "LISTEN_FDNAMES"),
        ("LISTEN_FDS=2 LISTEN_FDNAMES=protocol:protocol; exec 4<&3", "LISTEN_FDS"),
        ("LISTEN_FDS=2 LISTEN_FDNAMES=ops:ops; exec 4<&3", "LISTEN_FDS"),
        ("LISTEN_FDS=2; exec 4<&3", "LISTEN_FDNAMES"),
    ] {
        let duplicate = listener.try_clone().expect("duplicating a descriptor");
        let finished = launch_with(duplicate, words).run();
        let line = finished.expect_one_line(1);
        assert!(line.contains(variable), "{words}: {line}");
    }
}

#[test]
fn a_passed_listener_gets_the_options_of_an_own_one() {
    let (listener, address) = bind();
    let witness = listener.try_clone().expect("duplicating a descriptor");
    let own = Launch::on_loopback().start();
    let passed = start(&launch_with(listener, "LISTEN_FDS=1"), address);

    assert!(sockopt::tcp_nodelay(&witness).expect("an option"));
    assert!(sockopt::socket_keepalive(&witness).expect("an option"));
    assert_eq!(sockopt::tcp_user_timeout(&witness).expect("an option"), 60_000);
    let flags = rustix::fs::fcntl_getfl(&witness).expect("flags");
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK), "or accepting would block");
    let buffer = sockopt::socket_recv_buffer_size(&witness).expect("an option");
    assert_eq!(buffer, 32 << 10, "16 KiB, doubled by the kernel");

    assert_eq!(procfs::is_close_on_exec(passed.pid(), 3), Some(true));
    for server in [&own, &passed] {
        let (client, _) = Client::owner(server.address(), "lock", LONG_LEASE_MS);
        assert!(procfs::has_keepalive(server.address(), client.local_address()));
    }
}

#[test]
fn a_passed_ops_socket_takes_the_place_of_the_ops_address() {
    let (listener, address) = bind();
    let server = Launch::on_loopback()
        .args(["--ops-listen", "192.0.2.1:9090"])
        .stdin(listener)
        .after_shell(&format!("{MOVE_TO_3}; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=ops"))
        .start();
    assert_eq!(server.ops_address(), address);
    assert_eq!(http::get(address, "/healthz").status, 200);
    assert_ne!(server.address(), address);
    Client::owner(server.address(), "lock", LONG_LEASE_MS);
}

#[test]
fn who_connects_before_the_server_is_there_is_served_when_it_is() {
    let (listener, address) = bind();
    let mut early: Vec<Client> = (0..100)
        .map(|number| {
            let mut client = Client::connect(address);
            client.acquire(format!("lock {number}"), LONG_LEASE_MS);
            client
        })
        .collect();
    let _server = start(&launch_with(listener, "LISTEN_FDS=1"), address);
    for client in &mut early {
        client.expect_acquired();
    }
}

#[test]
fn the_first_connection_after_each_kill_is_answered_by_the_next_server() {
    let (listener, address) = bind();
    let launch = launch_with(listener, "LISTEN_FDS=1 LISTEN_FDNAMES=protocol");
    let mut last_token = 0;
    for round in 0..20 {
        let mut server = start(&launch, address);
        let (owner, token) = Client::owner(address, "lock", LONG_LEASE_MS);
        assert!(token > last_token, "round {round}: {token} after {last_token}");
        last_token = token;
        let mut waiter = Client::waiter(address, "lock", LONG_LEASE_MS);
        server.signal(Signal::KILL);
        server.wait_for_exit();
        // Whoever connects now meets no process at all, and waits for the next one.
        let mut first = Client::connect(address);
        first.acquire("lock", LONG_LEASE_MS);
        waiter.expect_end();
        let server = start(&launch, address);
        let token = first.expect_acquired();
        assert!(token > last_token, "round {round}: {token} after {last_token}");
        last_token = token;
        drop((owner, first, server));
    }
}

#[test]
fn a_shutdown_leaves_the_listener_to_the_next_server() {
    let (listener, address) = bind();
    let launch = launch_with(listener, "LISTEN_FDS=1 LISTEN_FDNAMES=protocol");
    let mut server = start(&launch, address);
    let (mut owner, token) = Client::owner(address, "lock", LONG_LEASE_MS);
    server.signal(Signal::TERM);
    owner.expect_refusal(code::SHUTTING_DOWN);
    assert!(server.wait_for_exit().success());
    let mut between = Client::connect(address);
    between.acquire("lock", LONG_LEASE_MS);
    between.expect_silence(Duration::from_millis(100));
    let _next = start(&launch, address);
    assert!(between.expect_acquired() > token);
    wait_until("the queue is empty", || procfs::accept_queue_len(address) == 0);
}
