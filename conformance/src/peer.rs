//! One connection of the client, and what is demanded of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::wire::{ACQUIRE, ACQUIRE_LEN_MAX, First, HEARTBEAT, WAITING, decode_first};
use socket2::SockRef;

use crate::fault::{Fault, demand};
use crate::terms::Terms;

/// How long a client may take to say what it wants, and to come back.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// ACQUIRED with the token 7.
pub(crate) const GRANT: &[u8] = &[0x12, 0, 0, 0, 0, 0, 0, 0, 7];

/// See the module.
pub(crate) struct Peer {
    stream: TcpStream,
    terms: Terms,
    /// When the newest message came that the client is to count from.
    heard_at: Instant,
    /// When the lock was granted, if it was.
    granted_at: Instant,
}

/// What a client can do.
enum Heard {
    Heartbeat,
    /// It has closed the connection, in whatever way.
    End,
    /// Nothing, for as long as was listened.
    Nothing,
}

impl Peer {
    /// Takes in the ACQUIRE.
    pub(crate) fn begin(stream: TcpStream, terms: Terms) -> Result<Peer, Fault> {
        let mut peer = Peer { stream, terms, heard_at: Instant::now(), granted_at: Instant::now() };
        peer.stream.set_nodelay(true).map_err(|error| Fault::new(error.to_string()))?;
        let until = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        let lease = loop {
            match decode_first(&bytes) {
                Ok(First::Complete { acquire, .. }) => {
                    demand(acquire.name == terms.lock, || {
                        format!("it asked for {:?}, not for {:?}", acquire.name, terms.lock)
                    })?;
                    break Duration::from_millis(acquire.lease_ms.get().into());
                }
                Ok(First::Incomplete) if bytes.len() < ACQUIRE_LEN_MAX => {}
                Ok(First::Incomplete) => return Err(Fault::new("its ACQUIRE has no end")),
                Err(_) => {
                    return Err(Fault::new(format!(
                        "its first message is no ACQUIRE: {bytes:02x?}"
                    )));
                }
            }
            match peer.read(until)? {
                Came::Byte(byte) => bytes.push(byte),
                Came::End | Came::Nothing => {
                    let said = format!("it connected and sent no ACQUIRE, only {bytes:02x?}");
                    return Err(Fault::new(said));
                }
            }
        };
        demand(lease == terms.lease, || format!("it asked for a lease of {lease:?}"))?;
        peer.heard_at = Instant::now();
        Ok(peer)
    }

    /// Sends in one segment. A client that has left already will be seen to have.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Gives it the lock.
    pub(crate) fn grant(&mut self) {
        self.granted_at = Instant::now();
        self.send(GRANT);
    }

    /// The same in pieces, and WAITING before it.
    pub(crate) fn grant_in_pieces(&mut self) {
        self.granted_at = Instant::now();
        self.send_in_pieces(&[&[WAITING][..], GRANT].concat());
    }

