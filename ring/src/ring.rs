//! The turn: submit, wait, reap, hand out.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::Timespec;

use crate::arrivals::Arrivals;
use crate::buffers::ReceiveBuffers;
use crate::connection::{Connection, Connections, Flags};
use crate::operation::{Completion, Kind, Operation};
use crate::queues::Queues;
use crate::send_pool::SendPool;
use crate::setup::{self, Config, SetupError};
use crate::{ConnectionId, Errno, Event, Reading, Socket, Waker};

/// An io_uring with a table of connections. It stays on the thread that made it.
///
/// The methods that take a [`ConnectionId`] panic when that connection isn't attached or has been
/// closed, `close` excepted: the caller's tables and the ring's have parted then.
///
/// It can't leave its thread:
///
/// ```compile_fail
/// fn leaves<T: Send>() {}
/// leaves::<monolock_ring::Ring>();
/// ```
pub struct Ring {
    // The order of the fields matters: the queues go first, and with them the kernel's use of the
    // memory of the others.
    pub(crate) queues: Queues,
    pub(crate) buffers: ReceiveBuffers,
    /// Tells when bytes arrived, if that is wanted.
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) send_pool: SendPool,
    pub(crate) connections: Connections,
    waker: Waker,
    /// When the alarm rings, if it is set.
    alarm: Option<Duration>,
    /// The same for the kernel, which reads it as it takes the operation.
    alarm_moment: Box<Timespec>,
    /// Reaped and not yet handed out.
    ready: VecDeque<Completion>,
    /// The buffer whose bytes were handed out last.
    lent: Option<u16>,
    /// Those that found no buffer, in the order in which they will try again.
    starved: VecDeque<ConnectionId>,
    /// Sends asked for since the last wait.
    pub(crate) sends: Vec<ConnectionId>,
    /// Sends asked for before it: submitted by it, and usually complete.
    sends_before: Vec<ConnectionId>,
    /// Counts the calls of `wait`.
    pub(crate) turn: u32,
    /// With more completions than that it is high time to reap them.
    completions_many: usize,
    /// The kernel takes calls from one thread only.
    not_send: PhantomData<*mut ()>,
}

/// How long a turn lasts at most while a send is not known to be done. Nearly all are done in the
/// call that submits them, which then does not wait.
const LATE_AFTER: Duration = Duration::from_millis(5);

/// A completion's meaning, before the bytes are borrowed.
enum Outcome {
    Received { id: ConnectionId, buffer: u16, len: usize },
    Event(Event<'static>),
}

impl Ring {
    /// Makes a ring for the calling thread, after trying out whether this kernel can carry it.
    pub fn new(config: &Config) -> Result<Ring, SetupError> {
        let ring = Ring::untried(config)?;
        setup::try_out()?;
        Ok(ring)
    }

    pub(crate) fn untried(config: &Config) -> Result<Ring, SetupError> {
        let (ring, buffers) = setup::open(config)?;
        let waker = Waker::new().map_err(setup::step("make an eventfd"))?;
        let send_pool = SendPool::new(config.slots).map_err(setup::step("map send buffers"))?;
        let mut queues = Queues::new(ring);
        queues.push(&Operation::watch(waker.descriptor()));
        Ok(Ring {
            queues,
            buffers,
            arrivals: None,
            send_pool,
            connections: Connections::new(config.slots),
            waker,
            alarm: None,
            alarm_moment: Box::default(),
            ready: VecDeque::with_capacity(config.completions as usize),
            lent: None,
            starved: VecDeque::new(),
            sends: Vec::with_capacity(config.submissions as usize),
            sends_before: Vec::with_capacity(config.submissions as usize),
            turn: 0,
            completions_many: (config.completions / 2) as usize,
            not_send: PhantomData,
        })
    }

    /// Has the kernel note when bytes arrive, for `arrived_at`. Such a ring can only stream, and 48
    /// bytes of each receive buffer are taken.
    ///
    /// # Panics
    ///
    /// If a connection is attached already.
    pub fn stamp_arrivals(&mut self) {
        assert_eq!(self.connections(), 0, "all connections are stamped, or none");
        self.arrivals = Some(Arrivals::new());
    }

