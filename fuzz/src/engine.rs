//! The state machine, with the bytes as a program: what happens to whom, and when the driver looks.

pub(crate) mod invariants;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::effect::Effect;
use monolock_core::engine::{Engine, EngineConfig, ForceReleaseError};
use monolock_core::fencing::{Token, TokenMint};
use monolock_core::session::{PeerAddress, SessionId};
use monolock_core::time::{Instant, Now, UnixTime};
use monolock_core::wire::{ErrorCode, HEARTBEAT};

use self::invariants::Ledger;
use crate::peer::{self, Peer};

/// Few enough that they meet.
const NAMES: [&str; 3] = ["a", "b", "a lock with a longer name than fits inline"];
const SESSIONS_MAX: u32 = 12;
/// Few enough that something happens between them.
const TOLD_A_TURN: u32 = 2;

/// Runs the program, and ends every session that it leaves.
pub fn run(bytes: &[u8]) {
    let mut world = World::new();
    let mut program = bytes.iter().copied();
    while let Some(step) = program.next() {
        world.take(step, &mut program);
        // With the highest bit the driver doesn't look yet: more happens in the same turn.
        if step < 0x80 {
            world.look();
        }
    }
    world.end();
}

/// An engine with its driver and its peers.
struct World {
    engine: Engine,
    ledger: Ledger,
    now: Now,
    peers: Vec<Peer>,
    port: u16,
    /// Sessions at this place and behind it have not been told of a shutdown.
    telling_from: Option<u32>,
}

impl World {
    fn new() -> World {
        let config = EngineConfig {
            sessions_max: SESSIONS_MAX,
            io_timeout: Duration::from_millis(500),
            lease_max_ms: None,
            hash_key: [7; 16],
        };
        World {
            engine: Engine::new(config, Arc::new(TokenMint::new())),
            ledger: Ledger::default(),
            now: Now { instant: Instant::from_nanos(1), unix: UnixTime::new(1_800_000_000, 0) },
            peers: Vec::new(),
            port: 1,
            telling_from: None,
        }
    }

    fn take(&mut self, step: u8, program: &mut impl Iterator<Item = u8>) {
        let mut next = || program.next().unwrap_or_default();
        match step & 0x7f {
            0..16 => self.connect(),
            16..32 => {
                let (who, what) = (next(), next());
                self.receive(who, &acquire(what));
            }
            32..44 => {
                let (who, count) = (next(), next());
                self.receive(who, &vec![HEARTBEAT; usize::from(count)]);
            }
            44..52 => {
                let (who, len) = (next(), next() % 32);
                let bytes: Vec<u8> = (0..len).map(|_| next()).collect();
                self.receive(who, &bytes);
            }
            52..60 => self.half_close(next()),
            60..66 => self.fail(next(), Engine::disconnected),
            66..70 => self.fail(next(), Engine::unreachable),
            70..80 => self.finish_send(next(), Engine::sent),
            80..86 => self.block_send(next()),
            86..102 => {
                let (time, limit) = (next(), next());
                self.pass_time(time, usize::from(limit % 4));
            }
            102..110 => self.forget(next()),
            110..114 => self.force_release(next(), next()),
            114..118 => self.kick(next(), next()),
            118..120 => self.refuse(next()),
            120..126 => {
                // The wall clock is set to whatever it is set to.
                let secs = u64::from(next()) << (next() % 28);
                self.now.unix = UnixTime::new(secs, 0);
            }
            // Rare, as little is left to happen after it.
            126.. if next().is_multiple_of(8) => {
                self.engine.shut_down();
                self.telling_from = Some(0);
            }
            126.. => {}
        }
    }

    fn connect(&mut self) {
        self.port = self.port.wrapping_add(1);
        let address = PeerAddress::from(SocketAddr::from(([127, 0, 0, 1], self.port)));
        let is_full = self.engine.sessions() == SESSIONS_MAX as usize;
        let connected = self.engine.connect(address, self.now);
        assert_eq!(connected.is_err(), is_full);
        if let Ok(id) = connected {
            self.peers.push(Peer::new(id, address));
        }
    }

    /// One of those of whom something can still come.
    fn open(&mut self, who: u8) -> Option<&mut Peer> {
        let open = self.peers.iter().filter(|peer| !peer.is_closed).count();
        let place = usize::from(who).checked_rem(open)?;
        self.peers.iter_mut().filter(|peer| !peer.is_closed).nth(place)
    }

    fn receive(&mut self, who: u8, bytes: &[u8]) {
        if let Some(peer) = self.open(who)
            && !peer.at_end
            && !bytes.is_empty()
        {
            peer.is_probed = false;
            let id = peer.id;
            self.engine.receive(id, bytes, self.now);
        }
    }

    fn half_close(&mut self, who: u8) {
        // The driver may find the end twice.
        if let Some(peer) = self.open(who) {
            peer.at_end = true;
            peer.is_probed = false;
            let id = peer.id;
            self.engine.end_of_stream(id, self.now);
        }
    }

    /// The connection fails under whatever is under way.
    fn fail(&mut self, who: u8, report: fn(&mut Engine, SessionId, Now)) {
        if let Some(peer) = self.open(who) {
            peer.at_end = true;
            peer.is_probed = false;
            let id = peer.id;
            report(&mut self.engine, id, self.now);
        }
    }

    fn finish_send(&mut self, who: u8, report: fn(&mut Engine, SessionId, Now)) {
        if let Some(peer) = self.open(who)
            && std::mem::take(&mut peer.is_sending)
        {
            let id = peer.id;
            report(&mut self.engine, id, self.now);
        }
    }

