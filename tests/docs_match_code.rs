//! The tables in the documentation say what the code does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use monolock::cli::exit_code::{self, CONFLICT, FAILED, LOST, NOT_EXECUTABLE, NOT_FOUND};
use monolock::config::FLAGS;
use monolock::control::metrics::{FAMILIES, Kind};
use monolock::control::{ADMIN_ENDPOINTS, OPS_PATHS};
use monolock::fatal::{EXIT_DEAD_END, EXIT_USAGE};
use monolock_core::effect::ReleaseReason;
use monolock_core::wire::ErrorCode;

#[test]
fn every_flag_is_documented_and_nothing_else() {
    let rows = table_rows("docs/reference/configuration.md", "| `--");
    let documented: Vec<[&str; 3]> = rows
        .iter()
        .map(|row| {
            let cells: Vec<&str> =
                row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            [cells[1].trim_start_matches('-'), cells[2], cells[3]]
        })
        .collect();
    let real: Vec<[&str; 3]> =
        FLAGS.iter().map(|flag| [flag.name, flag.variable, flag.default]).collect();
    assert_eq!(documented, real);
}

#[test]
fn every_metric_is_documented_and_nothing_else() {
    let rows = ["| `monolock_", "| `process_"]
        .map(|start| table_rows("docs/operations/observability.md", start))
        .concat();
    let documented: Vec<[&str; 2]> = rows
        .iter()
        .map(|row| {
            // Labels stand behind the name, and a bar in them is escaped.
            let (name, rest) = row.trim_start_matches("| `").split_once('`').expect("a name");
            let kind = rest.split('|').nth(1).expect("a cell").trim();
            [name.split('{').next().expect("a part"), kind]
        })
        .collect();
    let real: Vec<[&str; 2]> =
        FAMILIES.iter().map(|family| [family.name, family.kind.as_str()]).collect();
    assert_eq!(documented, real);
}

#[test]
fn every_error_code_is_documented_and_nothing_else() {
    let documented: Vec<String> = table_rows("docs/reference/protocol.md", "| 0x")
        .iter()
        .map(|row| row.split('|').nth(1).expect("a cell").trim().to_owned())
        .collect();
    let real: Vec<String> = [0x01, 0x02, 0x03]
        .into_iter()
        .chain(ErrorCode::CLIENT_ERROR_MIN.get()..=ErrorCode::LEASE_TOO_LONG.get())
        .map(|number| ErrorCode::new(number).to_string())
        .collect();
    assert_eq!(documented, real);
}

#[test]
fn every_endpoint_is_documented_and_nothing_else() {
    let code_in_first_cell = |row: &String| {
        let cell = row.trim_start_matches("| `").split('`').next().expect("a part");
        cell.split('?').next().expect("a part").to_owned()
    };
    let documented: Vec<String> = ["| `GET ", "| `POST ", "| `DELETE "]
        .iter()
        .flat_map(|start| table_rows("docs/operations/admin.md", start))
        .map(|row| code_in_first_cell(&row))
        .collect();
    let real = ADMIN_ENDPOINTS.map(|(method, path)| format!("{method} {path}"));
    assert_eq!(sorted(documented), sorted(real.to_vec()));
    let documented: Vec<String> = table_rows("docs/operations/observability.md", "| `/")
        .iter()
        .map(code_in_first_cell)
        .collect();
    assert_eq!(documented, OPS_PATHS);
}

