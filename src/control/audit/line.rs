//! Entries as lines of JSON, whose escapes keep names from forging lines.

use monolock_core::time::UnixTime;
use serde::Serialize;

use super::super::wall_time::rfc3339;
use crate::audit::{Entry, Event, What};

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// Adds the line of an entry; a gap is noted at `now`.
pub(super) fn write(entry: &Entry, now: UnixTime, lines: &mut Vec<u8>) {
    let line = match entry {
        Entry::Event(event) => of_event(event),
        Entry::Dropped(count) => Line { count: Some(*count), ..bare(now, "dropped") },
    };
    serde_json::to_writer(&mut *lines, &line).expect("plain structs can be written");
    lines.push(b'\n');
}

fn of_event(event: &Event) -> Line<'_> {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).ok();
    let of = |name| Line {
        lock: Some(&event.lock),
        // Nobody has an identity without TLS.
        identity: Some(""),
        remote_addr: Some(event.peer.to_string()),
        ..bare(event.time, name)
    };
    match event.what {
        What::Granted { token, wait } => {
            Line { token: Some(token), wait_ms: ms(wait), ..of("granted") }
        }
        What::Released { token, held, reason } => Line {
            token: Some(token),
            held_ms: ms(held),
            reason: Some(reason.as_str()),
            ..of("released")
        },
        What::ForceRelease { token } => Line { token: Some(token), ..of("force_release") },
        What::KickWaiter => of("kick_waiter"),
    }
}

fn bare(time: UnixTime, event: &'static str) -> Line<'static> {
    Line {
        time: rfc3339(time),
        event,
        lock: None,
        identity: None,
        remote_addr: None,
        token: None,
        wait_ms: None,
        held_ms: None,
        reason: None,
        count: None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use monolock_core::effect::ReleaseReason;

    use super::*;

    #[test]
    fn each_entry_is_one_line_with_its_fields() {
        let event = |what| {
            Entry::Event(Event {
                time: UnixTime::new(1_786_190_400, 0),
                lock: "a\"\né".into(),
                peer: SocketAddr::from(([10, 0, 0, 5], 7)).into(),
                what,
            })
        };
        let held = Duration::from_millis(1500);
        let common = r#""lock":"a\"\né","identity":"","remote_addr":"10.0.0.5:7""#;
        for (entry, rest) in [
            (
                event(What::Granted { token: 9, wait: Duration::from_micros(2999) }),
                format!(r#""event":"granted",{common},"token":9,"wait_ms":2}}"#),
            ),
            (
                event(What::Released { token: 9, held, reason: ReleaseReason::Expired }),
                format!(
                    r#""event":"released",{common},"token":9,"held_ms":1500,"reason":"expired"}}"#
                ),
            ),
            (
                event(What::ForceRelease { token: 9 }),
                format!(r#""event":"force_release",{common},"token":9}}"#),
            ),
            (event(What::KickWaiter), format!(r#""event":"kick_waiter",{common}}}"#)),
            (Entry::Dropped(3), r#""event":"dropped","count":3}"#.to_owned()),
        ] {
            let mut lines = Vec::new();
            write(&entry, UnixTime::new(1_786_190_400, 0), &mut lines);
            let line = String::from_utf8(lines).expect("JSON is UTF-8");
            assert_eq!(line, format!("{{\"time\":\"2026-08-08T12:00:00.000Z\",{rest}\n"));
        }
    }
}
