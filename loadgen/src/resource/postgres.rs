//! Rows in a table of a PostgreSQL server.

use std::fmt;
use std::time::Duration;

use postgres::{Client, Config, NoTls, Statement};

use super::{
    CREATE, INSERT, Resource, ResourceError, Rules, Write, Written, author_before, bigint, chain,
    update,
};

/// How long the server may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Postgres {
    client: Client,
    update: Statement,
    rows: Vec<String>,
}

/// The client has no form to be shown in.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// An error in one line: this crate's own text leaves out the cause.
pub(super) fn explain(error: &postgres::Error) -> String {
    chain(error)
}

fn failed(error: &postgres::Error) -> ResourceError {
    ResourceError::Postgres(explain(error))
}

/// Makes the table, and a row for each of these names, if there are connections enough for so many
/// processes.
pub(super) fn prepare(url: &str, rows: &[String], processes: u32) -> Result<(), ResourceError> {
    let mut client = connect(url)?;
    let limit = client.query_one("SELECT current_setting('max_connections')::bigint", &[]);
    let permitted: i64 = limit.map_err(|error| failed(&error))?.get(0);
    let (permitted, wanted) = (permitted.cast_unsigned(), u64::from(processes));
    if wanted >= permitted {
        return Err(ResourceError::Connections { permitted, wanted });
    }
    let mut prepare = || {
        let mut transaction = client.transaction()?;
        transaction.batch_execute(CREATE)?;
        let insert = transaction.prepare(INSERT)?;
        for row in rows {
            transaction.execute(&insert, &[row])?;
        }
        transaction.commit()
    };
    prepare().map_err(|error| failed(&error))
}

fn connect(url: &str) -> Result<Client, ResourceError> {
    let mut config: Config = url.parse().map_err(|error| failed(&error))?;
    config.connect_timeout(PATIENCE).application_name("monolock-loadgen");
    config.connect(NoTls).map_err(|error| failed(&error))
}

impl Postgres {
    pub(super) fn open(
        url: &str,
        rows: Vec<String>,
        rules: Rules,
    ) -> Result<Postgres, ResourceError> {
        let mut client = connect(url)?;
        let update = client.prepare(&update(rules)).map_err(|error| failed(&error))?;
        Ok(Postgres { client, update, rows })
    }
}

impl Resource for Postgres {
    fn write(&mut self, write: &Write) -> Result<Written, ResourceError> {
        let Write { row, author, value } = *write;
        let (token, granted) = (bigint(author.token)?, bigint(author.granted_nanos)?);
        let value = bigint(value)?;
        let name = &self.rows[row as usize];
        let before = self.client.query_opt(&self.update, &[&value, &token, &granted, name]);
        Ok(match before.map_err(|error| failed(&error))? {
            Some(before) => Written::taken(author, author_before(before.get(0), before.get(1))),
            None => Written::Refused,
        })
    }
}
