//! Sessions that send heartbeats at a constant rate and time the answers.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use monolock_core::wire::{Acquire, HEARTBEAT, encode_acquire};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Protocol, Socket, Type};

const ANSWER_LEN: usize = 9;

/// Sessions from one address, which has fewer ports than there are sessions.
const SESSIONS_AN_ADDRESS: usize = 8000;

/// The times of one round, in order of size.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an index")]
    #[expect(clippy::cast_sign_loss, reason = "an index")]
    pub(crate) fn percentile_ms(&self, percentile: f64) -> f64 {
        let index = ((self.0.len() - 1) as f64 * percentile) as usize;
        self.0[index].as_secs_f64() * 1e3
    }
}

/// The name of a lock by its number.
pub(crate) fn name_of(number: usize) -> String {
    format!("nightly/import/{number:06}")
}

/// A session with the lock of this number.
pub(crate) fn hold(server: SocketAddr, number: usize) -> Result<TcpStream, Box<dyn Error>> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    let last = u8::try_from(2 + number / SESSIONS_AN_ADDRESS)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 9, last), 0)).into())?;
    socket.connect(&server.into())?;
    socket.set_tcp_nodelay(true)?;
    let mut stream = TcpStream::from(socket);
    let mut frame = Vec::new();
    let lease_ms = 600_000.try_into().expect("not zero");
    encode_acquire(Acquire { lease_ms, name: &name_of(number) }, &mut frame);
    stream.write_all(&frame)?;
    stream.read_exact(&mut [0; ANSWER_LEN])?;
    Ok(stream)
}

pub(crate) struct Clients {
    sockets: Vec<TcpStream>,
    /// When the heartbeat that is not answered yet was due.
    due: Vec<Option<Instant>>,
    epoll: rustix::fd::OwnedFd,
    next: usize,
}

impl Clients {
    /// The first `count` sessions.
    pub(crate) fn open(server: SocketAddr, count: usize) -> Result<Clients, Box<dyn Error>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut sockets = Vec::with_capacity(count);
        for number in 0..count {
            let stream = hold(server, number)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            sockets.push(stream);
        }
        Ok(Clients { due: vec![None; count], sockets, epoll, next: 0 })
    }

    /// Heartbeats of all sessions in their turn, at this rate and for this long.
    pub(crate) fn beat(
        &mut self,
        rate: u64,
        duration: Duration,
    ) -> Result<Latencies, Box<dyn Error>> {
        let start = Instant::now();
        let interval = Duration::from_nanos(1_000_000_000 / rate);
        let (mut next_due, mut awaited) = (start, 0);
        let mut latencies = Vec::new();
        loop {
            let now = Instant::now();
            while next_due <= now && next_due < start + duration {
                let index = self.next % self.sockets.len();
                self.next += 1;
                if self.due[index].is_none() {
                    (&self.sockets[index]).write_all(&[HEARTBEAT])?;
                    self.due[index] = Some(next_due);
                    awaited += 1;
                }
                next_due += interval;
            }
            if awaited == 0 && next_due >= start + duration {
                latencies.sort_unstable();
                return Ok(Latencies(latencies));
            }
            awaited -= self.take_answers(&mut latencies)?;
        }
    }

    fn take_answers(&mut self, latencies: &mut Vec<Duration>) -> Result<usize, Box<dyn Error>> {
        let mut events = Vec::with_capacity(256);
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&self.epoll, buffer, Some(&tick))?;
        let (mut taken, mut answer) = (0, [0; 64]);
        for event in &events {
            let index = usize::try_from(event.data.u64())?;
            match (&self.sockets[index]).read(&mut answer) {
                Ok(ANSWER_LEN) => {}
                Ok(other) => return Err(format!("an answer of {other} bytes").into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            let due = self.due[index].take().ok_or("an answer that nobody waits for")?;
            latencies.push(due.elapsed());
            taken += 1;
        }
        Ok(taken)
    }
}
