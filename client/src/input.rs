//! What a caller can get wrong, found before anything is dialled.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use monolock_core::wire::NAME_LEN_MAX;
use thiserror::Error;

/// What is wrong with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidInput {
    /// A lock name without a byte.
    #[error("the lock name is empty: it needs 1 to {NAME_LEN_MAX} bytes")]
    EmptyName,
    /// A lock name of more than 255 bytes.
    #[error("the lock name has {len} bytes: {NAME_LEN_MAX} are the most")]
    NameTooLong {
        /// The length in bytes of UTF-8.
        len: usize,
    },
    /// One name twice among locks that are to be held together.
    #[error("the lock {name:?} is named twice")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// No lock at all.
    #[error("no lock is named")]
    NoName,
    /// A lease of less than a millisecond.
    #[error("the lease is {lease:?}: 1 ms is the least")]
    ZeroLease {
        /// What was asked for.
        lease: Duration,
    },
    /// A lease beyond 2^32-1 ms, which is more than 49 days.
    #[error("the lease is {lease:?}: 2^32-1 ms (49 days) are the most")]
    LeaseTooLong {
        /// What was asked for.
        lease: Duration,
    },
    /// Not an address.
    #[error(
        "{address:?} is not an address: write HOST:PORT, such as 10.0.0.5:7070, \
         locks.example:7070 or [::1]:7070"
    )]
    BadAddress {
        /// What was given.
        address: String,
    },
}

/// Names in the order in which every client takes them, so that no two wait for each other.
pub(crate) fn sorted_names(mut names: Vec<String>) -> Result<Vec<String>, InvalidInput> {
    for name in &names {
        match name.len() {
            0 => return Err(InvalidInput::EmptyName),
            1..=NAME_LEN_MAX => {}
            len => return Err(InvalidInput::NameTooLong { len }),
        }
    }
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
        return Err(InvalidInput::NameTwice { name: twice.clone() });
    }
    if names.is_empty() { Err(InvalidInput::NoName) } else { Ok(names) }
}

/// A lease as it goes over the wire; a fraction of a millisecond is dropped.
pub(crate) fn lease_ms(lease: Duration) -> Result<NonZeroU32, InvalidInput> {
    let lease_ms =
        u32::try_from(lease.as_millis()).map_err(|_| InvalidInput::LeaseTooLong { lease })?;
    NonZeroU32::new(lease_ms).ok_or(InvalidInput::ZeroLease { lease })
}

/// Checks that this is HOST:PORT. Whether there is such a host is found out with each dial.
pub(crate) fn address(text: &str) -> Result<String, InvalidInput> {
    let bad = || InvalidInput::BadAddress { address: text.to_owned() };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 { Err(bad()) } else { Ok(text.to_owned()) };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let is_host = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !host.chars().all(is_host) || !matches!(port.parse::<u16>(), Ok(1..)) {
        return Err(bad());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_checked() {
        let sorted = |names: &[&str]| sorted_names(names.iter().map(|&name| name.into()).collect());
        assert_eq!(sorted(&["b", "a"]), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(sorted(&["a", ""]), Err(InvalidInput::EmptyName));
        assert_eq!(sorted(&[]), Err(InvalidInput::NoName));
        assert_eq!(sorted(&[&"ä".repeat(128)]), Err(InvalidInput::NameTooLong { len: 256 }));
        assert!(sorted(&[&"x".repeat(255)]).is_ok());
        let twice = sorted(&["a", "b", "a"]);
        assert_eq!(twice, Err(InvalidInput::NameTwice { name: "a".into() }));
    }

    #[test]
    fn leases_are_milliseconds_of_32_bits() {
        assert_eq!(lease_ms(Duration::from_micros(1_999)).map(NonZeroU32::get), Ok(1));
        for lease in [Duration::ZERO, Duration::from_micros(999)] {
            assert_eq!(lease_ms(lease), Err(InvalidInput::ZeroLease { lease }));
        }
        assert!(lease_ms(Duration::from_millis(u64::from(u32::MAX))).is_ok());
        let lease = Duration::from_millis(1 << 32);
        assert_eq!(lease_ms(lease), Err(InvalidInput::LeaseTooLong { lease }));
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for right in ["127.0.0.1:7070", "[::1]:1", "localhost:65535", "a-b.example_1.:7070"] {
            assert_eq!(address(right).as_deref(), Ok(right));
        }
        for wrong in [
            "",
            ":",
            ":7070",
            "localhost",
            "localhost:",
            "localhost:0",
            "127.0.0.1:0",
            "localhost:65536",
            "::1:7070",
            "http://localhost:7070",
            "a b:7070",
            "a:b:1",
        ] {
            assert_eq!(
                address(wrong),
                Err(InvalidInput::BadAddress { address: wrong.into() }),
                "{wrong:?}"
            );
        }
    }
}
