//! The style guide, as far as a program can check it.

use std::fs;
use std::path::Path;

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;

/// Where unsafe code may stand, and why it must.
const UNSAFE_PERMITTED: [&str; 4] =
    ["ring/src/", "loadgen/src/sys.rs", "src/cli/sys.rs", "src/sys.rs"];

/// Words that say nothing about what a file holds.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "manager", "helper", "helpers", "misc", "types"];

/// What the state machine must not do; its crate could not do most of it anyway.
const BANNED_IN_CORE: [(&str, &str); 3] = [
    ("std::", "the core is no_std: time, bytes and randomness are arguments"),
    ("SystemTime", "the caller reads the clock"),
    ("println!", "the core reports by effects"),
];

/// What the server may do in one place only, or never.
const BANNED_IN_SERVER: [(&str, &str); 3] = [
    ("thread::sleep", "wait for a condition, with a deadline"),
    ("Instant::now", "clocks are read in clock.rs"),
    ("SystemTime::now", "clocks are read in clock.rs"),
];

#[test]
fn lines_are_short_and_clean() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in source.lines() {
            let mut complain = |what| faults.push(format!("{}:{number} {what}", source.name));
            if line.chars().count() > COLUMNS_MAX {
                complain("is too long");
            }
            if line.trim_end() != line {
                complain("ends in blanks");
            }
            if line.contains('\t') {
                complain("has a tab");
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn functions_fit_on_a_screen() {
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, line) in lines.iter().enumerate().filter(|(_, line)| begins_function(line)) {
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let body = &lines[start..];
            let len = body.iter().position(|line| *line == end).map_or(1, |last| last + 1);
            assert!(
                len <= FUNCTION_LINES_MAX,
                "{}:{}: a function of {len} lines: {}",
                source.name,
                start + 1,
                line.trim()
            );
        }
    }
}

#[test]
fn unsafe_code_stands_only_where_it_must() {
    for source in sources() {
        if UNSAFE_PERMITTED.iter().any(|place| source.name.starts_with(place)) {
            continue;
        }
        for (number, line) in source.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let uses = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
            assert!(
                source.name == "tests/tidy.rs" || !uses.iter().any(|word| code.contains(word)),
                "{}:{number}: unsafe code belongs in ring/ or a sys.rs",
                source.name
            );
        }
    }
}

#[test]
fn files_are_named_after_what_they_hold() {
    for source in sources() {
        for part in Path::new(&source.name).with_extension("").components() {
            let part = part.as_os_str().to_string_lossy().into_owned();
            assert!(!EMPTY_NAMES.contains(&&*part), "{}: {part} says nothing", source.name);
        }
    }
}

#[test]
fn banned_calls_are_not_made() {
    for source in sources() {
        if source.name.starts_with("core/src/") {
            source.assert_without(&BANNED_IN_CORE);
        }
        if source.name.starts_with("src/") || source.name.starts_with("core/src/") {
            source.assert_without(&BANNED_IN_SERVER);
        }
    }
}

struct Source {
    name: String,
    text: String,
}

impl Source {
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn assert_without(&self, banned: &[(&str, &str)]) {
        for (number, line) in self.lines() {
            let code = line.split("//").next().unwrap_or_default();
            for (word, instead) in banned {
                assert!(!code.contains(word), "{}:{number}: {word}: {instead}", self.name);
            }
        }
    }
}

fn begins_function(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    while words
        .next_if(|word| {
            word.starts_with("pub") || ["const", "async", "unsafe", "extern"].contains(word)
        })
        .is_some()
    {}
    words.next() == Some("fn") && !line.trim_end().ends_with(';')
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of this repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(read(root, &path));
            }
        }
    }
    assert!(found.len() > 20, "the repository's sources are here");
    found
}

fn read(root: &Path, path: &Path) -> Source {
    let text = fs::read_to_string(path).expect("a source file is text");
    let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
    Source { name, text }
}
