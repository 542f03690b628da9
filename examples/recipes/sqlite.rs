//! Rows of SQLite's, written by whoever holds the lock.

use monolock_client::{Token, Written};
use rusqlite::{Connection, Result, Transaction, TransactionBehavior, params};

pub(crate) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS report (
        id TEXT PRIMARY KEY, body TEXT NOT NULL, token INTEGER NOT NULL
    );
    CREATE TABLE IF NOT EXISTS guard (lock TEXT PRIMARY KEY, token INTEGER NOT NULL);
";

/// One row: the token is in the statement that writes it.
pub(crate) fn write_row(
    db: &Connection,
    token: Token,
    id: &str,
    body: &str,
) -> Result<Written<u64>> {
    let changed = db.execute(
        "INSERT INTO report (id, body, token) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET body = excluded.body, token = excluded.token
             WHERE report.token <= excluded.token",
        params![id, body, bigint(token)],
    )?;
    Ok(Written::of_rows(changed as u64))
}

/// Any number of rows: a row stands for the lock, and a transaction begins with raising its token.
pub(crate) fn write_all<T>(
    db: &mut Connection,
    lock: &str,
    token: Token,
    write: impl FnOnce(&Transaction<'_>) -> Result<T>,
) -> Result<Written<T>> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let raised = transaction.execute(
        "INSERT INTO guard (lock, token) VALUES (?1, ?2)
             ON CONFLICT (lock) DO UPDATE SET token = excluded.token
             WHERE guard.token <= excluded.token",
        params![lock, bigint(token)],
    )?;
    if raised == 0 {
        // Dropped without a commit, it is rolled back.
        return Ok(Written::Refused);
    }
    let value = write(&transaction)?;
    transaction.commit()?;
    Ok(Written::Done(value))
}

fn bigint(token: Token) -> i64 {
    i64::try_from(token.get()).expect("a token of this age fits")
}
