//! The area of one plot: how its axes map to it, and what they say.

use super::{LEFT, PLOT_WIDTH, RIGHT, WIDTH, line, text};

/// No latency is drawn below this: a logarithmic axis has no zero.
const FLOOR_MS: f64 = 0.001;

/// What the vertical axis shows.
#[derive(Clone, Copy, Debug)]
enum Vertical {
    /// Between two powers of ten.
    Logarithmic { min: f64, max: f64 },
    /// From zero.
    Linear { max: f64 },
}

/// The area of one plot, and how its axes map to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) top: f64,
    pub(super) height: f64,
    pub(super) x_max: f64,
    vertical: Vertical,
}

impl Frame {
    /// A logarithmic axis of milliseconds that holds all of these.
    pub(super) fn of_latencies(
        top: f64,
        height: f64,
        x_max: f64,
        all_ms: impl Iterator<Item = f64> + Clone,
    ) -> Frame {
        let powers = all_ms.map(|ms| ms.max(FLOOR_MS).log10());
        let min = powers.clone().fold(f64::INFINITY, f64::min).floor();
        let max = powers.fold(f64::NEG_INFINITY, f64::max).ceil();
        let (min, max) = if min.is_finite() { (min, max) } else { (-1.0, 1.0) };
        let vertical = Vertical::Logarithmic { min, max: max.max(min + 1.0) };
        Frame { top, height, x_max, vertical }
    }

    /// A linear axis from zero that holds all of these.
    pub(super) fn of_rates(
        top: f64,
        height: f64,
        x_max: f64,
        rates: impl Iterator<Item = f64>,
    ) -> Frame {
        let max = rates.fold(0.0, f64::max);
        let step = round_step(max, 4.0);
        let vertical = Vertical::Linear { max: (max / step).ceil().max(1.0) * step };
        Frame { top, height, x_max, vertical }
    }

    pub(super) fn x(&self, x: f64) -> f64 {
        LEFT + x / self.x_max * PLOT_WIDTH
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let share = match self.vertical {
            Vertical::Logarithmic { min, max } => (value.max(FLOOR_MS).log10() - min) / (max - min),
            Vertical::Linear { max } => value / max,
        };
        self.top + self.height * (1.0 - share)
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(super) fn write_y_axis(&self, svg: &mut String) -> std::fmt::Result {
        match self.vertical {
            Vertical::Logarithmic { min, max } =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "a few powers of ten")]
                for power in min as i32..=max as i32 {
                    self.write_y_label(svg, 10f64.powi(power))?;
                }
            }
            Vertical::Linear { max } => {
                let step = round_step(max, 4.0);
                let mut value = 0.0;
                while value <= max {
                    self.write_y_label(svg, value)?;
                    value += step;
                }
            }
        }
        Ok(())
    }

    fn write_y_label(&self, svg: &mut String, value: f64) -> std::fmt::Result {
        let y = self.y(value);
        line(svg, (LEFT, y), (WIDTH - RIGHT, y), "#ddd")?;
        text(svg, LEFT - 6.0, y + 4.0, "end", &value.to_string())
    }

    /// Every nine has the same room.
    pub(super) fn write_percentile_axis(&self, svg: &mut String) -> std::fmt::Result {
        let mut nines = 0;
        while f64::from(nines) <= self.x_max {
            let label = match nines {
                0 => "0%".to_owned(),
                1 => "90%".to_owned(),
                2 => "99%".to_owned(),
                _ => format!("99.{}%", "9".repeat(nines as usize - 2)),
            };
            self.write_x_label(svg, f64::from(nines), &label)?;
            nines += 1;
        }
        Ok(())
    }

    pub(super) fn write_time_axis(&self, svg: &mut String) -> std::fmt::Result {
        let step = round_step(self.x_max, 10.0).max(1.0);
        let mut second = 0.0;
        while second <= self.x_max {
            self.write_x_label(svg, second, &format!("{second} s"))?;
            second += step;
        }
        Ok(())
    }

    fn write_x_label(&self, svg: &mut String, x: f64, label: &str) -> std::fmt::Result {
        let x = self.x(x);
        line(svg, (x, self.top), (x, self.bottom()), "#ddd")?;
        text(svg, x, self.bottom() + 18.0, "middle", label)
    }
}

/// 1, 2 or 5 times a power of ten, from 1 on, so that `max` has at most so many of it.
fn round_step(max: f64, steps_max: f64) -> f64 {
    let steps = (0..12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
    steps.into_iter().find(|step| max / step <= steps_max).unwrap_or(max)
}
