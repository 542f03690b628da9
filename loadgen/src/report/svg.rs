//! Plots: latency by percentile, on an axis that gives each nine the same room; latency and grants
//! over time, with what happened when.

mod frame;
mod mark_rows;

use std::fmt::Write;
use std::path::Path;

use self::frame::Frame;
use self::mark_rows::MarkRows;
use crate::comparison::{Comparison, letter};
use crate::results::{Grants, PhaseResult, Results, SecondResult, at, ms};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 36.0;
const PLOT_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const LATENCY_HEIGHT: f64 = 260.0;
const GRANTS_HEIGHT: f64 = 110.0;
const TOP: f64 = 36.0;
const LEGEND_ROW: f64 = 18.0;
/// About the width of a letter.
const CHAR_WIDTH: f64 = 6.6;
const GAP: f64 = 70.0;
const BOTTOM: f64 = 50.0;

/// Colours that most colour-blind people can tell apart (Okabe and Ito, and two of Tol's).
const COLOURS: [&str; 9] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#882255",
    "#999933",
];

/// The place of black among them.
const BLACK: usize = 6;

/// Points in each half of the distance that is left to 100%.
const TICKS_PER_HALF_DISTANCE: u32 = 4;

/// Grants are drawn in at most so many steps: less than two pixels each.
const GRANT_STEPS_MAX: usize = 400;

/// A line, as x and y in the axes' own units.
struct Curve {
    name: String,
    colour: usize,
    is_dashed: bool,
    points: Vec<(f64, f64)>,
}

/// What a picture shows.
struct Picture<'a> {
    title: String,
    by_percentile: Vec<Curve>,
    over_time: Vec<Curve>,
    grants: Vec<Curve>,
    marks: MarkRows<'a>,
}

/// One result: all its phases.
pub fn of_run(results: &Results) -> String {
    // What took no time at all is nowhere on a logarithmic axis.
    let takes_time = |phase: &&PhaseResult| phase.count > 0 && phase.corrected.max_ms > 0.0;
    let phases: Vec<_> = results.phases.iter().filter(takes_time).collect();
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
    let grants = grants_curve(BLACK, &results.grants).into_iter().collect();
    let mut marks = MarkRows::new();
    marks.add("", &results.marks);
    draw(&Picture { title, by_percentile, over_time, grants, marks })
}

/// Several results: the phase that their scenario is about.
pub fn of_comparison(comparison: &Comparison) -> String {
    let phase_name = comparison.main_phase().name();
    let is_comparable = comparison.reservations().is_empty();
    let note = if is_comparable { "" } else { " (not comparable without reservations)" };
    let mut picture = Picture {
        title: format!("{phase_name}{note}"),
        by_percentile: Vec::new(),
        over_time: Vec::new(),
        grants: Vec::new(),
        marks: MarkRows::new(),
    };
    for (number, (file, run)) in comparison.runs().iter().enumerate() {
        picture.grants.extend(grants_curve(number, &run.grants));
        picture.marks.add(&format!("{} ", letter(number)), &run.marks);
        let Some(phase) = run.phase(phase_name).filter(|phase| phase.count > 0) else {
            continue;
        };
        let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}: {file}", letter(number));
        picture.by_percentile.push(percentile_curve(name, number, phase));
        picture.over_time.extend(time_curves(number, phase));
    }
    draw(&picture)
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

/// Nothing for a phase that was over before measuring. A line ends where nothing was timed in a
/// second: drawn through the gap it would show what nobody has seen.
fn time_curves(colour: usize, phase: &PhaseResult) -> Vec<Curve> {
    let follows = |a: &SecondResult, b: &SecondResult| a.second + 1 == b.second;
    let mut curves = Vec::new();
    for seconds in phase.seconds.chunk_by(follows) {
        let mut add = |is_dashed, value: fn(&SecondResult) -> f64| {
            let points = points_in_time(seconds, value);
            curves.push(Curve { name: String::new(), colour, is_dashed, points });
        };
        add(false, |second| second.p99_ms);
        add(true, |second| second.max_ms);
    }
    curves
}

/// A point in the middle of each second. One alone is drawn as a line through its second.
#[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
fn points_in_time(seconds: &[SecondResult], value: fn(&SecondResult) -> f64) -> Vec<(f64, f64)> {
    if let [alone] = seconds {
        let from = alone.second as f64;
        return vec![(from, value(alone)), (from + 1.0, value(alone))];
    }
    seconds.iter().map(|second| (second.second as f64 + 0.5, value(second))).collect()
}