    /// Wakes this ring from other threads.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// How many slots are taken.
    pub fn connections(&self) -> usize {
        self.connections.attached()
    }

    /// Submits everything queued and waits until something happened or `timeout` passed, in one
    /// system call. `None`: no limit; zero: submit and look. It may also return with nothing, as
    /// after a signal, and doesn't sleep while events are not yet handed out.
    ///
    /// # Errors
    ///
    /// Only those that end the use of the ring: `EBADR` when the kernel had to drop completions for
    /// want of memory, or a fault of this crate.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_for(1, timeout)
    }

    /// As `wait`, but sleeps until the time has passed, whatever happens meanwhile, unless the
    /// queue gets full or a send that was asked for may be stuck: for a caller that need not answer
    /// at once, and would rather be woken less often.
    ///
    /// # Errors
    ///
    /// As `wait`.
    pub fn rest(&mut self, time: Duration) -> io::Result<()> {
        self.wait_for(self.completions_many, Some(time))
    }

    fn wait_for(&mut self, wanted: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.take_back_lent();
        self.turn = self.turn.wrapping_add(1);
        let timeout = self.until_sends_are_late(timeout);
        loop {
            self.feed_starved();
            let may_sleep = self.ready.is_empty() && self.starved.is_empty();
            self.queues.enter(if may_sleep { timeout } else { Some(Duration::ZERO) }, wanted)?;
            self.queues.reap(&mut self.ready);
            let something = may_sleep || !self.ready.is_empty();
            // What found no room in the queue comes with another enter. It must be known before a
            // send is called late.
            if something && !self.queues.is_overflowing() {
                break;
            }
        }
        self.note_late_sends();
        Ok(())
    }

    /// Sets an alarm: `wait` returns at this moment of `CLOCK_MONOTONIC` at the latest, perhaps
    /// with nothing. One that is set and rings earlier stays instead.
    ///
    /// This costs a timer once, where a timeout costs one in every wait: a tenth of a microsecond
    /// or two, which is not little beside a heartbeat.
    pub fn set_alarm(&mut self, at: Duration) {
        if self.alarm.is_some_and(|set| set <= at) {
            return;
        }
        *self.alarm_moment = Timespec::from(at);
        // SAFETY: the moment lives as long as this ring and so outlives its queues.
        let operation = unsafe {
            match self.alarm {
                None => Operation::alarm(&raw const *self.alarm_moment),
                Some(_) => Operation::move_alarm(&raw const *self.alarm_moment),
            }
        };
        self.queues.push(&operation);
        self.alarm = Some(at);
    }