    fn block_send(&mut self, who: u8) {
        if let Some(peer) = self.open(who)
            && peer.is_sending
        {
            let id = peer.id;
            self.engine.send_blocked(id, self.now);
        }
    }

    /// Time passes; deadlines are passed, and whoever was to be read once more has sent nothing.
    fn pass_time(&mut self, time: u8, limit: usize) {
        let millis = u64::from(time) * u64::from(time) / 16;
        self.now.instant = self.now.instant.after(Duration::from_millis(millis));
        if limit == 0 {
            return;
        }
        self.engine.expire(self.now, limit);
        self.look();
        let probed = self.peers.iter_mut().filter(|peer| !peer.is_closed);
        let probed =
            probed.filter_map(|peer| std::mem::take(&mut peer.is_probed).then_some(peer.id));
        for id in probed.collect::<Vec<_>>() {
            self.engine.silent(id, self.now);
        }
    }

    /// Nobody sends or reads anything any more, for longer than any lease: each session has some
    /// deadline that ends it.
    fn fall_silent(&mut self) {
        const FIFTY_DAYS: Duration = Duration::from_secs(50 * 24 * 3600);
        // Who is promoted on the way is told so, and that is stuck too.
        for _ in 0..=SESSIONS_MAX {
            for peer in self.peers.iter().filter(|peer| peer.is_sending && !peer.is_closed) {
                self.engine.send_blocked(peer.id, self.now);
            }
            self.now.instant = self.now.instant.after(FIFTY_DAYS);
            self.pass_time(0, usize::MAX);
            self.look();
        }
        assert!(self.peers.iter().all(|peer| peer.is_closed), "a session without a deadline");
    }

    fn forget(&mut self, who: u8) {
        let closed = self.peers.iter().filter(|peer| peer.is_closed).count();
        let Some(place) = usize::from(who).checked_rem(closed) else {
            return;
        };
        let places = 0..self.peers.len();
        let place = places.filter(|place| self.peers[*place].is_closed).nth(place);
        let peer = self.peers.remove(place.expect("so many are closed"));
        assert_eq!(self.engine.forget(peer.id), peer.address);
    }

    fn force_release(&mut self, name: u8, with_token: u8) {
        let name = name_of(name);
        let holder = self.engine.lock(name).and_then(|lock| lock.holder());
        let held = holder.and_then(|holder| holder.token);
        let token = match with_token % 3 {
            0 => None,
            1 => held,
            _ => Token::new(u64::from(with_token)),
        };
        let released = self.engine.force_release(name, token, self.now);
        match (holder, released) {
            (None, released) => assert_eq!(released, Err(ForceReleaseError::NotHeld)),
            (Some(holder), Ok(session)) => assert_eq!(session, holder.session),
            (Some(holder), Err(error)) => {
                assert_ne!(token, held);
                let held = holder.token.expect("a holder has a token");
                assert_eq!(error, ForceReleaseError::OtherToken(held));
            }
        }
    }

    fn kick(&mut self, name: u8, who: u8) {
        if let Some(&Peer { id, address, .. }) = self.open(who).as_deref() {
            let name = name_of(name);
            let lock = self.engine.lock(name);
            let waits = lock.is_some_and(|lock| lock.waiters().any(|waiter| waiter.session == id));
            let kicked = self.engine.kick_waiter(name, address, self.now);
            assert_eq!(kicked.ok(), waits.then_some(id));
        }
    }

    fn refuse(&mut self, who: u8) {
        if let Some(peer) = self.open(who) {
            let id = peer.id;
            self.engine.refuse(id, ErrorCode::TOO_MANY_SESSIONS, self.now);
        }
    }

    /// The driver's half of a turn: carries out what the engine asks for.
    fn look(&mut self) {
        if let Some(from) = self.telling_from {
            self.telling_from = self.engine.tell_of_shutdown(from, TOLD_A_TURN, self.now);
        }
        while let Some(effect) = self.engine.poll_effect() {
            let (Effect::Transmit(id)
            | Effect::Probe(id)
            | Effect::ShutdownWrite(id)
            | Effect::Close(id)) = effect
            else {
                panic!("{effect:?} in a server with one shard")
            };
            let peer = self.peers.iter_mut().find(|peer| peer.id == id);
            let peer = peer.expect("nothing is asked of who is forgotten");
            peer.carry_out(effect, &mut self.engine);
        }
        self.ledger.check(&mut self.engine);
    }

    /// Everybody leaves or falls silent: nothing may be left.
    fn end(mut self) {
        self.look();
        if self.port.is_multiple_of(2) {
            while self.peers.iter().any(|peer| !peer.is_closed) {
                self.fail(0, Engine::disconnected);
                self.look();
            }
        } else {
            self.fall_silent();
        }
        for peer in std::mem::take(&mut self.peers) {
            self.engine.forget(peer.id);
        }
        self.ledger.check(&mut self.engine);
        assert_eq!(self.engine.sessions(), 0);
        assert_eq!(self.engine.counts().connections, 0);
        assert_eq!(self.engine.wake_at(self.now), None);
        assert!(NAMES.iter().all(|name| self.engine.lock(name).is_none()), "idle locks are gone");
    }
}

fn name_of(number: u8) -> &'static str {
    NAMES[usize::from(number) % NAMES.len()]
}

fn acquire(what: u8) -> Vec<u8> {
    peer::acquire(name_of(what), usize::from(what) / NAMES.len())
}
