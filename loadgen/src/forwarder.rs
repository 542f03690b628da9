//! One address for servers that take over from each other: a TCP forwarder that can be pointed at
//! another server, with or without breaking what goes through it.
//!
//! Both sides of a connection are sockets in a ring's file table, so that what limits their number
//! is the size of that table, for each relay thread anew, and not the process's descriptors.

mod relay;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolock_ring::{Acceptor, Bell, Dealer, Ring, SetupError, Waker};
use socket2::{Domain, Socket, Type};
use thiserror::Error;

use self::relay::Relay;

/// Connections that one relay has at most: both sides of each are in one ring, whose table can't be
/// larger than the limit of descriptors.
const CONNECTIONS_PER_RELAY_MAX: u32 = 9_000;

/// How long all connections may take to be gone when they are broken.
const FENCE_MAX: Duration = Duration::from_secs(20);

/// Why there is no forwarder, or none any more.
#[derive(Debug, Error)]
pub enum ForwarderError {
    /// There is no ring to be had.
    #[error("the forwarder: {0}")]
    Setup(#[from] SetupError),
    /// Something else that it needs.
    #[error("the forwarder: cannot get {0}: {1}")]
    Start(&'static str, io::Error),
    /// A relay's thread has ended.
    #[error("the forwarder has ended: {0}")]
    Ended(io::Error),
    /// Connections don't come to their end.
    #[error("the forwarder's connections are not gone {FENCE_MAX:?} after they were to be broken")]
    Fence,
}

/// Where new connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which server process it is, counted from 0.
    pub server: u32,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Which server each client is connected to. The forwarder notes it before it forwards a byte.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// By the client's address, for the newest connection that came from there.
    servers: Arc<Mutex<HashMap<SocketAddr, u32>>>,
}

impl Routes {
    /// The server that the connection from this address leads to.
    pub fn server_of(&self, client: SocketAddr) -> Option<u32> {
        self.lock().get(&client).copied()
    }

    fn note(&self, client: SocketAddr, server: u32) {
        self.lock().insert(client, server);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, u32>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all of a forwarder's threads know.
#[derive(Debug, Default)]
struct Switchboard {
    target: Mutex<Option<Target>>,
    routes: Routes,
}

impl Switchboard {
    fn target(&self) -> Option<Target> {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn point_at(&self, target: Option<Target>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }
}

/// Which connections are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    All,
    /// Those on which no server has said anything.
    Unanswered,
}

enum Order {
    /// Forward this client.
    Forward(OwnedFd, SocketAddr),
    /// Break these connections, and say so when they are gone.
    Break(Broken, Sender<()>),
    Stop,
}

/// Which part of a forwarder's connections a relay has.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The relay's number.
    number: u32,
    /// How many relays there are.
    of: u32,
    /// Connections at once.
    room: u32,
}

/// One relay, seen from outside.
struct RelayHandle {
    orders: Sender<Order>,
    waker: Waker,
    /// Connections that it has or is about to get.
    taken: Arc<AtomicU32>,
    thread: JoinHandle<io::Result<()>>,
}

impl RelayHandle {
    fn order(&self, order: Order) {
        // A relay that has ended is found out about by whoever looks after it.
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

/// A running forwarder on a port of 127.0.0.1. It ends when this is dropped.
#[expect(missing_debug_implementations, reason = "it is threads")]
pub struct Forwarder {
    address: SocketAddr,
    switchboard: Arc<Switchboard>,
    relays: Vec<RelayHandle>,
    acceptor: Option<Acceptor>,
}

impl Forwarder {
    /// Starts one that has room for so many connections and some that are about to end. It leads
    /// nowhere yet: who connects is closed.
    ///
    /// # Errors
    /// If threads, rings or a port can't be had.
    pub fn start(connections: u32) -> Result<Forwarder, ForwarderError> {
        let no = |what| move |error| ForwarderError::Start(what, error);
        let listener = listen().map_err(no("a port"))?;
        let address = listener.local_addr().map_err(no("the port's number"))?;
        let address = address.as_socket().expect("it is an IPv4 socket");
        let bell = Bell::new().map_err(no("an eventfd"))?;
        let switchboard = Arc::new(Switchboard::default());
        let room = connections + connections / 8 + 16;
        let count = room.div_ceil(CONNECTIONS_PER_RELAY_MAX);
        let mut relays = Vec::new();
        for number in 0..count {
            let share = Share { number, of: count, room: room.div_ceil(count) };
            relays.push(start_relay(share, &switchboard, &bell)?);
        }
        let dealer = RelayDealer {
            relays: relays
                .iter()
                .map(|relay| (relay.orders.clone(), relay.waker.clone(), Arc::clone(&relay.taken)))
                .collect(),
            room: room.div_ceil(count),
            next: 0,
        };
        let acceptor = Acceptor::start(OwnedFd::from(listener), bell, dealer);
        let acceptor = Some(acceptor.map_err(no("a thread for accepting"))?);
        Ok(Forwarder { address, switchboard, relays, acceptor })
    }

    /// The one address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Which client is connected to which server.
    pub fn routes(&self) -> Routes {
        self.switchboard.routes.clone()
    }

    /// Leads new connections there. Those that there are stay where they are.
    pub fn point_at(&self, target: Target) {
        self.switchboard.point_at(Some(target));
    }

    /// Breaks all connections and closes new ones, until it is pointed at a server again. When this
    /// returns, no connection is left on either side.
    ///
    /// # Errors
    /// If a relay has ended.
    pub fn fence(&mut self) -> Result<(), ForwarderError> {
        self.break_off(Broken::All)
    }

    /// Breaks connections on which no server has said anything, and closes new ones, until it is
    /// pointed at a server again. After a server has ended, before another one has its address:
    /// the kernel may still be trying to connect to the one, and would end up with the other.
    ///
    /// # Errors
    /// If a relay has ended.
    pub fn drop_unanswered(&mut self) -> Result<(), ForwarderError> {
        self.break_off(Broken::Unanswered)
    }

    fn break_off(&mut self, broken: Broken) -> Result<(), ForwarderError> {
        self.switchboard.point_at(None);
        let (gone, all_gone) = mpsc::channel();
        for relay in &self.relays {
            relay.order(Order::Break(broken, gone.clone()));
        }
        let deadline = Instant::now() + FENCE_MAX;
        for _ in 0..self.relays.len() {
            self.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match all_gone.recv_timeout(left) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(ForwarderError::Fence);
                }
            }
        }
        Ok(())
    }

