//! Entries as lines of JSON, whose escapes keep names from forging lines.

use monolock_core::time::UnixTime;
use serde::Serialize;

use super::super::wall_time::rfc3339;
use crate::audit::{Entry, Event, What};
use crate::clock::whole_ms;

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
    let ms = |duration| Some(whole_ms(duration));
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
    use std::collections::BTreeMap;
    use std::fs;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::time::Duration;

    use monolock_core::effect::ReleaseReason;

    use super::*;

    const COMMON: [&str; 4] = ["time", "lock", "identity", "remote_addr"];

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
        let mut seen = BTreeMap::new();
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
            let mut fields: BTreeMap<String, serde_json::Value> =
                serde_json::from_str(&line).expect("valid JSON");
            let event = fields.remove("event").expect("an event");
            fields.retain(|name, _| !COMMON.contains(&&**name));
            seen.insert(event.as_str().expect("text").to_owned(), fields.into_keys().collect());
        }
        assert_eq!(documented_fields(), seen);
    }

    /// The events of the documentation's table, with what each has beside the common fields.
    fn documented_fields() -> BTreeMap<String, Vec<String>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations/audit.md");
        let text = fs::read_to_string(path).expect("the document is there");
        let (_, table) = text.split_once("| event | fields").expect("the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let in_backticks =
            |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        rows.map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            let mut fields = in_backticks(cells[2]);
            fields.sort_unstable();
            (in_backticks(cells[1]).remove(0), fields)
        })
        .collect()
    }
}
