//! Very many clients in one thread, for which a [`Client`](super::client::Client) each would be too
//! slow to watch: the kernel tells which of them have got something, and the time is taken then.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::{Resource, Rlimit};
use rustix::time::Timespec;
use socket2::SockRef;

use super::client::Event;
use super::own_port;
use super::patience::PATIENCE;
use super::wire::{self, Frame};

/// How many members can be told to have got something at once.
const READY_MAX: usize = 512;

/// Clients of one server, each with a number.
pub(crate) struct Crowd {
    /// A member that has left is `None`.
    members: Vec<Option<Member>>,
    watch: OwnedFd,
}

struct Member {
    stream: TcpStream,
    /// Received, and not yet a whole frame.
    unread: Vec<u8>,
    /// The last frame that it got.
    last: Option<Frame>,
    has_ended: bool,
}

/// Something that a member got.
pub(crate) struct Sight {
    pub(crate) member: usize,
    pub(crate) event: Event,
    pub(crate) at: Instant,
}

impl Crowd {
    /// Connects so many clients, which say nothing yet.
    #[track_caller]
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Crowd {
        raise_open_file_limit();
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        let mut crowd = Crowd { members: Vec::with_capacity(count), watch };
        for _ in 0..count {
            crowd.join(server);
        }
        crowd
    }

    /// Connects so many clients, each of which claims a lock. On return all have their answers, and
    /// none has been silent for long.
    #[track_caller]
    pub(crate) fn claim(
        server: SocketAddr,
        count: usize,
        name: impl Fn(usize) -> String,
        lease_ms: u32,
    ) -> Crowd {
        const AT_A_TIME: usize = 500;
        let mut crowd = Crowd::connect(server, 0);
        let restart = Duration::from_millis(u64::from(lease_ms / 4));
        let mut restarted = Instant::now();
        while crowd.len() < count {
            let mut asked = crowd.len();
            if restarted.elapsed() > restart {
                restarted = Instant::now();
                crowd.heartbeat(0..asked);
                asked = 0;
            }
            for number in crowd.len()..count.min(crowd.len() + AT_A_TIME) {
                crowd.join(server);
                crowd.send(number, &wire::acquire(name(number), lease_ms));
            }
            crowd.expect_answers(asked..crowd.len());
        }
        crowd
    }

    /// One more client; gives its number.
    #[track_caller]
    pub(crate) fn join(&mut self, server: SocketAddr) -> usize {
        let number = self.members.len();
        let stream = own_port::connect(server);
        stream.set_nonblocking(true).expect("setting non-blocking");
        let data = epoll::EventData::new_u64(number as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&self.watch, &stream, data, flags).expect("watching a socket");
        let member = Member { stream, unread: Vec::new(), last: None, has_ended: false };
        self.members.push(Some(member));
        number
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Sends a few bytes, which must find room in the socket's buffer.
    #[track_caller]
    pub(crate) fn send(&mut self, number: usize, bytes: &[u8]) {
        let sent = self.member(number).stream.write(bytes);
        match sent {
            Ok(sent) => assert_eq!(sent, bytes.len(), "member {number}: no room"),
            Err(error) => panic!("member {number}: sending: {error}"),
        }
    }

    #[track_caller]
    pub(crate) fn heartbeat(&mut self, numbers: Range<usize>) {
        for number in numbers {
            self.send(number, &[wire::HEARTBEAT]);
        }
    }

    /// Closes a member's connection.
    pub(crate) fn leave(&mut self, number: usize) {
        self.members[number] = None;
    }

    /// Breaks a member's connection off with an RST.
    pub(crate) fn reset(&mut self, number: usize) {
        SockRef::from(&self.member(number).stream)
            .set_linger(Some(Duration::ZERO))
            .expect("setting SO_LINGER");
        self.leave(number);
    }

    /// The last frame that a member got.
    pub(crate) fn last_frame(&mut self, number: usize) -> Option<Frame> {
        self.member(number).last.clone()
    }

    fn member(&mut self, number: usize) -> &mut Member {
        self.members[number].as_mut().expect("who has left is not used")
    }

    /// Shows everything that members get, in the order in which it is seen, until `is_done` says
    /// that it was all.
    #[track_caller]
    pub(crate) fn watch_until(&mut self, what: &str, mut is_done: impl FnMut(Sight) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ready = self.wait(deadline);
            assert!(!ready.is_empty(), "waited in vain until {what}");
            let at = Instant::now();
            for member in ready {
                for event in self.read(member) {
                    if is_done(Sight { member, event, at }) {
                        return;
                    }
                }
            }
        }
    }

