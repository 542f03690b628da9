//! The tables in the documentation say what the code does.

use std::fs;
use std::path::Path;

use monolock::config::FLAGS;
use monolock::control::metrics::FAMILIES;
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
fn every_release_reason_is_documented() {
    let text = read("docs/reference/protocol.md");
    for reason in ReleaseReason::ALL {
        assert!(text.contains(&format!("| `{reason}` |")), "{reason}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("docs")];
    let mut documents = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    let mut links = 0;
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document is text");
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

fn table_rows(document: &str, start: &str) -> Vec<String> {
    read(document).lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

fn read(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    fs::read_to_string(path).expect("the document is there")
}
