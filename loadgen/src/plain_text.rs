//! Text that is safe on a terminal: what came from elsewhere may move the cursor, change colours or
//! turn the writing direction.

use serde_json::Value;

/// The text with everything escaped that can't be seen, line ends too.
pub fn one_line(text: &str) -> String {
    text.chars().flat_map(escape).collect()
}

/// The same, with the line ends that it has.
pub fn lines(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => one_line(line) + "\n",
            None => one_line(line),
        })
        .collect()
}

/// Makes one line of every text in a JSON value.
pub fn one_line_each(value: &mut Value) {
    match value {
        Value::String(text) => *text = one_line(text),
        Value::Array(values) => values.iter_mut().for_each(one_line_each),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    one_line_each(&mut value);
                    (one_line(&name), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn escape(c: char) -> Box<dyn Iterator<Item = char>> {
    match c {
        // They are escaped in source text only.
        '\'' | '"' | '\\' => Box::new(std::iter::once(c)),
        _ => Box::new(c.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_stays_and_the_rest_is_spelled_out() {
        assert_eq!(one_line("nächtlich/\"im port\" \\ 'x'"), "nächtlich/\"im port\" \\ 'x'");
        assert_eq!(one_line("a\nb\x1b[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        assert_eq!(lines("a\x07\nb\n\nc"), "a\\u{7}\nb\n\nc");
    }

    #[test]
    fn every_text_of_a_value_is_one_line() {
        let mut value = serde_json::json!({"a\n": ["\x1b", 1, {"b": "\r"}], "c": null});
        one_line_each(&mut value);
        let plain = serde_json::json!({"a\\n": ["\\u{1b}", 1, {"b": "\\r"}], "c": null});
        assert_eq!(value, plain);
    }
}
