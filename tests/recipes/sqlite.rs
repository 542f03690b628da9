//! SQLite, in a file that several connections have open.

use std::path::Path;
use std::time::Duration;

use monolock_client::{Client as LockClient, Held, Loss, RunError, Token, WriteError, Written};
use rusqlite::Connection;

use crate::harness::server::Launch;
use crate::{Resource, check_at_once, check_in_turn};

#[path = "../../examples/recipes/sqlite.rs"]
mod recipe;

struct Row(Connection);
struct Rows(Connection);

fn open(directory: &Path) -> Connection {
    let db = Connection::open(directory.join("reports")).expect("a file");
    db.busy_timeout(Duration::from_secs(60)).expect("setting a time");
    db.execute_batch(recipe::TABLES).expect("tables");
    db
}

impl Resource for Row {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        match recipe::write_row(&self.0, token, "daily", text).expect("a write") {
            Written::Done(rows) => {
                assert_eq!(rows, 1);
                Written::Done(())
            }
            Written::Refused => Written::Refused,
        }
    }

    fn content(&mut self) -> String {
        self.0.query_row("SELECT body FROM report", [], |row| row.get(0)).expect("a row")
    }
}

impl Resource for Rows {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        let written = recipe::write_all(&mut self.0, "nightly/import", token, |transaction| {
            for id in ["one", "two"] {
                let row = "INSERT INTO report (id, body, token) VALUES (?1, ?2, 0)
                           ON CONFLICT (id) DO UPDATE SET body = excluded.body";
                transaction.execute(row, [id, text])?;
            }
            Ok(())
        });
        written.expect("a write")
    }

    fn content(&mut self) -> String {
        let bodies = "SELECT min(body), max(body) FROM report";
        let (least, largest): (String, String) =
            self.0.query_row(bodies, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        assert_eq!(least, largest, "a transaction is whole");
        least
    }
}

#[test]
fn an_older_token_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    check_in_turn(&mut Row(open(directory.path())));
    check_at_once(|| Row(open(directory.path())));
    let directory = tempfile::tempdir().expect("a directory");
    check_in_turn(&mut Rows(open(directory.path())));
    check_at_once(|| Rows(open(directory.path())));
}

/// As a whole: the refusal of the database is the loss of the lock.
#[test]
fn a_refusal_ends_the_work() {
    let server = Launch::on_loopback().start();
    let client = LockClient::new(&server.address().to_string()).expect("an address");
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    let ran = client.lock("daily").run_blocking(|held: Held| {
        let write = |token, body| recipe::write_row(&db, token, "daily", body);
        held.write_blocking(|token| write(token, "mine")).expect("the first write");
        // As if this one had slept, and the next holder had written.
        let token = held.token().expect("held").get();
        let newer = Token::new(token + 1).expect("not zero");
        assert_eq!(write(newer, "the next one's").expect("a write"), Written::Done(1));
        let refused = held.write_blocking(|token| write(token, "mine"));
        assert!(matches!(refused, Err(WriteError::Lost(Loss::Fenced))), "{refused:?}");
    });
    assert!(matches!(ran, Err(RunError::Lost { loss: Loss::Fenced, .. })), "{ran:?}");
    assert_eq!(Row(db).content(), "the next one's");
}
