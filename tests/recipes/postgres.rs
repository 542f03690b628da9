//! A PostgreSQL server of the test's own.

use monolock_client::{Token, Written};
use postgres::{Client, NoTls};

use crate::{Resource, check_at_once, check_in_turn};

#[path = "../../loadgen/tests/harness/private_cluster.rs"]
mod private_cluster;
#[path = "../../examples/recipes/postgres.rs"]
mod recipe;

struct Row(Client);
struct Rows(Client);

fn open(url: &str) -> Client {
    Client::connect(url, NoTls).expect("it is there")
}

impl Resource for Row {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        match recipe::write_row(&mut self.0, token, "daily", text).expect("a write") {
            Written::Done(rows) => {
                assert_eq!(rows, 1);
                Written::Done(())
            }
            Written::Refused => Written::Refused,
        }
    }

    fn content(&mut self) -> String {
        self.0.query_one("SELECT body FROM report WHERE id = 'daily'", &[]).expect("a row").get(0)
    }
}

impl Resource for Rows {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        let written = recipe::write_all(&mut self.0, "nightly/import", token, |transaction| {
            for id in ["one", "two"] {
                let row = "INSERT INTO report (id, body, token) VALUES ($1, $2, 0)
                           ON CONFLICT (id) DO UPDATE SET body = excluded.body";
                transaction.execute(row, &[&id, &text])?;
            }
            Ok(())
        });
        written.expect("a write")
    }

    fn content(&mut self) -> String {
        let bodies = "SELECT min(body), max(body) FROM report WHERE id IN ('one', 'two')";
        let row = self.0.query_one(bodies, &[]).expect("rows");
        let (least, largest): (String, String) = (row.get(0), row.get(1));
        assert_eq!(least, largest, "a transaction is whole");
        least
    }
}

#[test]
fn an_older_token_changes_nothing() {
    let Some(cluster) = private_cluster::PrivateCluster::start(20) else { return };
    let url = cluster.url();
    open(&url).batch_execute(recipe::TABLES).expect("tables");
    check_in_turn(&mut Row(open(&url)));
    check_at_once(|| Row(open(&url)));
    check_in_turn(&mut Rows(open(&url)));
    check_at_once(|| Rows(open(&url)));
}
