//! Reads the golden files. What their lines mean stands at the head of each.
#![allow(
    dead_code,
    reason = "each suite is a crate of its own and uses its own part of this module"
)]

use std::fs;
use std::path::PathBuf;

/// One case of a golden file.
#[derive(Default)]
pub(crate) struct Case {
    /// Where it stands, and its title.
    pub(crate) title: String,
    /// What happens besides the bytes, before them and after them.
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
    /// Bytes of the client, or of whoever sends wrong ones.
    pub(crate) sent: Vec<u8>,
    /// The earliest of them with which something is wrong.
    pub(crate) wrong_at: Option<usize>,
    /// Bytes of the server.
    pub(crate) answered: Vec<u8>,
    /// What is read from the bytes.
    pub(crate) reading: String,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.title)
    }
}

impl Case {
    fn parse(file: &str, block: &str) -> Case {
        let mut lines = block.lines();
        let title = lines.next().expect("a block has a title");
        let mut case = Case { title: format!("{file}: {title}"), ..Case::default() };
        for line in lines {
            case.take_line(line);
        }
        case
    }

    fn take_line(&mut self, line: &str) {
        let (mark, content) = line.split_once(' ').expect("a mark, then its content");
        match mark {
            ">" => self.sent.extend(hex(content)),
            "<" => self.answered.extend(hex(content)),
            // From a server the bytes so far were right, and are a part of what is wrong.
            "!" => {
                self.sent.append(&mut self.answered);
                self.sent.extend(hex(content));
                self.wrong_at = Some(self.sent.len() - 1);
            }
            "=" => self.reading.push_str(content),
            "@" if self.sent.is_empty() && matches!(word(content), "held" | "lease_max_ms") => {
                self.before.push(content.to_owned());
            }
            "@" => self.after.push(content.to_owned()),
            _ => panic!("{self}: what does {line:?} mean?"),
        }
    }
}

/// The cases of one file: blocks between empty lines, comments left out.
pub(crate) fn cases(file: &str) -> Vec<Case> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/golden", file].iter().collect();
    let text = fs::read_to_string(&path).expect("the golden file can be read");
    let cases: Vec<Case> = text
        .split("\n\n")
        .filter(|block| !block.starts_with('#'))
        .map(|block| Case::parse(file, block))
        .collect();
    assert!(!cases.is_empty(), "{} has cases", path.display());
    cases
}

/// The cases with frames that a server may send.
pub(crate) fn answers(file: &str) -> impl Iterator<Item = Case> {
    cases(file).into_iter().filter(|case| case.wrong_at.is_none())
}

/// The bytes before the two blanks that divide them from their meaning.
fn hex(content: &str) -> impl Iterator<Item = u8> {
    let (bytes, _) = content.split_once("  ").expect("bytes, two blanks, meaning");
    bytes.split_ascii_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits"))
}

/// The word that an event begins with.
pub(crate) fn word(event: &str) -> &str {
    event.split(' ').next().expect("split gives one piece at least")
}

/// The number behind an event's word.
pub(crate) fn number(event: &str) -> u32 {
    let digits = event.rsplit(' ').next().expect("split gives one piece at least");
    match digits.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).expect("a hex number"),
        None => digits.parse().expect("a number"),
    }
}
