//! Plots: latency by percentile, on an axis that gives each nine the same room, and over time.

use std::fmt::Write;
use std::path::Path;

use crate::comparison::{Comparison, letter};
use crate::results::{PhaseResult, Results, at, ms};

const WIDTH: f64 = 760.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 36.0;
const LEGEND_ROW: f64 = 18.0;
/// About the width of a letter.
const CHAR_WIDTH: f64 = 6.6;
const GAP: f64 = 70.0;
const BOTTOM: f64 = 50.0;

/// Colours that most colour-blind people can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Points in each half of the distance that is left to 100%.
const TICKS_PER_HALF_DISTANCE: u32 = 4;

/// No latency is drawn below this: a logarithmic axis has no zero.
const FLOOR_MS: f64 = 0.001;

/// A line, as x and y in the axes' own units.
struct Curve {
    name: String,
    colour: usize,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

/// One result: all its phases.
pub fn of_run(results: &Results) -> String {
    let phases: Vec<_> = results.phases.iter().filter(|phase| phase.count > 0).collect();
    let mut by_percentile = Vec::new();
    let mut over_time = Vec::new();
    for (colour, phase) in phases.into_iter().enumerate() {
        by_percentile.push(percentile_curve(phase.name.clone(), colour, phase));
        over_time.extend(time_curves(colour, phase));
    }
    let parameters = &results.parameters;
    let title = format!(
        "{}: {} sessions, {} locks{}",
        parameters.scenario,
        parameters.sessions,
        parameters.locks,
        if parameters.is_open_loop { "" } else { ", closed loop" },
    );
    draw(&title, &by_percentile, &over_time)
}

/// Several results: the phase that their scenario is about.
pub fn of_comparison(comparison: &Comparison) -> String {
    let phase_name = comparison.main_phase().name();
    let mut by_percentile = Vec::new();
    let mut over_time = Vec::new();
    for (number, (file, run)) in comparison.runs().iter().enumerate() {
        let Some(phase) = run.phase(phase_name).filter(|phase| phase.count > 0) else {
            continue;
        };
        let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}: {file}", letter(number));
        by_percentile.push(percentile_curve(name, number, phase));
        over_time.extend(time_curves(number, phase));
    }
    let is_comparable = comparison.reservations().is_empty();
    let note = if is_comparable { "" } else { " (not comparable without reservations)" };
    draw(&format!("{phase_name}{note}"), &by_percentile, &over_time)
}

/// x is the logarithm of 1/(1-p). The line ends where the last of all latencies is the only one
/// left, rather than at a hundred per cent, which is nowhere on this axis.
fn percentile_curve(name: String, colour: usize, phase: &PhaseResult) -> Curve {
    let mut points = Vec::new();
    if let Ok(histogram) = phase.corrected.histogram() {
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let x_max = (histogram.len() as f64).log10().max(1.0);
        for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            let x = -(1.0 - step.quantile_iterated_to()).log10();
            if x >= x_max {
                break;
            }
            points.push((x, ms(step.value_iterated_to()).min(ms(histogram.max()))));
        }
        points.push((x_max, at(&histogram, 100.0)));
    }
    Curve { name, colour, is_dashed: false, points }
}

/// Nothing for a phase that was over before measuring.
fn time_curves(colour: usize, phase: &PhaseResult) -> Vec<Curve> {
    if phase.seconds.is_empty() {
        return Vec::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
    let line = |value: fn(&crate::results::SecondResult) -> f64| {
        phase.seconds.iter().map(|second| (second.second as f64 + 0.5, value(second))).collect()
    };
    let curve = |is_dashed, points| Curve { name: String::new(), colour, is_dashed, points };
    vec![curve(false, line(|second| second.p99_ms)), curve(true, line(|second| second.max_ms))]
}

impl Curve {
    fn style(&self) -> String {
        let colour = COLOURS[self.colour % COLOURS.len()];
        let dash = if self.is_dashed { " stroke-dasharray=\"3 3\"" } else { "" };
        format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dash}")
    }
}

/// The area of one plot, and how its axes map to it.
struct Frame {
    top: f64,
    x_max: f64,
    /// Powers of ten.
    y_min: f64,
    y_max: f64,
}

impl Frame {
    fn new(top: f64, curves: &[Curve], x_max_least: f64) -> Frame {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let x_max = points().map(|(x, _)| x + 0.01).fold(x_max_least, f64::max);
        let y = || points().map(|(_, y)| y.max(FLOOR_MS).log10());
        let y_min = y().fold(f64::INFINITY, f64::min).floor();
        let y_max = y().fold(f64::NEG_INFINITY, f64::max).ceil();
        let (y_min, y_max) = if y_min.is_finite() { (y_min, y_max) } else { (-1.0, 1.0) };
        Frame { top, x_max, y_min, y_max: y_max.max(y_min + 1.0) }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + x / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ms: f64) -> f64 {
        let share = (ms.max(FLOOR_MS).log10() - self.y_min) / (self.y_max - self.y_min);
        self.top + PLOT_HEIGHT * (1.0 - share)
    }

    fn bottom(&self) -> f64 {
        self.top + PLOT_HEIGHT
    }
}

