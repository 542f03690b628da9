//! The guarded resource: a row behind each lock, which holders write to with their token. It takes
//! a write by the conditional UPDATE that the documentation recommends, or, to show what goes wrong
//! then, without the condition.
//!
//! Whether a write that was taken should have been is not left to that condition. A row knows who
//! wrote it last, and says so to the next one: whoever finds a newer holder there has destroyed
//! that one's write.

mod memory;
mod postgres;
mod sqlite;
mod write_queue;

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use monolock_core::fencing::Token;
use monolock_core::time::Instant;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use memory::Memory;
pub use write_queue::{Done, Order, WriteQueue};

/// Makes the table. `value` and `token` are the resource; the rest is for the judge, who doesn't go
/// by what the resource goes by: who wrote last, and before.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS monolock_guarded (name TEXT PRIMARY KEY, \
                      value BIGINT NOT NULL, token BIGINT NOT NULL, \
                      author BIGINT NOT NULL, granted BIGINT NOT NULL, \
                      author_before BIGINT NOT NULL, granted_before BIGINT NOT NULL)";

/// Makes one row.
const INSERT: &str = "INSERT INTO monolock_guarded VALUES ($1, 0, 0, 0, 0, 0, 0)";

/// A write. `SET` sees the row as it was, so it can keep who was there: it is one statement, and
/// atomic. Both databases number the parameters by their first occurrence.
const UPDATE: &str = "UPDATE monolock_guarded SET value = $1, token = $2, author_before = author, \
                      granted_before = granted, author = $2, granted = $3 WHERE name = $4";

/// What keeps past holders out.
const FENCE: &str = " AND token <= $2";

const RETURNING: &str = " RETURNING author_before, granted_before";

fn update(rules: Rules) -> String {
    let fence = if rules.is_fenced { FENCE } else { "" };
    format!("{UPDATE}{fence}{RETURNING}")
}

/// Which holder a write is of. The later one is the larger one: by its token, and if a server gave
/// the same token twice, by when it was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Author {
    /// Its token; zero if nobody has written yet.
    pub token: u64,
    /// When its grant was read, in nanoseconds.
    pub granted_nanos: u64,
}

impl Author {
    /// The holder that read its grant then.
    pub fn new(token: Token, granted_at: Instant) -> Author {
        Author { token: token.get(), granted_nanos: granted_at.as_nanos() }
    }
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row, by its place among those that the resource was opened with.
    pub row: u32,
    /// Whose it is.
    pub author: Author,
    /// What is written.
    pub value: u64,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    /// It was taken, after an earlier one of the same holder's or of one before.
    Taken,
    /// It was taken, and has destroyed a later holder's.
    TakenOver(Author),
    /// It was refused: a larger token has been here.
    Refused,
}

impl Written {
    fn taken(author: Author, before: Author) -> Written {
        if before > author { Written::TakenOver(before) } else { Written::Taken }
    }

    /// Whether it came after a later holder's, which a program can't know that has been asleep.
    pub fn is_stale(self) -> bool {
        !matches!(self, Written::Taken)
    }
}

/// What a resource goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// It refuses tokens smaller than the largest that it has seen.
    pub is_fenced: bool,
    /// How long a write may wait for another writer: one that was stopped in the middle of its own
    /// goes on only when it wakes up.
    pub patience: Duration,
}

/// Rows that are written to.
pub trait Resource: Send + fmt::Debug {
    /// Carries out one write.
    ///
    /// # Errors
    /// If nobody knows what became of it.
    fn write(&mut self, write: &Write) -> Result<Written, ResourceError>;
}

/// Why there is no resource to write to.
#[derive(Debug, Error)]
pub enum ResourceError {
    /// The file is none of SQLite's, or can't be written.
    #[error("--resource: cannot use the SQLite file {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: rusqlite::Error,
    },
    /// There is no directory for a temporary file.
    #[error("--resource: cannot make a temporary directory for SQLite's file: {0}")]
    Temporary(std::io::Error),
    /// The server doesn't answer, or doesn't want us.
    #[error("--resource: cannot use the PostgreSQL server: {0}")]
    Postgres(String),
    /// It has fewer connections than there are processes.
    #[error(
        "--resource: the PostgreSQL server permits {permitted} connections, and each of {wanted} \
         processes takes one: lower --sessions, or raise max_connections"
    )]
    Connections {
        /// The server's limit.
        permitted: u64,
        /// What is needed.
        wanted: u64,
    },
    /// It is above what a BIGINT holds.
    #[error("token {0} does not fit into a BIGINT column")]
    Token(u64),
}

