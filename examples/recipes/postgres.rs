//! Rows of PostgreSQL's, written by whoever holds the lock.

use monolock_client::{Token, Written};
use postgres::{Client, Error, Transaction};

pub(crate) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS report (
        id TEXT PRIMARY KEY, body TEXT NOT NULL, token BIGINT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS guard (lock TEXT PRIMARY KEY, token BIGINT NOT NULL);
";

/// One row: the token is in the statement that writes it.
pub(crate) fn write_row(
    db: &mut Client,
    token: Token,
    id: &str,
    body: &str,
) -> Result<Written<u64>, Error> {
    let changed = db.execute(
        "INSERT INTO report (id, body, token) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE SET body = excluded.body, token = excluded.token
             WHERE report.token <= excluded.token",
        &[&id, &body, &bigint(token)],
    )?;
    Ok(Written::of_rows(changed))
}

/// Any number of rows: a row stands for the lock, and a transaction begins with raising its token.
pub(crate) fn write_all<T>(
    db: &mut Client,
    lock: &str,
    token: Token,
    write: impl FnOnce(&mut Transaction<'_>) -> Result<T, Error>,
) -> Result<Written<T>, Error> {
    let mut transaction = db.transaction()?;
    let raised = transaction.execute(
        "INSERT INTO guard (lock, token) VALUES ($1, $2)
             ON CONFLICT (lock) DO UPDATE SET token = excluded.token
             WHERE guard.token <= excluded.token",
        &[&lock, &bigint(token)],
    )?;
    if raised == 0 {
        // Dropped without a commit, it is rolled back.
        return Ok(Written::Refused);
    }
    let value = write(&mut transaction)?;
    transaction.commit()?;
    Ok(Written::Done(value))
}

fn bigint(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token of this age fits")
}