fn draw(title: &str, by_percentile: &[Curve], over_time: &[Curve]) -> String {
    let mut svg = String::new();
    // Writing to a String doesn't fail.
    let _ = write_picture(&mut svg, title, by_percentile, over_time);
    svg
}

fn write_picture(
    svg: &mut String,
    title: &str,
    by_percentile: &[Curve],
    over_time: &[Curve],
) -> std::fmt::Result {
    let places = legend_places(by_percentile);
    let rows = places.last().map_or(0.0, |(_, row)| row + 1.0);
    let top = TOP + rows * LEGEND_ROW;
    let height = top + PLOT_HEIGHT + GAP + PLOT_HEIGHT + BOTTOM;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>")?;
    text(svg, LEFT, 20.0, "start", &format!("{title}: latency in ms by percentile"))?;
    for (curve, (x, row)) in by_percentile.iter().zip(places) {
        let y = TOP + row * LEGEND_ROW;
        writeln!(svg, "<path {} d=\"M{x:.0},{y:.0} h18\"/>", curve.style())?;
        text(svg, x + 22.0, y + 4.0, "start", &curve.name)?;
    }
    let frame = Frame::new(top, by_percentile, 2.0);
    write_y_axis(svg, &frame)?;
    write_percentile_axis(svg, &frame)?;
    write_curves(svg, &frame, by_percentile)?;

    let top = top + PLOT_HEIGHT + GAP;
    let title = "Second by second: latency in ms at p99 (solid) and at most (dashed)";
    text(svg, LEFT, top - 14.0, "start", title)?;
    let frame = Frame::new(top, over_time, 1.0);
    write_y_axis(svg, &frame)?;
    write_time_axis(svg, &frame)?;
    write_curves(svg, &frame, over_time)?;
    writeln!(svg, "</svg>")
}

fn write_y_axis(svg: &mut String, frame: &Frame) -> std::fmt::Result {
    #[expect(clippy::cast_possible_truncation, reason = "a few powers of ten")]
    for power in frame.y_min as i32..=frame.y_max as i32 {
        let ms = 10f64.powi(power);
        let y = frame.y(ms);
        line(svg, (LEFT, y), (WIDTH - RIGHT, y), "#ddd")?;
        text(svg, LEFT - 6.0, y + 4.0, "end", &ms.to_string())?;
    }
    Ok(())
}

fn write_percentile_axis(svg: &mut String, frame: &Frame) -> std::fmt::Result {
    let mut nines = 0;
    while f64::from(nines) <= frame.x_max {
        let x = frame.x(f64::from(nines));
        line(svg, (x, frame.top), (x, frame.bottom()), "#ddd")?;
        let label = match nines {
            0 => "0%".to_owned(),
            1 => "90%".to_owned(),
            2 => "99%".to_owned(),
            _ => format!("99.{}%", "9".repeat(nines as usize - 2)),
        };
        text(svg, x, frame.bottom() + 18.0, "middle", &label)?;
        nines += 1;
    }
    Ok(())
}

fn write_time_axis(svg: &mut String, frame: &Frame) -> std::fmt::Result {
    // Steps of 1, 2 or 5 times a power of ten, of which there are ten at most.
    let steps = (0..6).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
    let step = steps.into_iter().find(|step| frame.x_max / step <= 10.0).unwrap_or(frame.x_max);
    let mut second = 0.0;
    while second <= frame.x_max {
        let x = frame.x(second);
        line(svg, (x, frame.top), (x, frame.bottom()), "#ddd")?;
        text(svg, x, frame.bottom() + 18.0, "middle", &format!("{second} s"))?;
        second += step;
    }
    Ok(())
}

fn write_curves(svg: &mut String, frame: &Frame, curves: &[Curve]) -> std::fmt::Result {
    for curve in curves {
        write!(svg, "<polyline {} points=\"", curve.style())?;
        for (x, y) in &curve.points {
            write!(svg, "{:.1},{:.1} ", frame.x(*x), frame.y(*y))?;
        }
        writeln!(svg, "\"/>")?;
    }
    Ok(())
}

/// Where the names of the curves go: x and row. They are the second plot's legend too, whose curves
/// have the same colours.
fn legend_places(curves: &[Curve]) -> Vec<(f64, f64)> {
    let (mut x, mut row) = (LEFT, 0.0);
    let mut places = Vec::new();
    for curve in curves {
        #[expect(clippy::cast_precision_loss, reason = "the length of a name")]
        let width = 22.0 + curve.name.chars().count() as f64 * CHAR_WIDTH + 14.0;
        if x > LEFT && x + width > WIDTH {
            (x, row) = (LEFT, row + 1.0);
        }
        places.push((x, row));
        x += width;
    }
    places
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) -> std::fmt::Result {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(svg, "<path stroke=\"{colour}\" d=\"M{x1:.1},{y1:.1} L{x2:.1},{y2:.1}\"/>")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) -> std::fmt::Result {
    write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">")?;
    for c in words.chars() {
        match c {
            '&' => svg.push_str("&amp;"),
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            c if c.is_control() => svg.push('\u{fffd}'),
            c => svg.push(c),
        }
    }
    writeln!(svg, "</text>")
}
