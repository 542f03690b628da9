//! Durations as people read them.

use std::time::Duration;

/// A duration in whole milliseconds.
pub fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in its largest units, down to the millisecond: `1m30s`, `2.5s`, `250ms`.
pub fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    match (ms / 60_000, ms % 60_000) {
        (0, ms) if ms < 1000 => format!("{ms}ms"),
        (0, ms) => format!("{}s", seconds(ms)),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, ms) => format!("{minutes}m{}s", seconds(ms)),
    }
}

fn seconds(ms: u128) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use monolock_core::duration::parse_duration;

    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["0ms", "250ms", "2.5s", "1m", "1m30s", "90m0.25s"] {
            assert_eq!(show(parse_duration(text).unwrap()), text);
        }
    }
}
