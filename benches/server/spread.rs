//! Median and spread of what was measured several times.

use std::fmt;

/// The values of all rounds, in order of size.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        assert!(!values.is_empty(), "a measurement has a round");
        values.sort_by(f64::total_cmp);
        Spread(values)
    }

    fn quarter(&self, quarter: usize) -> f64 {
        self.0[(self.0.len() - 1) * quarter / 4]
    }
}

/// Median, the half around it, and the extremes.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(
            f,
            "{:>8.digits$}   half in {:.digits$} .. {:.digits$}, all in {:.digits$} .. {:.digits$}",
            self.quarter(2),
            self.quarter(1),
            self.quarter(3),
            self.quarter(0),
            self.quarter(4),
        )
    }
}