#[test]
fn every_exit_code_is_documented_and_nothing_else() {
    let documented = |document, first: &str| -> Vec<String> {
        let text = read(document);
        let (_, table) = text.split_once(first).expect("the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| row.split('|').nth(1).expect("a cell").trim().to_owned()).collect()
    };
    let server = documented("docs/reference/configuration.md", "| status | when |");
    let known = [EXIT_DEAD_END, EXIT_USAGE].map(|code| code.to_string());
    assert_eq!(server, [&["0".into()], &known[..], &["128 + n".into()]].concat());
    let run = documented("docs/reference/run.md", "| code | when |");
    let known = [LOST, CONFLICT, FAILED, NOT_EXECUTABLE, NOT_FOUND].map(|code| code.to_string());
    assert_eq!(run, [&["the command's".into(), "128 + n".into()], &known[..]].concat());
    for code in known {
        assert!(exit_code::HELP.contains(&code), "{code} is in the help");
    }
}

/// Names that begin so, whatever stands around them.
fn names(text: &str, start: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = text.match_indices(start).filter(|(place, _)| {
        text[..*place].chars().next_back().is_none_or(|before| !is_of_name(before))
    });
    let name = |place: usize| {
        let rest = &text[place..];
        rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())].to_owned()
    };
    found.map(|(place, _)| name(place)).collect()
}

#[test]
fn every_variable_is_documented_and_those_that_are_exist() {
    let in_all = |folders: &[&str], extensions: &[&str]| -> BTreeSet<String> {
        let texts = folders.iter().flat_map(|folder| files(folder, extensions));
        texts.flat_map(|(_, text)| names(&text, "MONOLOCK_")).collect()
    };
    // They are of the build, and a prefix.
    let not_for_users = ["MONOLOCK_COMMIT", "MONOLOCK_"].map(str::to_owned).into();
    let documented = in_all(&["docs", "packaging"], &[]);
    let read = in_all(&["src"], &["rs"]);
    let undocumented: Vec<_> = (&read - &not_for_users).difference(&documented).cloned().collect();
    assert_eq!(undocumented, [""; 0], "the server and the CLI read them");
    let known = &read | &in_all(&["tests", "fuzz", "loadgen", "client", "conformance"], &["rs"]);
    let unknown: Vec<_> = documented.difference(&known).cloned().collect();
    assert_eq!(unknown, [""; 0], "nobody reads them");
}

#[test]
fn every_metric_that_is_named_anywhere_exists() {
    // They are crates and a database.
    const OTHERS: [&str; 6] = [
        "monolock_client",
        "monolock_core",
        "monolock_guarded",
        "monolock_loadgen",
        "monolock_loop_",
        "monolock_ring",
    ];
    let mut seen = 0;
    for (path, text) in ["docs", "packaging"].iter().flat_map(|folder| files(folder, &[])) {
        for name in names(&text, "monolock_") {
            let is_metric = FAMILIES.iter().any(|family| {
                let rest = name.strip_prefix(family.name);
                let parts: &[&str] = match family.kind {
                    Kind::Histogram => &["", "_bucket", "_sum", "_count"],
                    Kind::Gauge | Kind::Counter => &[""],
                };
                rest.is_some_and(|rest| parts.contains(&rest))
            });
            assert!(is_metric || OTHERS.contains(&&*name), "{}: no metric {name}", path.display());
            seen += 1;
        }
    }
    assert!(seen > FAMILIES.len() / 2, "there are metrics to check");
}

#[test]
fn every_release_reason_is_documented() {
    let text = read("docs/reference/protocol.md");
    for reason in ReleaseReason::ALL {
        assert!(text.contains(&format!("| `{reason}` |")), "{reason}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = files("docs", &["md"]);
    documents.push((root.join("README.md"), read("README.md")));
    let mut links = 0;
    for (document, text) in documents {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().expect("a part");
            if target.contains("://") || file.is_empty() {
                continue;
            }
            let path = document.parent().expect("a folder").join(file);
            assert!(path.exists(), "{}: {target} leads nowhere", document.display());
            links += 1;
        }
    }
    assert!(links > 5, "there are links to check");
}

/// All text files in a folder of the repository and below it, with these extensions or with any.
fn files(folder: &str, extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if extensions.is_empty() || extension.is_some_and(|it| extensions.contains(&it))
            {
                // What is no text has nothing to say here.
                found.extend(fs::read_to_string(&path).map(|text| (path, text)));
            }
        }
    }
    found
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

fn table_rows(document: &str, start: &str) -> Vec<String> {
    read(document).lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn read(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    fs::read_to_string(path).expect("the document is there")
}
