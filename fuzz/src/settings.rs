//! Durations and flags.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use monolock::config::{self, FLAGS, Request};
use monolock_core::duration::parse_duration;

/// Any text is a duration or is none, and any value of any flag is a configuration or one line that
/// names the flag.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        try_duration(text);
    }
    for flag in &FLAGS {
        // A host's name would be looked up in the network.
        if flag.name != "listen" {
            try_value(flag.name, flag.variable, bytes);
        }
    }
}

fn try_duration(text: &str) {
    let Ok(duration) = parse_duration(text) else {
        return;
    };
    let again = format!("{}ns", duration.as_nanos());
    assert_eq!(parse_duration(&again), Ok(duration), "{text:?}");
    if text != "0" {
        // A duration is the sum of its parts, in whatever order.
        let longer = duration.as_nanos() + 1_000_000_000;
        let sum = u64::try_from(longer).ok().map(Duration::from_nanos);
        assert_eq!(parse_duration(&format!("{text}1s")).ok(), sum, "{text:?}");
        assert_eq!(parse_duration(&format!("1s{text}")).ok(), sum, "{text:?}");
    }
}

fn try_value(flag: &str, variable: &str, value: &[u8]) {
    let value = OsString::from_vec(value.to_vec());
    let mut argument = OsString::from(format!("--{flag}="));
    argument.push(&value);
    let by_flag = config::parse([argument], |_| None);
    let by_variable = config::parse([], |name| (name == variable).then(|| value.clone()));
    for (parsed, place) in [(&by_flag, flag), (&by_variable, variable)] {
        if let Err(fatal) = parsed {
            let line = fatal.to_string();
            assert!(line.contains(place), "{line}");
            assert!(!line.contains(char::is_control), "one line: {line:?}");
        }
    }
    // An empty variable is none, an empty flag is a value.
    if !value.is_empty() {
        let accepted = |parsed| matches!(parsed, Ok(Request::Serve(_)));
        assert_eq!(accepted(by_flag), accepted(by_variable), "--{flag}={}", value.display());
    }
}
