//! Rows in a file of SQLite's, which several processes write to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};

use super::{
    CREATE, INSERT, Resource, ResourceError, Rules, Write, Written, author_before, bigint, update,
};

/// How long preparing waits for whoever else uses the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Sqlite {
    connection: Connection,
    path: PathBuf,
    rows: Vec<String>,
    update: String,
}

/// Makes the table, and a row for each of these names.
pub(super) fn prepare(path: &Path, rows: &[String]) -> Result<(), ResourceError> {
    let prepare = || {
        let mut connection = connect(path, PATIENCE)?;
        let transaction = connection.transaction()?;
        transaction.execute(CREATE, [])?;
        for row in rows {
            transaction.execute(INSERT, [row])?;
        }
        transaction.commit()
    };
    prepare().map_err(|source| ResourceError::Sqlite { path: path.to_owned(), source })
}

fn connect(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(patience)?;
    // Writers don't wait for readers, nor for the disk; a crash of the machine may lose the last
    // writes, which a run doesn't survive anyway.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

impl Sqlite {
    pub(super) fn open(
        path: &Path,
        rows: Vec<String>,
        rules: Rules,
    ) -> Result<Sqlite, ResourceError> {
        let connection = connect(path, rules.patience)
            .map_err(|source| ResourceError::Sqlite { path: path.to_owned(), source })?;
        Ok(Sqlite { connection, path: path.to_owned(), rows, update: update(rules) })
    }
}

impl Resource for Sqlite {
    fn write(&mut self, write: &Write) -> Result<Written, ResourceError> {
        let Write { row, author, value } = *write;
        let (token, granted) = (bigint(author.token)?, bigint(author.granted_nanos)?);
        let value = bigint(value)?;
        let name = &self.rows[row as usize];
        let execute = || {
            let mut statement = self.connection.prepare_cached(&self.update)?;
            let mut returned = statement.query(params![value, token, granted, name])?;
            let Some(before) = returned.next()? else {
                return Ok(Written::Refused);
            };
            let before = author_before(before.get(0)?, before.get(1)?);
            // To the statement's end, where it is committed.
            assert!(returned.next()?.is_none(), "the name is the table's key");
            Ok(Written::taken(author, before))
        };
        execute().map_err(|source| ResourceError::Sqlite { path: self.path.clone(), source })
    }
}
