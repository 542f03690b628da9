//! A resource that checks fencing tokens, as a database does with `UPDATE ... WHERE token <= $1`.

use monolock_core::fencing::Token;

/// The resource behind one lock.
#[derive(Debug, Default)]
pub struct Guard {
    /// The largest token that it has seen.
    largest: u64,
    /// Who held the lock last, and is gone: it may have been asleep, and may wake up.
    past: Option<Token>,
}

impl Guard {
    /// A holder leaves.
    pub fn leave(&mut self, token: Token) {
        self.past = Some(token);
    }

    /// A new holder writes, and then the past one wakes up and writes too. Returns the past one's
    /// token if its write was taken, which must not be.
    pub fn enter(&mut self, token: Token) -> Option<Token> {
        let past = self.past.take();
        // A holder whose own write is refused has no successor's write to spoil.
        if !self.write(token) {
            return None;
        }
        past.filter(|&past| self.write(past))
    }

    fn write(&mut self, token: Token) -> bool {
        let is_taken = token.get() >= self.largest;
        if is_taken {
            self.largest = token.get();
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).expect("not zero")
    }

    #[test]
    fn a_past_holder_is_shut_out_by_growing_tokens_and_by_no_others() {
        let mut guard = Guard::default();
        assert_eq!(guard.enter(token(5)), None);
        guard.leave(token(5));
        assert_eq!(guard.enter(token(6)), None, "5 is refused after 6");
        guard.leave(token(6));
        assert_eq!(guard.enter(token(6)), Some(token(6)), "the same token twice shuts nobody out");
    }
}