/// A resource, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// In this process's memory.
    Memory,
    /// A file of SQLite's; without a name one that is gone after the run.
    Sqlite(Option<PathBuf>),
    /// A server of PostgreSQL's.
    Postgres(String),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let is_url = |scheme: &str| text.starts_with(scheme);
        match text.split_once(':') {
            None if text == "memory" => Ok(Choice::Memory),
            None if text == "sqlite" => Ok(Choice::Sqlite(None)),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Choice::Sqlite(Some(path.into()))),
            _ if is_url("postgres://") || is_url("postgresql://") => {
                let parsed = text.parse::<::postgres::Config>();
                parsed.map_err(|error| postgres::explain(&error))?;
                Ok(Choice::Postgres(text.to_owned()))
            }
            _ => Err("use memory, sqlite, sqlite:FILE or postgres://USER@HOST/DATABASE".to_owned()),
        }
    }
}

/// Where a prepared resource is found, by another process too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Site {
    /// In the memory of whoever opens it.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// At this URL.
    Postgres(String),
}

/// A resource that has been made ready for a run.
#[derive(Debug)]
pub struct Prepared {
    /// Where it is.
    pub site: Site,
    /// Goes with the file in it.
    _directory: Option<tempfile::TempDir>,
}

impl Prepared {
    /// Makes the table, and a row for each of these names. `processes` will write to it, besides
    /// this one.
    ///
    /// # Errors
    /// One line that says what can't be used.
    pub fn new(
        choice: &Choice,
        rows: &[String],
        processes: u32,
    ) -> Result<Prepared, ResourceError> {
        let (site, directory) = match choice {
            Choice::Memory => (Site::Memory, None),
            Choice::Sqlite(Some(path)) => (Site::Sqlite(path.clone()), None),
            Choice::Sqlite(None) => {
                let directory = tempfile::Builder::new()
                    .prefix("monolock-loadgen-")
                    .tempdir()
                    .map_err(ResourceError::Temporary)?;
                (Site::Sqlite(directory.path().join("guarded.db")), Some(directory))
            }
            Choice::Postgres(url) => (Site::Postgres(url.clone()), None),
        };
        match &site {
            Site::Memory => {}
            Site::Sqlite(path) => sqlite::prepare(path, rows)?,
            Site::Postgres(url) => postgres::prepare(url, rows, processes)?,
        }
        Ok(Prepared { site, _directory: directory })
    }
}

/// Opens a prepared resource for writing to these rows.
///
/// # Errors
/// One line that says what can't be used.
pub fn open(
    site: &Site,
    rows: Vec<String>,
    rules: Rules,
) -> Result<Box<dyn Resource>, ResourceError> {
    Ok(match site {
        Site::Memory => Box::new(Memory::new(rows.len(), rules)),
        Site::Sqlite(path) => Box::new(sqlite::Sqlite::open(path, rows, rules)?),
        Site::Postgres(url) => Box::new(postgres::Postgres::open(url, rows, rules)?),
    })
}

impl Choice {
    /// What it is called in reports, without what may be secret.
    pub fn name(&self) -> &'static str {
        match self {
            Choice::Memory => "memory",
            Choice::Sqlite(_) => "SQLite",
            Choice::Postgres(_) => "PostgreSQL",
        }
    }
}

/// A number as a BIGINT has it.
fn bigint(number: u64) -> Result<i64, ResourceError> {
    i64::try_from(number).map_err(|_| ResourceError::Token(number))
}

/// Who was there before, as the database says.
fn author_before(token: i64, granted: i64) -> Author {
    Author { token: token.cast_unsigned(), granted_nanos: granted.cast_unsigned() }
}

/// An error with what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_names() {
        assert_eq!("memory".parse(), Ok(Choice::Memory));
        assert_eq!("sqlite".parse(), Ok(Choice::Sqlite(None)));
        assert_eq!("sqlite:a.db".parse(), Ok(Choice::Sqlite(Some("a.db".into()))));
        let url = "postgres://me@localhost/db";
        assert_eq!(url.parse(), Ok(Choice::Postgres(url.to_owned())));
        for text in ["", "disk", "sqlite:", "postgres:", "mysql://host/db", "memory:"] {
            let error = text.parse::<Choice>().expect_err(text);
            assert!(error.contains("sqlite:FILE"), "{error}");
        }
        let error = "postgres://host:port/db".parse::<Choice>().expect_err("a port of letters");
        assert!(error.contains("port"), "{error}");
    }
}
