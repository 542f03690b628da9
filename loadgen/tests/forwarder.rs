//! The forwarder: bytes and ends go through unchanged, and what leads to an old server is broken or
//! left alone, as asked.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use monolock_loadgen::forwarder::{Forwarder, Target};

/// No test waits longer than this for a condition.
const DEADLINE: Duration = Duration::from_secs(20);

/// A listening socket that stands for a server.
struct Server {
    number: u32,
    listener: TcpListener,
}

impl Server {
    fn new(number: u32) -> Server {
        Server { number, listener: TcpListener::bind("127.0.0.1:0").expect("a free port") }
    }

    fn target(&self) -> Target {
        let address = self.listener.local_addr().expect("bound");
        Target { server: self.number, address }
    }

    fn accept(&self) -> TcpStream {
        with_deadline(self.listener.accept().expect("a connection").0)
    }
}

fn with_deadline(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn connect(forwarder: &Forwarder) -> TcpStream {
    with_deadline(TcpStream::connect(forwarder.address()).expect("the forwarder accepts"))
}

/// A client and its server's end.
fn pair(forwarder: &Forwarder, server: &Server) -> (TcpStream, TcpStream) {
    let client = connect(forwarder);
    (client, server.accept())
}

#[track_caller]
fn expect_carries(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    from.write_all(bytes).expect("it is taken");
    let mut read = vec![0; bytes.len()];
    to.read_exact(&mut read).expect("it arrives");
    assert_eq!(read, bytes);
}

#[track_caller]
fn expect_end(mut stream: &TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "{rest:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn bytes_go_both_ways_and_the_route_is_known() {
    let (mut forwarder, server) = (Forwarder::start(4).expect("a forwarder"), Server::new(7));
    forwarder.point_at(server.target());
    let (client, peer) = pair(&forwarder, &server);
    expect_carries(&client, &peer, b"acquire");
    expect_carries(&peer, &client, b"acquired");
    let address: SocketAddr = client.local_addr().expect("connected");
    assert_eq!(forwarder.routes().server_of(address), Some(7));
    forwarder.check().expect("it is running");
}

#[test]
fn more_than_a_buffer_goes_through_whole_though_it_is_read_late() {
    let (forwarder, server) = (Forwarder::start(1).expect("a forwarder"), Server::new(0));
    forwarder.point_at(server.target());
    let (client, peer) = pair(&forwarder, &server);
    let bytes: Vec<u8> = (0..8_000_000u32).map(|number| number.to_le_bytes()[0]).collect();
    let expected = bytes.clone();
    let writing = thread::spawn(move || {
        (&peer).write_all(&bytes).expect("it is taken");
    });
    let mut read = Vec::new();
    (&client).read_to_end(&mut read).expect("it arrives, and so does the end");
    assert!(read == expected, "{} of {} bytes", read.len(), expected.len());
    writing.join().expect("the writer");
}

#[test]
fn an_end_of_either_side_is_the_others() {
    let (forwarder, server) = (Forwarder::start(4).expect("a forwarder"), Server::new(0));
    forwarder.point_at(server.target());
    let (client, peer) = pair(&forwarder, &server);
    drop(client);
    expect_end(&peer);
    let (client, peer) = pair(&forwarder, &server);
    (&peer).write_all(b"bye").expect("it is taken");
    drop(peer);
    let mut last_words = Vec::new();
    (&client).read_to_end(&mut last_words).expect("they come before the end");
    assert_eq!(last_words, b"bye");
    // A half-close ends a claim, so it ends the connection here.
    let (client, peer) = pair(&forwarder, &server);
    client.shutdown(Shutdown::Write).expect("open");
    expect_end(&peer);
    expect_end(&client);
}

#[test]
fn a_fence_leaves_no_old_connection_and_lets_no_new_one_in() {
    let mut forwarder = Forwarder::start(64).expect("a forwarder");
    let (old, new) = (Server::new(0), Server::new(1));
    forwarder.point_at(old.target());
    let pairs: Vec<_> = (0..40).map(|_| pair(&forwarder, &old)).collect();
    forwarder.fence().expect("it is running");
    for (client, peer) in &pairs {
        expect_end(client);
        expect_end(peer);
    }
    expect_end(&connect(&forwarder));
    forwarder.point_at(new.target());
    let (client, peer) = pair(&forwarder, &new);
    expect_carries(&client, &peer, b"hello");
    let address = client.local_addr().expect("connected");
    assert_eq!(forwarder.routes().server_of(address), Some(1));
}

#[test]
fn without_a_fence_old_connections_stay_with_the_old_server() {
    let forwarder = Forwarder::start(4).expect("a forwarder");
    let (old, new) = (Server::new(0), Server::new(1));
    forwarder.point_at(old.target());
    let (old_client, old_peer) = pair(&forwarder, &old);
    // One that is in the making while the target changes is closed.
    expect_carries(&old_client, &old_peer, b"here");
    forwarder.point_at(new.target());
    let (new_client, new_peer) = pair(&forwarder, &new);
    expect_carries(&old_client, &old_peer, b"still here");
    expect_carries(&old_peer, &old_client, b"so am I");
    expect_carries(&new_client, &new_peer, b"there");
}

#[test]
fn who_is_led_to_a_dead_port_is_closed() {
    let forwarder = Forwarder::start(4).expect("a forwarder");
    expect_end(&connect(&forwarder));
    let server = Server::new(0);
    let target = server.target();
    drop(server);
    forwarder.point_at(target);
    expect_end(&connect(&forwarder));
}

#[test]
fn places_are_used_again() {
    let (forwarder, server) = (Forwarder::start(1).expect("a forwarder"), Server::new(0));
    forwarder.point_at(server.target());
    for _ in 0..200 {
        let (client, peer) = pair(&forwarder, &server);
        expect_carries(&client, &peer, b"?");
        expect_carries(&peer, &client, b"!");
        drop(client);
        expect_end(&peer);
    }
}

#[test]
fn who_finds_no_room_waits_for_it() {
    let (forwarder, server) = (Forwarder::start(1).expect("a forwarder"), Server::new(0));
    forwarder.point_at(server.target());
    // One place was asked for, and the forwarder has seventeen.
    let mut pairs: Vec<_> = (0..17).map(|_| pair(&forwarder, &server)).collect();
    let waiting = connect(&forwarder);
    pairs.pop();
    let peer = server.accept();
    expect_carries(&waiting, &peer, b"at last");
}