    /// Shows what is there now and what comes in this time.
    pub(crate) fn watch_for(&mut self, duration: Duration, mut show: impl FnMut(Sight)) {
        let deadline = Instant::now() + duration;
        loop {
            let ready = self.wait(deadline);
            let at = Instant::now();
            for member in &ready {
                for event in self.read(*member) {
                    show(Sight { member: *member, event, at });
                }
            }
            if ready.is_empty() && at >= deadline {
                return;
            }
        }
    }

    /// One frame for each of these members, and nothing for anybody else. Gives how long after the
    /// call each has come.
    #[track_caller]
    pub(crate) fn expect_answers(&mut self, numbers: Range<usize>) -> Latencies {
        let start = Instant::now();
        let mut waiting = numbers.len();
        let mut answered = vec![false; self.len()];
        let mut latencies = Latencies::default();
        if waiting > 0 {
            self.watch_until("every member has its answer", |sight| {
                let Sight { member, event, at } = sight;
                assert!(matches!(event, Event::Frame(_)), "member {member} got {event:?}");
                assert!(numbers.contains(&member), "member {member} was not asked");
                assert!(!answered[member], "member {member} got two answers");
                answered[member] = true;
                latencies.add(at.saturating_duration_since(start));
                waiting -= 1;
                waiting == 0
            });
        }
        latencies
    }

    /// The clean end of the stream for each of these members, and before it a frame if one is
    /// asked for. Gives how long after `start` each end has come.
    #[track_caller]
    pub(crate) fn expect_ends(
        &mut self,
        numbers: Range<usize>,
        farewell: Option<u8>,
        start: Instant,
    ) -> Latencies {
        let mut waiting = numbers.len();
        let mut latencies = Latencies::default();
        let mut told = vec![None; self.len()];
        self.watch_until("every member has seen the end", |sight| {
            let Sight { member, event, at } = sight;
            assert!(numbers.contains(&member), "member {member} got {event:?}");
            match event {
                Event::Frame(Frame::Error { code, .. }) => {
                    assert_eq!(told[member].replace(code), None, "member {member}");
                }
                Event::Eof => {
                    assert_eq!(told[member], farewell, "member {member}");
                    latencies.add(at.saturating_duration_since(start));
                    waiting -= 1;
                }
                other => panic!("member {member} got {other:?}"),
            }
            waiting == 0
        });
        latencies
    }

    fn wait(&self, deadline: Instant) -> Vec<usize> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("a short time");
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(READY_MAX);
        loop {
            match epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut ready), Some(&left))
            {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("waiting for sockets: {error}"),
            }
        }
        let number = |event: &epoll::Event| usize::try_from(event.data.u64()).expect("a number");
        ready.iter().map(number).filter(|number| self.members[*number].is_some()).collect()
    }

    /// All that a member can read now.
    fn read(&mut self, number: usize) -> Vec<Event> {
        let watch = &self.watch;
        let member = self.members[number].as_mut().expect("it is watched");
        let mut events = Vec::new();
        let mut buffer = [0; 4096];
        while !member.has_ended {
            let end = match member.stream.read(&mut buffer) {
                Ok(0) => Event::Eof,
                Ok(n) => {
                    member.unread.extend_from_slice(&buffer[..n]);
                    while let Some(frame) = Frame::take(&mut member.unread) {
                        member.last = Some(frame.clone());
                        events.push(Event::Frame(frame));
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Event::Reset,
                Err(error) => panic!("member {number}: reading: {error}"),
            };
            assert!(member.unread.is_empty(), "member {number}: the end within a frame");
            member.has_ended = true;
            epoll::delete(watch, &member.stream).expect("a watched socket");
            events.push(end);
        }
        events
    }
}

/// How long things took.
#[derive(Default)]
pub(crate) struct Latencies {
    sorted: Vec<Duration>,
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let place = self.sorted.partition_point(|other| *other <= latency);
        self.sorted.insert(place, latency);
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The latency that this many in a hundred do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        assert!(percent <= 100 && !self.sorted.is_empty());
        self.sorted[(self.sorted.len() * percent).div_ceil(100).max(1) - 1]
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [median, high, most] = [50, 99, 100].map(|percent| self.percentile(percent));
        write!(f, "{} times: median {median:.1?}, 99% {high:.1?}, most {most:.1?}", self.len())
    }
}

/// The clients' ends of the connections need descriptors too.
pub(crate) fn raise_open_file_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    rustix::process::setrlimit(Resource::Nofile, raised).expect("raising a soft limit");
}
