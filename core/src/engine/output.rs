//! What a session is still to be told. It is kept as a count of answers, not as their bytes, so
//! that a session which does not read costs no memory.

use super::Engine;
use crate::effect::Effect;
use crate::session::{Output, Phase, SessionId};
use crate::time::Now;
use crate::wire::{ERROR_LEN_MAX, encode_standing};

impl Engine {
    /// Writes frames that are owed to the front of `out`, whole ones only, and returns their
    /// length, which is zero if the session has come to its end since it was asked for. The driver
    /// calls this on [`Effect::Transmit`].
    ///
    /// # Panics
    /// If `out` is shorter than [`ERROR_LEN_MAX`].
    pub fn transmit(&mut self, id: SessionId, out: &mut [u8]) -> usize {
        assert!(out.len() >= ERROR_LEN_MAX, "an ERROR must fit");
        let Some(session) = self.sessions.get_mut(id) else {
            return 0;
        };
        if session.output != Output::Asked {
            return 0;
        }
        if matches!(session.phase, Phase::Unreachable | Phase::Closed) {
            session.output = Output::Idle;
            return 0;
        }
        let (told, mut len) = encode_standing(session.token(), session.owed, out);
        session.owed -= told;
        if session.owed == 0
            && session.phase == Phase::Finishing
            && out.len() - len >= ERROR_LEN_MAX
            && let Some(farewell) = session.farewell.take()
        {
            len += farewell.encode(&mut out[len..]);
            session.phase = Phase::FarewellSent;
        }
        session.output = if len > 0 { Output::Sending } else { Output::Idle };
        len
    }

    /// All that [`Engine::transmit`] gave last has been taken by the kernel.
    pub fn sent(&mut self, id: SessionId, now: Now) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        session.output = Output::Idle;
        match session.phase {
            Phase::Blocked => {
                session.phase = Phase::Open;
                self.write_deadlines.remove(&id.index);
                let deadline = session.lease_end();
                self.deadlines.change(&mut self.sessions, id.index, deadline);
                self.ask_to_transmit(id.index);
            }
            Phase::Open | Phase::Probing => self.ask_to_transmit(id.index),
            Phase::Finishing => self.go_on_finishing(id.index),
            Phase::FarewellSent => self.begin_to_drain(id.index, now),
            Phase::Leaving | Phase::Unreachable | Phase::Draining | Phase::Closed => {}
        }
    }

    /// What [`Engine::transmit`] gave last is stuck: the peer's and our own buffers are full. Until
    /// it is sent the session is not read from, and it has the io-timeout for it.
    pub fn send_blocked(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.get_mut(id)
            && matches!(session.phase, Phase::Open | Phase::Probing)
        {
            session.phase = Phase::Blocked;
            let write_deadline = now.instant.after(self.config.io_timeout);
            self.write_deadlines.insert(id.index, write_deadline);
            let deadline = write_deadline.min(session.lease_end());
            self.deadlines.change(&mut self.sessions, id.index, deadline);
        }
    }

    /// The session is to be told where it stands, `times` times more.
    pub(super) fn owe(&mut self, index: u32, times: u32) {
        let session = &mut self.sessions[index];
        // Reading stops at OWED_MAX, long before this is too many.
        session.owed = session.owed.saturating_add(times);
        self.ask_to_transmit(index);
    }

    /// Asks the driver to come for what is owed, if anything is and it was not asked.
    pub(super) fn ask_to_transmit(&mut self, index: u32) {
        let session = &mut self.sessions[index];
        let owes = session.owed > 0 || session.farewell.is_some();
        if owes && session.output == Output::Idle {
            session.output = Output::Asked;
            let id = self.sessions.id(index);
            self.effects.push_back(Effect::Transmit(id));
        }
    }
}
