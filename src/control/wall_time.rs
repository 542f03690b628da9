//! Moments as text.

use jiff::Timestamp;
use monolock_core::time::{Instant, Now, UnixTime};

/// UTC by RFC 3339, to the millisecond.
pub(super) fn rfc3339(time: UnixTime) -> String {
    let secs = i64::try_from(time.secs()).unwrap_or(i64::MAX);
    let nanos = i32::try_from(time.subsec_nanos()).expect("below a second");
    let time = Timestamp::new(secs, nanos).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// When it was on the wall clock, as that is set now, that the monotonic clock showed `moment`.
pub(super) fn wall_time_of(moment: Instant, now: Now) -> UnixTime {
    let now_nanos =
        u128::from(now.unix.secs()) * 1_000_000_000 + u128::from(now.unix.subsec_nanos());
    let nanos = now_nanos.saturating_sub(now.instant.since(moment).as_nanos());
    let secs = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    UnixTime::new(secs, u32::try_from(nanos % 1_000_000_000).expect("below a second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc_to_the_millisecond() {
        assert_eq!(rfc3339(UnixTime::new(0, 0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(UnixTime::new(1_786_190_400, 7_999_999)), "2026-08-08T12:00:00.007Z");
        assert_eq!(rfc3339(UnixTime::new(u64::MAX, 0)), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn a_moment_is_as_long_ago_on_one_clock_as_on_the_other() {
        let now = Now {
            instant: Instant::from_nanos(5_000_000_000),
            unix: UnixTime::new(100, 500_000_000),
        };
        let moment = Instant::from_nanos(3_750_000_000);
        assert_eq!(wall_time_of(moment, now), UnixTime::new(99, 250_000_000));
        assert_eq!(wall_time_of(Instant::from_nanos(9_000_000_000), now), now.unix);
    }
}
