//! The frames of `tests/golden`, read as far as inputs need it: the bytes of a case, whoever sends
//! them.

use std::fs;
use std::path::Path;

/// The bytes of every case of every file.
///
/// # Panics
/// If the files are not there, or are not what they were.
pub fn inputs() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).expect("the golden files") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(path).expect("a golden file is text");
        for case in text.split("\n\n") {
            for mark in ["> ", "< ", "! "] {
                let lines = case.lines().filter_map(|line| line.strip_prefix(mark));
                let bytes: Vec<u8> = lines.flat_map(hex).collect();
                if !bytes.is_empty() {
                    inputs.push(bytes);
                }
            }
        }
    }
    assert!(inputs.len() > 50, "only {} cases were found", inputs.len());
    inputs
}

/// The bytes before the two blanks that divide them from their meaning.
fn hex(content: &str) -> Vec<u8> {
    let bytes = content.split("  ").next().unwrap_or_default();
    let byte = |digits| u8::from_str_radix(digits, 16).expect("two hex digits");
    bytes.split_ascii_whitespace().map(byte).collect()
}
