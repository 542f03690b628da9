//! What a request names: a lock in its path, and parameters in its query.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use monolock_core::lock_table::LockName;
use monolock_core::session::PeerAddress;
use monolock_core::wire::NAME_LEN_MAX;
use percent_encoding::percent_decode_str;

use super::Refusal;

/// A lock that is named in a path.
#[derive(Clone, Debug)]
pub(super) struct LockPath(pub(super) LockName);

impl LockPath {
    /// Takes a percent-encoded part of a path.
    pub(super) fn parse(part: &str) -> Result<LockPath, Refusal> {
        let name = decode(part)?;
        if name.is_empty() || name.len() > NAME_LEN_MAX {
            return Err(Refusal::bad_request("a lock's name has 1 to 255 bytes"));
        }
        Ok(LockPath(LockName::new(name)))
    }
}

/// Takes a peer's address as it is printed everywhere.
pub(super) fn parse_address(part: &str) -> Result<PeerAddress, Refusal> {
    let text = decode(part)?;
    let address: SocketAddr = text.parse().map_err(|_| {
        Refusal::bad_request(format!("{text:?} is no address as 10.0.0.6:41230 or [::1]:41230"))
    })?;
    Ok(address.into())
}

fn decode(part: &str) -> Result<String, Refusal> {
    let decoded = percent_decode_str(part).decode_utf8();
    decoded.map(String::from).map_err(|_| Refusal::bad_request("what is encoded is not UTF-8"))
}

/// The parameters of a request.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Result<Query, Refusal> {
        // Else what is not UTF-8 would be taken for something that nobody has asked for.
        decode(query)?;
        let mut parameters: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(Refusal::bad_request(format!("{name:?} is there more than once")));
            }
            parameters.push((name.into_owned(), value.into_owned()));
        }
        Ok(Query(parameters))
    }

    /// Refuses parameters that would be overlooked: a `tokne` must not be taken for no token.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(Refusal::bad_request(format!("no parameter {name:?}: there is none here")))
            }
            Some((name, _)) => Err(Refusal::bad_request(format!(
                "no parameter {name:?}: there is {}",
                known.join(", ")
            ))),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// A whole number out of `range`.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        // A sign would be taken too.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits && range.contains(&number) => Ok(Some(number)),
            _ => Err(Refusal::bad_request(format!(
                "{name}: {text:?} is no whole number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_nothing_else_is_done_to_them() {
        for (part, name) in [
            ("a", "a"),
            ("nightly%2Fimport", "nightly/import"),
            ("nightly%2fimport", "nightly/import"),
            ("a+b", "a+b"),
            ("%20a%20", " a "),
            ("100%", "100%"),
            ("%C3%A9", "é"),
            ("%00", "\0"),
        ] {
            assert_eq!(LockPath::parse(part).expect("a name").0, name);
        }
        for part in ["", "%ff", &"x".repeat(256)] {
            assert!(LockPath::parse(part).is_err(), "{part:?}");
        }
    }

    #[test]
    fn an_address_is_taken_as_it_is_printed() {
        for text in ["10.0.0.6:41230", "[2001:db8::1]:7"] {
            assert_eq!(parse_address(text).expect("an address").to_string(), text);
            let encoded = text.replace(':', "%3A").replace('[', "%5B").replace(']', "%5D");
            assert_eq!(parse_address(&encoded).expect("an address").to_string(), text);
        }
        for text in ["10.0.0.6", "::1:7", "localhost:7", ""] {
            assert!(parse_address(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn parameters_are_known_and_there_once() {
        let query = Query::parse("limit=10&after=a%2Fb+c").expect("a query");
        assert_eq!(query.text("after"), Some("a/b c"));
        assert_eq!(query.number("limit", 1..=10).expect("a number"), Some(10));
        assert!(query.number("limit", 1..=9).is_err());
        assert!(query.only(&["limit", "after"]).is_ok());
        assert!(query.only(&["limit"]).is_err());
        for text in ["+1", "-1", "0", "", "1.0", "18446744073709551616", " 1"] {
            let query = Query(vec![("token".into(), text.into())]);
            assert!(query.number("token", 1..=u64::MAX).is_err(), "{text:?}");
        }
        for text in ["a=1&a=2", "match=%FF", "after=%c3%28"] {
            assert!(Query::parse(text).is_err(), "{text}");
        }
    }
}