    /// Sends in as many segments as there are bytes.
    pub(crate) fn send_in_pieces(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(&[*byte]);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the stream in this direction.
    pub(crate) fn half_close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Has the kernel send RST.
    pub(crate) fn reset(self) -> Result<(), Fault> {
        let lingering = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        lingering.map_err(|error| Fault::new(error.to_string()))
    }

    /// Answers every heartbeat after this delay, for so long, or until the client closes.
    pub(crate) fn serve_for(
        &mut self,
        time: Duration,
        mut answer: impl FnMut(&mut Peer),
        delay: Duration,
    ) -> Result<(), Fault> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let missed_after = self.terms.heartbeat_gap_max().max(delay + self.terms.prompt());
            let due = self.heard_at + missed_after;
            match self.hear(due.min(end))? {
                Heard::End => {
                    return Err(Fault::new("it closed a connection on which all was well"));
                }
                Heard::Nothing if Instant::now() >= end => break,
                Heard::Nothing => {
                    let since = self.heard_at.elapsed();
                    return Err(Fault::new(format!("no heartbeat within {since:?}")));
                }
                Heard::Heartbeat => {
                    self.take_heartbeat()?;
                    self.expect_none_before_the_answer(delay)?;
                    answer(self);
                }
            }
        }
        Ok(())
    }

    /// Answers every heartbeat after this delay until the client, the holder, releases the lock.
    pub(crate) fn serve_until_release(
        &mut self,
        mut answer: impl FnMut(&mut Peer),
        delay: Duration,
    ) -> Result<(), Fault> {
        // As long as it must not release, with the last delay.
        let certain = self.granted_at + self.terms.hold - self.terms.hold / 10 - delay;
        let certain = certain.saturating_duration_since(Instant::now());
        self.serve_for(certain, &mut answer, delay)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match self.hear(until)? {
                Heard::End => return Ok(()),
                Heard::Nothing => return Err(Fault::new("it does not release the lock")),
                Heard::Heartbeat => {
                    thread::sleep(delay);
                    answer(self);
                }
            }
        }
    }

    /// Takes heartbeats without an answer for so long; gives how many.
    pub(crate) fn listen_for(&mut self, time: Duration) -> Result<usize, Fault> {
        let end = Instant::now() + time;
        let mut heartbeats = 0;
        loop {
            match self.hear(end)? {
                Heard::Nothing => return Ok(heartbeats),
                Heard::Heartbeat => heartbeats += 1,
                Heard::End => {
                    return Err(Fault::new("it closed a connection on which all was well"));
                }
            }
        }
    }

    /// Waits for one heartbeat.
    pub(crate) fn expect_heartbeat(&mut self) -> Result<(), Fault> {
        match self.hear(self.heard_at + self.terms.heartbeat_gap_max())? {
            Heard::Heartbeat => self.take_heartbeat(),
            Heard::End => Err(Fault::new("it closed a connection on which all was well")),
            Heard::Nothing => Err(Fault::new("it sends no heartbeat")),
        }
    }

    /// Answers nothing any more; the client must give the claim up in time, counted from when the
    /// last message that was answered came.
    pub(crate) fn expect_given_up(mut self) -> Result<(), Fault> {
        let confirmed_at = self.heard_at;
        let mut heartbeats = 0;
        loop {
            match self.hear(confirmed_at + self.terms.give_up_max())? {
                Heard::End => break,
                Heard::Nothing => {
                    return Err(Fault::new(
                        "it kept a claim that was not confirmed for its whole lease, counted from \
                         when the last confirmed message was sent",
                    ));
                }
                Heard::Heartbeat => {
                    heartbeats += 1;
                    demand(heartbeats <= 1, || {
                        "it sent a heartbeat while the one before it had no answer".to_owned()
                    })?;
                }
            }
        }
        let after = confirmed_at.elapsed();
        demand(after >= self.terms.give_up_min(), || {
            format!("it gave the claim up after {after:?} already: 0.8 of the lease are permitted")
        })
    }

    /// What was said leaves a doubt, or is the end: the client must close the connection.
    pub(crate) fn expect_close(mut self) -> Result<(), Fault> {
        let until = Instant::now() + self.terms.prompt();
        let mut heartbeats = 0;
        loop {
            match self.hear(until)? {
                Heard::End => return Ok(()),
                Heard::Nothing => return Err(Fault::new("it did not close the connection")),
                Heard::Heartbeat => {
                    heartbeats += 1;
                    // One may have been on its way.
                    demand(heartbeats <= 1, || "it went on with the connection".to_owned())?;
                }
            }
        }
    }

    /// Two heartbeats are not to be in flight.
    fn expect_none_before_the_answer(&mut self, delay: Duration) -> Result<(), Fault> {
        if delay.is_zero() {
            return Ok(());
        }
        match self.hear(Instant::now() + delay)? {
            Heard::Nothing => Ok(()),
            Heard::Heartbeat => {
                Err(Fault::new("it sent a heartbeat while the one before it had no answer"))
            }
            Heard::End => Err(Fault::new("it closed a connection on which all was well")),
        }
    }

    fn take_heartbeat(&mut self) -> Result<(), Fault> {
        let gap = self.heard_at.elapsed();
        self.heard_at = Instant::now();
        demand(gap >= self.terms.heartbeat_gap_min(), || {
            format!("a heartbeat came {gap:?} after the message before it: that is too soon")
        })
    }

    fn hear(&mut self, until: Instant) -> Result<Heard, Fault> {
        match self.read(until)? {
            Came::Byte(HEARTBEAT) => Ok(Heard::Heartbeat),
            Came::Byte(ACQUIRE) => Err(Fault::new("it sent a second ACQUIRE on one connection")),
            Came::Byte(byte) => {
                Err(Fault::new(format!("it sent a byte that is no message: {byte:#04x}")))
            }
            Came::End => Ok(Heard::End),
            Came::Nothing => Ok(Heard::Nothing),
        }
    }

    /// Reads one byte. What is there already counts, also if it is looked at too late.
    fn read(&mut self, until: Instant) -> Result<Came, Fault> {
        let mut byte = [0];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Some(left.max(Duration::from_millis(1)));
            let reading =
                self.stream.set_read_timeout(timeout).and_then(|()| self.stream.read(&mut byte));
            match reading {
                Ok(0) => return Ok(Came::End),
                Ok(_) => return Ok(Came::Byte(byte[0])),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if Instant::now() >= until => {
                        return Ok(Came::Nothing);
                    }
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Ok(Came::End),
                    _ => return Err(Fault::new(format!("reading from the client: {error}"))),
                },
            }
        }
    }
}

/// What a read brought.
enum Came {
    Byte(u8),
    End,
    Nothing,
}