/// Stairs of grants a second. Nothing if nothing was granted.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn grants_curve(colour: usize, grants: &Grants) -> Option<Curve> {
    if grants.counts.is_empty() {
        return None;
    }
    let merged = grants.counts.len().div_ceil(GRANT_STEPS_MAX);
    let step_secs = grants.step_ms as f64 / 1e3;
    let mut points = Vec::new();
    let mut from = 0.0;
    for steps in grants.counts.chunks(merged) {
        let secs = steps.len() as f64 * step_secs;
        let rate = steps.iter().sum::<u64>() as f64 / secs;
        points.extend([(from, rate), (from + secs, rate)]);
        from += secs;
    }
    Some(Curve { name: String::new(), colour, is_dashed: false, points })
}

impl Curve {
    fn style(&self) -> String {
        let colour = COLOURS[self.colour % COLOURS.len()];
        let dash = if self.is_dashed { " stroke-dasharray=\"3 3\"" } else { "" };
        format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dash}")
    }
}

fn draw(picture: &Picture<'_>) -> String {
    let mut svg = String::new();
    // Writing to a String doesn't fail.
    let _ = write_picture(&mut svg, picture);
    svg
}

fn write_picture(svg: &mut String, picture: &Picture<'_>) -> std::fmt::Result {
    let places = legend_places(&picture.by_percentile);
    let rows = places.last().map_or(0.0, |(_, row)| row + 1.0);
    let top = TOP + rows * LEGEND_ROW;
    let grants_height = if picture.grants.is_empty() { 0.0 } else { GAP + GRANTS_HEIGHT };
    let height = top
        + LATENCY_HEIGHT
        + GAP
        + LATENCY_HEIGHT
        + grants_height
        + BOTTOM
        + picture.marks.height();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
    )?;
    writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>")?;
    let title = format!("{}: latency in ms by percentile", picture.title);
    text(svg, LEFT, 20.0, "start", &title)?;
    for (curve, (x, row)) in picture.by_percentile.iter().zip(places) {
        let y = TOP + row * LEGEND_ROW;
        writeln!(svg, "<path {} d=\"M{x:.0},{y:.0} h18\"/>", curve.style())?;
        text(svg, x + 22.0, y + 4.0, "start", &curve.name)?;
    }
    let curves = &picture.by_percentile;
    let frame = Frame::of_latencies(top, LATENCY_HEIGHT, x_max(curves, 2.0), values(curves));
    frame.write_y_axis(svg)?;
    frame.write_percentile_axis(svg)?;
    write_curves(svg, &frame, curves)?;
    write_over_time(svg, picture, frame.bottom() + GAP)?;
    writeln!(svg, "</svg>")
}

/// The plots over time, which share their horizontal axis, and what happened when.
fn write_over_time(svg: &mut String, picture: &Picture<'_>, top: f64) -> std::fmt::Result {
    let Picture { over_time, grants, marks, .. } = picture;
    let title = "Second by second: latency in ms at p99 (solid) and at most (dashed)";
    text(svg, LEFT, top - 14.0, "start", title)?;
    let x_max = x_max(over_time, x_max(grants, marks.last_second().max(1.0)));
    let mut frame = Frame::of_latencies(top, LATENCY_HEIGHT, x_max, values(over_time));
    frame.write_y_axis(svg)?;
    frame.write_time_axis(svg)?;
    marks.write_lines(svg, &frame)?;
    write_curves(svg, &frame, over_time)?;
    if !grants.is_empty() {
        let top = frame.bottom() + GAP;
        text(svg, LEFT, top - 14.0, "start", "Grants a second")?;
        frame = Frame::of_rates(top, GRANTS_HEIGHT, x_max, values(grants));
        frame.write_y_axis(svg)?;
        frame.write_time_axis(svg)?;
        marks.write_lines(svg, &frame)?;
        write_curves(svg, &frame, grants)?;
    }
    marks.write_rows(svg, &frame, frame.bottom() + BOTTOM / 2.0)
}

/// The end of an axis on which all points and `least` have room.
fn x_max(curves: &[Curve], least: f64) -> f64 {
    curves.iter().flat_map(|curve| &curve.points).map(|(x, _)| x + 0.01).fold(least, f64::max)
}

fn values(curves: &[Curve]) -> impl Iterator<Item = f64> + Clone {
    curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| *y)
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
    let words = escaped(words);
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
}

fn escaped(words: &str) -> String {
    let mut escaped = String::new();
    for c in words.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
