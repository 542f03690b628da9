//! What goes out, and what of it arrives.

use super::session::{Session, Standing};
use super::{Auditor, DRAINED_MAX};
use crate::sim::frames::Answered;
use crate::sim::invariants::{Invariant, Verdict};
use crate::sim::sighting::Connection;

impl Auditor {
    pub(super) fn submitted(&mut self, connection: Connection, bytes: &[u8]) -> Verdict {
        let session = self.known(connection)?;
        session.to_client.extend(bytes);
        let answers = session.answers.hear(bytes);
        let is_whole = session.answers.is_whole();
        Invariant::AnswersAreTrue
            .holds(is_whole, || format!("connection {connection} is sent a part of an answer"))?;
        for answer in answers {
            self.answered(connection, answer)?;
        }
        Ok(())
    }

    fn answered(&mut self, connection: Connection, answer: Answered) -> Verdict {
        let session = self.known(connection)?;
        let case = |what: &str| format!("connection {connection} is told {answer:?}: {what}");
        Invariant::ErrorsAreSent
            .holds(!session.error_submitted, || case("something follows an ERROR"))?;
        let expected = match session.standing {
            Standing::Connected | Standing::Moving => None,
            Standing::Waiting => Some(Answered::Waiting),
            Standing::Holding(token) => Some(Answered::Acquired(token.get())),
        };
        if let Answered::Error(code) = answer {
            let owed = session.owed.len();
            Invariant::EverythingIsAnswered.holds(owed == 0, || case("answers are owed before"))?;
            let is_owed = session.error_owed.take() == Some(code);
            session.error_submitted = true;
            return Invariant::ErrorsAreSent.holds(is_owed, || case("another one was owed"));
        }
        let is_owed = session.owed.pop_front().is_some();
        Invariant::AnswersAreTrue.holds(Some(answer) == expected, || case("it is not so"))?;
        Invariant::NothingElseIsAnswered.holds(is_owed, || case("nobody has asked"))
    }

    pub(super) fn shut(&mut self, connection: Connection) -> Verdict {
        let session = self.known(connection)?;
        let is_last = session.error_submitted && session.stuck.is_none();
        Invariant::ErrorsAreSent
            .holds(is_last, || format!("connection {connection} is shut before an ERROR"))
    }

    /// A connection that the server has, or had.
    fn of_client(&mut self, connection: Connection) -> Option<&mut Session> {
        let Auditor { sessions, departed, .. } = self;
        sessions.get_mut(&connection).or_else(|| departed.get_mut(&connection))
    }

    pub(super) fn client_read(&mut self, connection: Connection, bytes: &[u8]) -> Verdict {
        let Some(session) = self.of_client(connection) else { return Ok(()) };
        let is_same = session.to_client.len() >= bytes.len()
            && session.to_client.drain(..bytes.len()).eq(bytes.iter().copied());
        Invariant::AnswersAreTrue
            .holds(is_same, || format!("connection {connection} reads what was not sent"))
    }

    pub(super) fn client_reset(&mut self, connection: Connection, attentive: bool) -> Verdict {
        let Some(session) = self.of_client(connection) else { return Ok(()) };
        let is_lost = session.error_submitted && !session.to_client.is_empty();
        let is_excused = !attentive || session.drained >= DRAINED_MAX || session.hung_up;
        Invariant::ErrorsArrive.holds(!is_lost || is_excused, || {
            format!("connection {connection} was reset before it could read its ERROR")
        })
    }
}
