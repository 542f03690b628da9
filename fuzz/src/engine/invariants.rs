//! What must hold whenever the engine has been looked at.

use std::collections::{BTreeMap, HashSet};

use monolock_core::effect::{Ownership, OwnershipChange};
use monolock_core::engine::Engine;
use monolock_core::fencing::Token;
use monolock_core::session::SessionId;

/// What was seen of the engine so far.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Of each lock, who holds it and who waits for it, in order.
    lines: BTreeMap<String, Line>,
    /// Who holds what, by the changes that the engine reported.
    holders: BTreeMap<String, (SessionId, Token)>,
    last_token: Option<Token>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    holder: Option<(SessionId, Token)>,
    waiters: Vec<SessionId>,
}

impl Line {
    fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.holder.map(|(session, _)| session).into_iter().chain(self.waiters.iter().copied())
    }
}

impl Ledger {
    /// Looks at the engine and compares with what it reports, and with what it was before. Returns
    /// the tokens of what was granted since.
    pub(crate) fn check(&mut self, engine: &mut Engine) -> Vec<Token> {
        let mut tokens = Vec::new();
        while let Some(change) = engine.poll_change() {
            if matches!(change.what, Ownership::Granted { .. }) {
                tokens.push(change.token);
            }
            self.book(change);
        }
        let lines = lines(engine);
        for (name, line) in &lines {
            assert_eq!(line.holder, self.holders.get(name).copied(), "{name}");
            let before = self.lines.get(name).cloned().unwrap_or_default();
            assert_in_order(&before, line);
        }
        let held = lines.values().filter(|line| line.holder.is_some()).count();
        assert_eq!(self.holders.len(), held, "every lock that is held is seen");
        self.lines = lines;
        self.check_counts(engine, held);
        tokens
    }

    /// The locks that the engine has.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    fn book(&mut self, change: OwnershipChange) {
        let OwnershipChange { lock, session, token, what, .. } = change;
        let lock = lock.to_string();
        match what {
            Ownership::Granted { .. } => {
                assert!(Some(token) > self.last_token, "{token} is not larger than all before");
                self.last_token = Some(token);
                let former = self.holders.insert(lock, (session, token));
                assert_eq!(former, None, "granted before it was released");
            }
            Ownership::Released { .. } => {
                assert_eq!(self.holders.remove(&lock), Some((session, token)));
            }
        }
    }

    fn check_counts(&self, engine: &Engine, held: usize) {
        let counts = engine.counts();
        let waiters: usize = self.lines.values().map(|line| line.waiters.len()).sum();
        assert_eq!(counts.locks_held, held as u64);
        assert_eq!(counts.waiters, waiters as u64);
        let claims = counts.connections - counts.connections_unclaimed;
        assert_eq!(claims, (held + waiters) as u64, "a claim holds or waits");
        assert!(counts.connections <= engine.sessions() as u64);
        let mut seen = HashSet::new();
        let sessions = self.lines.values().flat_map(Line::sessions);
        sessions.for_each(|session| assert!(seen.insert(session), "{session:?} stands twice"));
    }
}

/// A line changes by those who leave it and by those who come to its end, and in no other way: so
/// the lock goes to who has waited longest.
fn assert_in_order(before: &Line, now: &Line) {
    let stayed = before.sessions().filter(|session| now.sessions().any(|other| other == *session));
    let stayed: Vec<SessionId> = stayed.collect();
    let first: Vec<SessionId> = now.sessions().take(stayed.len()).collect();
    assert_eq!(first, stayed, "{before:?}, then {now:?}");
}

/// All locks, looked at in slices.
fn lines(engine: &Engine) -> BTreeMap<String, Line> {
    let mut lines = BTreeMap::new();
    let mut from = Some(0);
    while let Some(place) = from {
        let (locks, next) = engine.locks_from(place, 5);
        for lock in locks {
            let holder = lock
                .holder()
                .map(|holder| (holder.session, holder.token.expect("a holder has a token")));
            let waiters: Vec<SessionId> = lock
                .waiters()
                .map(|waiter| {
                    assert_eq!(waiter.token, None, "a waiter has no token");
                    waiter.session
                })
                .collect();
            assert_eq!(waiters.len(), lock.waiters_len() as usize);
            let former = lines.insert(lock.name().to_string(), Line { holder, waiters });
            assert_eq!(former, None, "a name has one lock");
        }
        from = next;
    }
    lines
}
