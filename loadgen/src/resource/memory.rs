//! Rows in memory, for more writes a second than a database would take.

use super::{Author, Resource, ResourceError, Rules, Write, Written};

/// See the module.
#[derive(Debug)]
pub struct Memory {
    rows: Vec<Row>,
    rules: Rules,
}

#[derive(Clone, Copy, Debug, Default)]
struct Row {
    author: Author,
    value: u64,
}

impl Memory {
    /// So many rows that nobody has written to.
    pub fn new(rows: usize, rules: Rules) -> Memory {
        Memory { rows: vec![Row::default(); rows], rules }
    }

    /// The value of a row.
    pub fn value(&self, row: u32) -> u64 {
        self.rows[row as usize].value
    }
}

impl Resource for Memory {
    fn write(&mut self, write: &Write) -> Result<Written, ResourceError> {
        let row = &mut self.rows[write.row as usize];
        if self.rules.is_fenced && write.author.token < row.author.token {
            return Ok(Written::Refused);
        }
        let before = std::mem::replace(row, Row { author: write.author, value: write.value });
        Ok(Written::taken(write.author, before.author))
    }
}
