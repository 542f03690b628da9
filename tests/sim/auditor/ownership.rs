//! Locks and their owners.

use monolock_core::effect::ReleaseReason;
use monolock_core::fencing::Token;
use monolock_core::time::UnixTime;

use super::Auditor;
use super::session::{Cause, Standing};
use crate::sim::invariants::{Invariant, Verdict};
use crate::sim::sighting::Connection;

impl Auditor {
    pub(super) fn granted(
        &mut self,
        name: &str,
        connection: Connection,
        token: Token,
        clock: UnixTime,
    ) -> Verdict {
        let case = |what: &str| format!("{name} to connection {connection}: {what}");
        Invariant::NobodyIsPromotedOnShutdown
            .holds(!self.is_shutting_down(), || case("the server shuts down"))?;
        let lock = self.locks.entry(name.to_owned()).or_default();
        Invariant::OneHolder
            .holds(lock.holder.is_none(), || case("somebody else still holds it"))?;
        let place = lock.waiters.iter().position(|&waiter| waiter == connection);
        let is_meant = lock.next.map_or(place.is_some(), |next| next == connection);
        Invariant::OnlyClaimsAreGranted.holds(is_meant, || case("it does not wait"))?;
        lock.holder = Some(connection);
        if lock.next.take().is_none() {
            let place = place.expect("it waits");
            self.passed_over.extend(lock.waiters.drain(..=place).take(place));
            self.count("promotion");
        } else {
            self.count("grant of a free lock");
        }
        let now = self.now;
        let session = self.known(connection)?;
        session.standing = Standing::Holding(token);
        session.owed.push_back(now);
        self.minted(token.get(), clock)
    }

    fn minted(&mut self, token: u64, clock: UnixTime) -> Verdict {
        let nanos = u128::from(clock.secs()) * 1_000_000_000 + u128::from(clock.subsec_nanos());
        let clock = u64::try_from((nanos << 20) / 1_000_000_000).expect("this millennium");
        // What the documentation asks for: at its first grant a new process has a clock that is
        // past the last token. If it is not, only the tokens of this process are comparable.
        let is_first = self.last_token == 0;
        if is_first && clock <= self.highest_token {
            self.count("first grant behind the clock of the process before");
            self.highest_token = 0;
        } else if is_first && self.highest_token > 0 {
            self.count("first grant after a restart");
        }
        let (last, highest) = (self.last_token, self.highest_token);
        Invariant::TokensRise.holds(token > highest, || format!("{token} after {highest}"))?;
        Invariant::TokensTellTheTime.holds(token == clock.max(last + 1), || {
            format!("{token} at the clock {clock}, after {last}")
        })?;
        (self.last_token, self.highest_token) = (token, token);
        Ok(())
    }

    pub(super) fn released(
        &mut self,
        name: &str,
        connection: Connection,
        token: Token,
        reason: ReleaseReason,
    ) -> Verdict {
        let lock = self.locks.entry(name.to_owned()).or_default();
        let holder = lock.holder.take();
        Invariant::OneHolder.holds(holder == Some(connection), || {
            format!("{name} is released by connection {connection}, {holder:?} holds it")
        })?;
        let standing = self.known(connection)?.standing;
        Invariant::AnswersAreTrue.holds(standing == Standing::Holding(token), || {
            format!("connection {connection} is released with the token {token}")
        })?;
        self.count(reason.as_str());
        match reason {
            ReleaseReason::Expired => {
                self.was_silent(connection)?;
                self.ended_as(connection, Cause::Expired, reason)
            }
            ReleaseReason::IoTimeout => {
                let (now, io_timeout) = (self.now, self.io_timeout());
                let session = self.known(connection)?;
                let is_due = session.stuck_too_long(io_timeout, now);
                Invariant::NeverEarly.holds(is_due, || {
                    format!("the writes of connection {connection} were not stuck for that long")
                })?;
                self.ended_as(connection, Cause::Stuck, reason)
            }
            ReleaseReason::Graceful => self.ended_as(connection, Cause::Left, reason),
            ReleaseReason::Force => self.ended_as(connection, Cause::Administrator, reason),
            ReleaseReason::ProtocolError => self.ended_as(connection, Cause::Wrong, reason),
            ReleaseReason::Shutdown => self.ended_as(connection, Cause::Shutdown, reason),
        }
    }

    /// What ends without being seen is ended by the report; all other ends were seen before.
    fn ended_as(&mut self, connection: Connection, cause: Cause, reason: ReleaseReason) -> Verdict {
        if matches!(cause, Cause::Expired | Cause::Stuck) {
            self.end(connection, cause);
        }
        let ended = self.known(connection)?.ended;
        Invariant::ReasonsAreTrue.holds(ended.is_some_and(|(_, seen)| seen == cause), || {
            format!("connection {connection} is released as {reason}, ended by {ended:?}")
        })
    }

    pub(super) fn forced(
        &mut self,
        name: &str,
        token: Option<Token>,
        from: Option<Connection>,
    ) -> Verdict {
        let holder = self.locks.get(name).and_then(|lock| lock.holder);
        let is_meant = token.is_none() || token == self.token_of(name);
        let expected = holder.filter(|_| is_meant);
        Invariant::AdministratorsAreObeyed.holds(from == expected, || {
            format!("{name} was taken from {from:?}, meant was {expected:?}")
        })?;
        if let Some(connection) = from {
            self.count("force-release");
            self.end_with_error(connection, Cause::Administrator, 0x02);
        }
        Ok(())
    }

    pub(super) fn kicked(&mut self, name: &str, connection: Connection, done: bool) -> Verdict {
        let waits = self.locks.get(name).is_some_and(|lock| lock.waiters.contains(&connection));
        Invariant::AdministratorsAreObeyed.holds(done == waits, || {
            format!("connection {connection} waits for {name}: {waits}, was put out: {done}")
        })?;
        if done {
            self.count("kick");
            self.end_with_error(connection, Cause::Administrator, 0x02);
        }
        Ok(())
    }
}
