//! Durations as the flags of every program here take them: `5s`, `250ms`, `1m30s`.

use core::fmt;
use core::time::Duration;

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Not a sequence of numbers with units.
    Malformed,
    /// More than 2^64 nanoseconds, which is 584 years.
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationError::Malformed => "not a duration: write it like 5s, 250ms or 1m30s",
            DurationError::TooLong => "too long a duration",
        })
    }
}

impl core::error::Error for DurationError {}

/// Reads one or more decimal numbers, each with a unit: `h`, `m`, `s`, `ms`, `us` (or `µs`), `ns`.
/// A bare `0` is zero. There are no signs and no spaces.
///
/// # Errors
/// If the text is anything else, or the sum does not fit.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DurationError::Malformed);
    }
    let mut rest = text;
    let mut total_nanos = 0u64;
    while !rest.is_empty() {
        let (nanos, behind) = parse_part(rest)?;
        total_nanos = total_nanos.checked_add(nanos).ok_or(DurationError::TooLong)?;
        rest = behind;
    }
    Ok(Duration::from_nanos(total_nanos))
}

fn parse_part(text: &str) -> Result<(u64, &str), DurationError> {
    let unit_at =
        text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurationError::Malformed)?;
    let (number, rest) = text.split_at(unit_at);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let unit_nanos: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return Err(DurationError::Malformed),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Malformed);
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().map_err(|_| DurationError::TooLong)?,
    };
    let mut nanos = whole.checked_mul(unit_nanos).ok_or(DurationError::TooLong)?;
    let mut digit_nanos = unit_nanos;
    for digit in fraction.bytes() {
        // Hours in tenths of tenths stay whole nanoseconds for eleven digits; the rest is nothing.
        digit_nanos /= 10;
        nanos = nanos
            .checked_add(digit_nanos * u64::from(digit - b'0'))
            .ok_or(DurationError::TooLong)?;
    }
    Ok((nanos, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_add_up() {
        for (text, nanos) in [
            ("5s", 5_000_000_000),
            ("250ms", 250_000_000),
            ("1m30s", 90_000_000_000),
            ("1h0m0.5s", 3_600_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1.25h", 4_500_000_000_000),
            ("7us", 7_000),
            ("7µs", 7_000),
            ("3ns", 3),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "s", "5 s", "-5s", "+5s", "5sec", "2M", "1.2.3s", ".", ".s", "5s 3"] {
            assert_eq!(parse_duration(text), Err(DurationError::Malformed), "{text:?}");
        }
        for text in ["99999999999999999999s", "5124096h", "5124095h60m", "584.6h5124095h"] {
            assert_eq!(parse_duration(text), Err(DurationError::TooLong), "{text:?}");
        }
    }
}