    /// Hands out the next thing that happened, or `None` when all that was reaped is handed out.
    /// The bytes of `Received` are lent until the next call of any method.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        self.take_back_lent();
        let outcome = loop {
            let completion = self.ready.pop_front()?;
            if let Some(outcome) = self.digest(completion) {
                break outcome;
            }
        };
        Some(match outcome {
            Outcome::Event(event) => event,
            Outcome::Received { id, buffer, len } => {
                self.lent = Some(buffer);
                let mut bytes = self.buffers.filled(buffer, len);
                if let Some(arrivals) = &mut self.arrivals {
                    arrivals.note(bytes);
                    bytes = Arrivals::bytes(bytes);
                }
                Event::Received { id, bytes }
            }
        })
    }

    /// When the last of the bytes that were handed out last arrived, by the kernel's clock, since
    /// 1970. Only in a ring with stamps.
    pub fn arrived_at(&self) -> Option<Duration> {
        self.arrivals.as_ref().and_then(Arrivals::last)
    }

    /// How many connections have a send in flight.
    pub fn sends_in_flight(&self) -> usize {
        self.send_pool.in_use() as usize
    }

    /// Whether nothing is known to be ready: no event is left, in the kernel neither, and nothing
    /// is queued that could read.
    ///
    /// Before a caller holds silence against a connection it must repeat `wait(ZERO)` and
    /// `next_event` until this holds: an enter runs only about 20 of the deferred receives that
    /// have data.
    pub fn is_settled(&mut self) -> bool {
        self.ready.is_empty() && self.starved.is_empty() && self.queues.is_settled()
    }

    fn take_back_lent(&mut self) {
        if let Some(buffer) = self.lent.take() {
            self.buffers.give_back(buffer);
        }
    }

    /// Lets those that found no buffer try again, as many as there are buffers. Only when all
    /// events are handed out: then all buffers are back.
    fn feed_starved(&mut self) {
        if self.starved.is_empty() || !self.ready.is_empty() {
            return;
        }
        for _ in 0..self.starved.len().min(usize::from(self.buffers.count())) {
            let Some(id) = self.starved.pop_front() else {
                return;
            };
            // It may have been closed, and its slot may have another user since.
            let Some(connection) = self.connections.find(id) else {
                continue;
            };
            connection.flags.remove(Flags::STARVED);
            if connection.has(Flags::PROBE_OWED) && !connection.has(Flags::CLOSING) {
                connection.flags.remove(Flags::PROBE_OWED);
                connection.flags |= Flags::PROBING;
                self.queues.push_read(&Operation::probe(id));
            } else {
                self.adjust_reading(id);
            }
        }
    }

    /// A send that is stuck makes nothing happen, and is called late by the turn after that of its
    /// submission: so these two turns must end by themselves.
    fn until_sends_are_late(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let connections = &mut self.connections;
        let is_sending =
            |&id: &ConnectionId| connections.find(id).is_some_and(|found| found.is_sending());
        if self.sends.is_empty() && !self.sends_before.iter().any(is_sending) {
            return timeout;
        }
        Some(timeout.map_or(LATE_AFTER, |timeout| timeout.min(LATE_AFTER)))
    }

    /// Notes the sends that were submitted a turn ago and are still not complete. Whether they are
    /// completing in this turn is seen when the note's turn comes, behind all that was reaped.
    fn note_late_sends(&mut self) {
        let asked_in = self.turn.wrapping_sub(2);
        for id in self.sends_before.drain(..) {
            let Some(connection) = self.connections.find(id) else {
                continue;
            };
            if connection.is_sending() && connection.send_turn == asked_in {
                self.ready.push_back(Completion::late_send(id, asked_in));
            }
        }
        mem::swap(&mut self.sends, &mut self.sends_before);
    }

    fn digest(&mut self, completion: Completion) -> Option<Outcome> {
        match completion.kind() {
            Kind::Receive => self.received(completion),
            Kind::Send => self.sent(completion),
            Kind::Probe => self.probed(completion),
            Kind::LateSend => self.still_sending(completion),
            Kind::Shutdown => self.shut(completion),
            Kind::Close => Some(self.closed(completion)),
            Kind::CancelReceive => self.receive_not_cancelled(completion),
            Kind::CancelSend => self.send_not_cancelled(completion),
            Kind::Install => self.installed(completion),
            Kind::Wake => Some(self.woken(completion)),
            Kind::Alarm => self.rung(completion),
            // It was to be moved when it was just ringing: that is told by the alarm itself.
            Kind::MoveAlarm => None,
        }
    }

    #[inline]
    fn received(&mut self, completion: Completion) -> Option<Outcome> {
        let connection = self.connections.expect(completion.id());
        assert!(connection.has(Flags::RECEIVING), "{completion:?} for {connection:?}");
        // A stream that goes on: a closing connection wants none.
        if completion.more() && connection.wanted() == Reading::Stream {
            return self.bytes_read(completion);
        }
        self.received_otherwise(completion)
    }

    fn received_otherwise(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.expect(id);
        if !completion.more() {
            connection.flags.remove(Flags::RECEIVING | Flags::STREAMING | Flags::CANCELLING);
        }
        if connection.has(Flags::CLOSING) {
            self.give_back(completion.buffer());
            self.close_if_quiet(id);
            return None;
        }
        if completion.result > 0 && connection.wanted() == Reading::Once {
            connection.want(Reading::Off);
        }
        let outcome = self.bytes_read(completion);
        if !completion.more() {
            self.adjust_reading(id);
            self.install_if_quiet(id);
        }
        outcome
    }

    fn probed(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.expect(id);
        assert!(connection.has(Flags::PROBING), "{completion:?} for {connection:?}");
        connection.flags.remove(Flags::PROBING);
        if connection.has(Flags::CLOSING) {
            self.give_back(completion.buffer());
            self.close_if_quiet(id);
            return None;
        }
        let outcome = match completion.error() {
            Some(Errno::AGAIN) => {
                self.give_back(completion.buffer());
                Some(Outcome::Event(Event::Silent { id }))
            }
            error => {
                if error == Some(Errno::NO_BUFFERS) {
                    connection.flags |= Flags::PROBE_OWED;
                }
                self.bytes_read(completion)
            }
        };
        // What was wanted meanwhile had to wait, so that the bytes stay in order.
        self.adjust_reading(id);
        self.install_if_quiet(id);
        outcome
    }

    /// What came of a receive or a probe, if it is the caller's business.
    #[inline]
    fn bytes_read(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        if let Ok(len @ 1..) = usize::try_from(completion.result) {
            let buffer = completion.buffer().expect("bytes come in a buffer");
            if !self.is_only_head(buffer, len) {
                return Some(Outcome::Received { id, buffer, len });
            }
        }
        self.bytes_missed(completion)
    }

    /// With stamps, the end of the stream comes in a buffer as well.
    #[inline]
    fn is_only_head(&self, buffer: u16, len: usize) -> bool {
        self.arrivals.is_some() && Arrivals::bytes(self.buffers.filled(buffer, len)).is_empty()
    }

    fn bytes_missed(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        self.give_back(completion.buffer());
        let event = match completion.error() {
            Some(Errno::NO_BUFFERS) => {
                self.starve(id);
                return None;
            }
            Some(Errno::CANCELED) => return None,
            Some(error) => Event::ReceiveFailed { id, error },
            None => Event::EndOfStream { id },
        };
        let connection = self.connections.expect(id);
        connection.want(Reading::Off);
        // Where the stream has ended is where the connection ends.
        connection.flags.remove(Flags::LEAVING);
        Some(Outcome::Event(event))
    }

    fn give_back(&mut self, buffer: Option<u16>) {
        if let Some(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
    }

    fn starve(&mut self, id: ConnectionId) {
        let connection = self.connections.expect(id);
        if !connection.has(Flags::STARVED) {
            connection.flags |= Flags::STARVED;
            self.starved.push_back(id);
        }
    }

    /// Makes the kernel do what the caller wants read, as far as it can be done now.
    #[inline]
    pub(crate) fn adjust_reading(&mut self, id: ConnectionId) {
        let connection = self.connections.expect(id);
        if connection.has(Flags::RECEIVING) {
            let unwanted = match connection.wanted() {
                Reading::Off => true,
                // A stream may bring more than is wanted.
                Reading::Once => connection.has(Flags::STREAMING),
                Reading::Stream => false,
            };
            if unwanted && !connection.has(Flags::CANCELLING) {
                connection.flags |= Flags::CANCELLING;
                self.queues.push(&Operation::cancel_receive(id));
            }
            return;
        }
        // One with a probe under way would have two readers, and older kernels can post what they
        // read in the wrong order.
        if connection.has(Flags::STARVED | Flags::PROBING) {
            return;
        }
        match connection.wanted() {
            Reading::Off => {}
            Reading::Once => {
                assert!(self.arrivals.is_none(), "a ring with stamps can only stream");
                connection.flags |= Flags::RECEIVING;
                self.queues.push_read(&Operation::receive_once(id));
            }
            Reading::Stream => {
                connection.flags |= Flags::RECEIVING | Flags::STREAMING;
                let receive = match &self.arrivals {
                    None => Operation::receive_stream(id),
                    // SAFETY: the layout lives as long as the ring.
                    Some(arrivals) => unsafe { Operation::receive_stamped(id, arrivals.layout()) },
                };
                self.queues.push_read(&receive);
            }
        }
    }

    fn sent(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.expect(id);
        assert!(connection.is_sending(), "{completion:?} for {connection:?}");
        let buffer = mem::replace(&mut connection.send_buffer, Connection::NO_SEND);
        let (len, flags) = (connection.send_len, connection.flags);
        self.send_pool.give_back(buffer, usize::from(len));
        if flags.any(Flags::CLOSING) {
            self.close_if_quiet(id);
            return None;
        }
        if flags.any(Flags::WRITE_SHUT) {
            self.shut_now(id);
        }
        Some(Outcome::Event(match completion.error() {
            None if completion.result == i32::from(len) => Event::Sent { id },
            // WAITALL stops short only by an error, and keeps that one to itself.
            None => Event::SendFailed { id, error: Errno::BROKEN_PIPE },
            Some(error) => Event::SendFailed { id, error },
        }))
    }

    fn still_sending(&mut self, note: Completion) -> Option<Outcome> {
        let id = note.id();
        let connection = self.connections.find(id)?;
        let blocked = connection.is_sending()
            && connection.send_turn == note.result.cast_unsigned()
            && !connection.has(Flags::CLOSING);
        blocked.then_some(Outcome::Event(Event::SendBlocked { id }))
    }

    /// Whether the shutdown worked is no one's business: it fails on a connection that is dead.
    fn shut(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        self.connections.expect(id).flags.remove(Flags::SHUTTING);
        self.close_if_quiet(id);
        None
    }

    fn closed(&mut self, completion: Completion) -> Outcome {
        let id = completion.id();
        assert!(completion.result == 0, "{id:?} can't be closed: {completion:?}");
        self.connections.remove(id);
        Outcome::Event(Event::Closed { id })
    }

    fn installed(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.expect(id);
        connection.flags.remove(Flags::INSTALLING);
        let is_closing = connection.has(Flags::CLOSING);
        let installed = match completion.error() {
            Some(error) => Err(error),
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            None => Ok(unsafe { OwnedFd::from_raw_fd(completion.result) }),
        };
        if is_closing {
            self.close_if_quiet(id);
            return None;
        }
        Some(Outcome::Event(match installed {
            Ok(socket) => {
                let vacant = self.queues.ring().submitter().register_files_update(id.index, &[-1]);
                assert!(matches!(vacant, Ok(1)), "{id:?} can't be taken out: {vacant:?}");
                self.connections.remove(id);
                Event::Detached { id, socket: Socket(socket) }
            }
            Err(error) => Event::DetachFailed { id, error },
        }))
    }

    /// A cancellation that found nothing. Either the receive's own end is on its way, or it was
    /// just being run and must be cancelled again.
    fn receive_not_cancelled(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.find(id)?;
        if connection.has(Flags::CANCELLING) {
            self.queues.push(&Operation::cancel_receive(id));
        }
        None
    }

    fn send_not_cancelled(&mut self, completion: Completion) -> Option<Outcome> {
        let id = completion.id();
        let connection = self.connections.find(id)?;
        if connection.has(Flags::CLOSING) && connection.is_sending() {
            self.queues.push(&Operation::cancel_send(id));
        }
        None
    }

    fn rung(&mut self, completion: Completion) -> Option<Outcome> {
        assert_eq!(completion.error(), Some(Errno::TIME), "the alarm can't be set");
        self.alarm = None;
        None
    }

    fn woken(&mut self, completion: Completion) -> Outcome {
        assert!(completion.result >= 0, "the waker can't be watched: {completion:?}");
        if !completion.more() {
            self.queues.push(&Operation::watch(self.waker.descriptor()));
        }
        self.waker.acknowledge();
        Outcome::Event(Event::Woken)
    }
}
