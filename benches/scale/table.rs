//! A table with a column for each run.

use std::fmt;

/// What one run has come to, under the names of the lines.
pub(crate) type Column = Vec<(&'static str, String)>;

#[derive(Default)]
pub(crate) struct Table(Vec<Column>);

impl Table {
    /// Also says at once what is in it, since the next column takes minutes.
    pub(crate) fn add(&mut self, column: Column) {
        println!();
        for (name, value) in &column {
            println!("  {name:<44}{value:>16}");
        }
        self.0.push(column);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.0.iter().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        for name in names {
            write!(f, "| {name:<44} |")?;
            for column in &self.0 {
                let value = column.iter().find(|(other, _)| *other == name);
                write!(f, " {:>16} |", value.map_or("", |(_, value)| value))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
