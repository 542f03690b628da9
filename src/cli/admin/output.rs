//! What is printed: a table on a terminal, lines with tabs for programs, or the API's JSON.
//! Whatever is in a name, nothing of it acts on a terminal.

use std::env;
use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use jiff::SignedDuration;
use serde_json::value::RawValue;
use unicode_width::UnicodeWidthStr;

use super::failure::Failure;
use crate::fatal::is_plain;

const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// The space between two columns.
const GAP: usize = 2;

/// What a cell of a row holds.
pub(super) enum Cell {
    /// Anything that somebody else has chosen.
    Text(String),
    Number(u64),
    Millis(u64),
    /// The time since something that should not be long ago, and the time at which it is too late.
    AgeMillis(u64, u64),
    Nothing,
}

impl Cell {
    pub(super) fn or_nothing<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Nothing, cell)
    }

    fn for_programs(&self) -> String {
        match self {
            Cell::Text(text) => escaped(text),
            Cell::Number(number) | Cell::Millis(number) | Cell::AgeMillis(number, _) => {
                number.to_string()
            }
            Cell::Nothing => String::new(),
        }
    }

    fn for_people(&self) -> String {
        match self {
            Cell::Text(text) if text.is_empty() => "-".into(),
            Cell::Text(_) | Cell::Number(_) => self.for_programs(),
            Cell::Millis(ms) | Cell::AgeMillis(ms, _) => {
                let ms = i64::try_from(*ms).unwrap_or(i64::MAX);
                format!("{:#}", SignedDuration::from_millis(ms))
            }
            Cell::Nothing => "-".into(),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Cell::Number(_) | Cell::Millis(_) | Cell::AgeMillis(..))
    }

    /// More than half of the time is over: whatever should come has missed its time once.
    fn is_alarming(&self) -> bool {
        matches!(self, Cell::AgeMillis(age, limit) if age > &(limit / 2))
    }
}

/// Stdout.
pub(super) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
    has_colours: bool,
    /// Of the columns so far: they only grow, so that a later page is not narrower.
    widths: Vec<usize>,
}

impl Output {
    pub(super) fn new() -> Output {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let is_set = |variable| env::var_os(variable).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Output {
            has_colours: is_terminal && !is_dumb && !is_set("NO_COLOR"),
            is_terminal,
            out: BufWriter::new(stdout.lock()),
            widths: Vec::new(),
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints rows under these titles; a later call goes on with the same table.
    pub(super) fn rows<const N: usize>(
        &mut self,
        titles: [&str; N],
        rows: &[[Cell; N]],
    ) -> Result<(), Failure> {
        let printed = if self.is_terminal {
            self.table(&titles, rows)
        } else {
            rows.iter().try_for_each(|row| {
                let cells: Vec<String> = row.iter().map(Cell::for_programs).collect();
                writeln!(self.out, "{}", cells.join("\t"))
            })
        };
        printed.map_err(Failure::Output)
    }

    fn table<const N: usize>(&mut self, titles: &[&str; N], rows: &[[Cell; N]]) -> io::Result<()> {
        let is_first = self.widths.is_empty();
        if is_first {
            self.widths = titles.iter().map(|title| title.len()).collect();
        }
        let texts: Vec<[String; N]> =
            rows.iter().map(|row| row.each_ref().map(Cell::for_people)).collect();
        for row in &texts {
            for (width, text) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(text.width());
            }
        }
        let has_titles = !titles.concat().is_empty();
        // Under a title numbers stand one below the other.
        let is_right: [bool; N] =
            std::array::from_fn(|at| has_titles && rows.iter().any(|row| row[at].is_number()));
        if is_first && has_titles {
            self.row(&titles.map(str::to_owned), is_right, |_| Some(BOLD))?;
        }
        for (cells, texts) in rows.iter().zip(&texts) {
            self.row(texts, is_right, |at| cells[at].is_alarming().then_some(YELLOW))?;
        }
        Ok(())
    }

    fn row<const N: usize>(
        &mut self,
        texts: &[String; N],
        is_right: [bool; N],
        colour: impl Fn(usize) -> Option<&'static str>,
    ) -> io::Result<()> {
        let mut line = String::new();
        for (column, text) in texts.iter().enumerate() {
            let space = " ".repeat(self.widths[column] - text.width());
            let coloured = match colour(column).filter(|_| self.has_colours) {
                Some(colour) => format!("{colour}{text}{PLAIN}"),
                None => text.clone(),
            };
            let gap = if column == 0 { 0 } else { GAP };
            line.push_str(&" ".repeat(gap));
            if is_right[column] {
                line.push_str(&space);
                line.push_str(&coloured);
            } else {
                line.push_str(&coloured);
                line.push_str(&space);
            }
        }
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Prints what the API has said, as JSON of the same value.
    pub(super) fn json(&mut self, json: &RawValue) -> Result<(), Failure> {
        self.text(&harmless(json.get()))
    }

    /// Prints text of our own.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).map_err(Failure::Output)
    }

    /// Must be the last, so that no failure is overlooked.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::Output)
    }
}

/// A name as it may stand between two tabs and on a terminal. What is escaped comes back by `$'…'`
/// of bash and zsh.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let written = match c {
            '\\' => escaped.write_str(r"\\"),
            '\t' => escaped.write_str(r"\t"),
            '\n' => escaped.write_str(r"\n"),
            '\r' => escaped.write_str(r"\r"),
            _ if is_plain(c) => escaped.write_char(c),
            _ => match u32::from(c) {
                number @ ..0x80 => write!(escaped, r"\x{number:02x}"),
                number @ ..0x1_0000 => write!(escaped, r"\u{number:04x}"),
                number => write!(escaped, r"\U{number:08x}"),
            },
        };
        written.expect("a string takes everything");
    }
    escaped
}

/// The same JSON without characters that would act on a terminal, many of which JSON leaves as they
/// are. They can only be in strings, where everything may be escaped.
fn harmless(json: &str) -> String {
    let mut harmless = String::with_capacity(json.len());
    for c in json.chars() {
        if is_plain(c) || c.is_ascii_whitespace() {
            harmless.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(harmless, r"\u{unit:04x}").expect("a string takes everything");
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_neither_act_on_a_terminal_nor_forge_a_field() {
        let name = "a\tb\nc\\t\u{1b}[2J\u{202e}\u{9b}\u{7f}\u{e0001} é 名";
        let shown = r"a\tb\nc\\t\x1b[2J\u202e\u009b\x7f\U000e0001 é 名";
        assert_eq!(escaped(name), shown);
    }

    #[test]
    fn harmless_json_has_the_same_value() {
        let value = serde_json::json!({
            "name": "a\tb\u{7f}\u{9b}\u{202e}\u{e0001}\"\\ é",
            "more": [1, null]
        });
        let text = format!("{value:#}");
        let harmless = harmless(&text);
        assert!(harmless.chars().all(|c| is_plain(c) || c == '\n'), "{harmless}");
        let again: serde_json::Value = serde_json::from_str(&harmless).expect("JSON");
        assert_eq!(again, value);
    }
}
