//! Median and spread of what was measured several times.

use std::fmt;

/// The values of all rounds, in order of size.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    /// None if no round has a value.
    pub(crate) fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().flatten().collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Spread(values))
    }
}

/// The median, and the least and the most unless they look the same.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        let shown = |value: f64| format!("{value:.digits$}");
        let (least, most) = (shown(self.0[0]), shown(self.0[self.0.len() - 1]));
        write!(f, "{}", shown(self.0[(self.0.len() - 1) / 2]))?;
        if least == most { Ok(()) } else { write!(f, " ({least} .. {most})") }
    }
}