    /// Whether it is still running.
    ///
    /// # Errors
    /// If a relay has ended.
    pub fn check(&mut self) -> Result<(), ForwarderError> {
        let Some(ended) = self.relays.iter().position(|relay| relay.thread.is_finished()) else {
            return Ok(());
        };
        match self.relays.swap_remove(ended).thread.join() {
            Ok(Ok(())) => unreachable!("a relay ends when it is told to"),
            Ok(Err(error)) => Err(ForwarderError::Ended(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
        for relay in self.relays.drain(..) {
            relay.order(Order::Stop);
            // Its error ends nothing any more, and its panic has been shown.
            let _ = relay.thread.join();
        }
    }
}

fn listen() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    // All clients may come at once. The kernel cuts it to what it permits.
    socket.listen(i32::MAX)?;
    Ok(socket)
}

fn start_relay(
    share: Share,
    switchboard: &Arc<Switchboard>,
    bell: &Bell,
) -> Result<RelayHandle, ForwarderError> {
    let (orders, inbox) = mpsc::channel();
    let (started, has_started) = mpsc::sync_channel(1);
    let taken = Arc::new(AtomicU32::new(0));
    let parts = (Arc::clone(switchboard), bell.clone(), Arc::clone(&taken));
    let body = move || {
        let slots = 2 * share.room;
        let config = monolock_ring::Config { slots, ..monolock_ring::Config::default() };
        let ring = match Ring::new(&config) {
            Ok(ring) => ring,
            Err(error) => {
                let _ = started.send(Err(error));
                return Ok(());
            }
        };
        let _ = started.send(Ok(ring.waker()));
        let (switchboard, bell, taken) = parts;
        Relay::new(ring, inbox, share, switchboard, bell, taken).run()
    };
    let thread = thread::Builder::new().name("forwarder".into()).spawn(body);
    let thread = thread.map_err(|error| ForwarderError::Start("a thread", error))?;
    let waker = has_started.recv().expect("a relay says how it started")?;
    Ok(RelayHandle { orders, waker, taken, thread })
}

/// Deals clients to the relays, on the acceptor's thread.
struct RelayDealer {
    relays: Vec<(Sender<Order>, Waker, Arc<AtomicU32>)>,
    /// Connections of each.
    room: u32,
    next: usize,
}

impl RelayDealer {
    /// The next relay that has room, in turn.
    fn find(&self) -> Option<usize> {
        let count = self.relays.len();
        let turn = (0..count).map(|offset| (self.next + offset) % count);
        let mut with_room =
            turn.filter(|&number| self.relays[number].2.load(Ordering::SeqCst) < self.room);
        with_room.next()
    }
}

impl Dealer for RelayDealer {
    fn has_room(&mut self) -> io::Result<bool> {
        Ok(self.find().is_some())
    }

    fn deal(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let number = self.find().expect("it was asked before, and only this thread takes room");
        self.next = (number + 1) % self.relays.len();
        let (orders, waker, taken) = &self.relays[number];
        taken.fetch_add(1, Ordering::SeqCst);
        // A relay that has ended is found out about by whoever looks after it.
        let _ = orders.send(Order::Forward(socket, peer));
        waker.wake();
    }

    fn accept_failed(&mut self, _error: &io::Error) {
        // The acceptor tries again. What can't be accepted in the end shows at the clients.
    }
}

type Inbox = Receiver<Order>;
