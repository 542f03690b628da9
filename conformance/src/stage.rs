//! The address where a scenario is played, and the client's process.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::fault::{Fault, demand};
use crate::peer::{GRANT, PATIENCE, Peer};
use crate::terms::Terms;

/// What the client says at its end, by its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It held the lock for as long as it was to, and released it.
    Held = 0,
    /// It lost the lock while it held it.
    Lost = 10,
    /// It did not get the lock, and would not by trying again.
    NotAcquired = 11,
}

/// See the module.
pub(crate) struct Stage {
    listener: Option<TcpListener>,
    address: SocketAddr,
    /// None if the client is started by hand: then its end is not seen.
    client: Option<Client>,
    pub(crate) terms: Terms,
}

impl Stage {
    /// For a client that is started by hand.
    pub(crate) fn by_hand(address: SocketAddr, terms: Terms) -> io::Result<Stage> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        Ok(Stage { listener: Some(listener), address, client: None, terms })
    }

    /// With this command as the client.
    pub(crate) fn with_client(terms: Terms, command: &[OsString]) -> Result<Stage, Fault> {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut stage = Stage::by_hand(free, terms)
            .map_err(|error| Fault::new(format!("no port to play on: {error}")))?;
        let mut client = Command::new(&command[0]);
        client.args(&command[1..]).envs(stage.environment()).stdin(Stdio::null());
        let child = client.spawn().map_err(|error| {
            Fault::new(format!("can't start {}: {error}", command[0].display()))
        })?;
        stage.client = Some(Client(child));
        Ok(stage)
    }

    /// What the client is told.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("MONOLOCK_ADDRESS", self.address.to_string()),
            ("MONOLOCK_LOCK", self.terms.lock.to_owned()),
            ("MONOLOCK_LEASE_MS", self.terms.lease.as_millis().to_string()),
            ("MONOLOCK_HOLD_MS", self.terms.hold.as_millis().to_string()),
        ]
    }

    /// Waits for the next connection, and its ACQUIRE.
    pub(crate) fn accept(&mut self) -> Result<Peer, Fault> {
        Peer::begin(self.dial()?, self.terms)
    }

    /// Closes so many connections in this way when they have sent their ACQUIRE. The client must
    /// stay away for 100 ms at least between them; the second may follow at once if it may hurry.
    pub(crate) fn turn_away(
        &mut self,
        count: u32,
        farewell: &[u8],
        may_hurry: bool,
    ) -> Result<(), Fault> {
        let mut last = None;
        for turn in 0..count {
            let stream = self.dial()?;
            // What it waits for begins after this moment, so that no delay here makes it shorter.
            let dialled_at = Instant::now();
            let gap = last.map(|last| dialled_at - last);
            last = Some(dialled_at);
            if let Some(gap) = gap.filter(|_| turn > 1 || !may_hurry) {
                demand(gap >= AWAY_MIN, || format!("it dialled again after {gap:?}"))?;
            }
            Peer::begin(stream, self.terms)?.send(farewell);
        }
        Ok(())
    }

    /// Plays the holder's part to its end: grants, answers, and sees the lock released.
    pub(crate) fn grant_and_see_it_held(&mut self) -> Result<(), Fault> {
        let mut peer = self.accept()?;
        peer.grant();
        peer.serve_until_release(|peer| peer.send(GRANT), Duration::ZERO)?;
        self.expect_exit(&[Outcome::Held])
    }

    /// Nobody listens for this time.
    pub(crate) fn close_port(&mut self, time: Duration) -> Result<(), Fault> {
        self.listener = None;
        thread::sleep(time);
        self.expect_running()?;
        let listener = listen(self.address);
        self.listener =
            Some(listener.map_err(|error| Fault::new(format!("can't listen again: {error}")))?);
        Ok(())
    }

    /// The client ends in one of these ways, and dials no more.
    pub(crate) fn expect_exit(&mut self, outcomes: &[Outcome]) -> Result<(), Fault> {
        let until = Instant::now() + PATIENCE;
        loop {
            demand(self.poll_dial()?.is_none(), || {
                "it dialled again, where it was to report and stop".to_owned()
            })?;
            let Some(client) = &mut self.client else { return Ok(()) };
            if let Some(status) = client.status()? {
                let is_right =
                    outcomes.iter().any(|outcome| status.code() == Some(*outcome as i32));
                return demand(is_right, || {
                    format!("the client ended with {status}, not as one that has {outcomes:?}")
                });
            }
            demand(Instant::now() < until, || "the client does not exit".to_owned())?;
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn dial(&mut self) -> Result<TcpStream, Fault> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(stream) = self.poll_dial()? {
                return Ok(stream);
            }
            self.expect_running()?;
            demand(Instant::now() < until, || "it does not dial".to_owned())?;
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn poll_dial(&mut self) -> Result<Option<TcpStream>, Fault> {
        let Some(listener) = &self.listener else { return Ok(None) };
        match listener.accept() {
            Ok((stream, _)) => {
                let blocking = stream.set_nonblocking(false);
                blocking.map(|()| Some(stream)).map_err(|error| Fault::new(error.to_string()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Fault::new(format!("accepting: {error}"))),
        }
    }

    fn expect_running(&mut self) -> Result<(), Fault> {
        let Some(client) = &mut self.client else { return Ok(()) };
        match client.status()? {
            None => Ok(()),
            Some(status) => {
                Err(Fault::new(format!("the client ended with {status}, where it was to dial")))
            }
        }
    }
}

/// 100 ms are the least that a client stays away, by its own clock.
const AWAY_MIN: Duration = Duration::from_millis(90);

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // What is left of earlier connections is no hindrance.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The client's process, killed when dropped.
struct Client(Child);

impl Client {
    fn status(&mut self) -> Result<Option<ExitStatus>, Fault> {
        self.0.try_wait().map_err(|error| Fault::new(format!("waiting for the client: {error}")))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
