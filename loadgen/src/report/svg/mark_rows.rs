//! What happened when, below the plots over time: a row for each kind of mark, a tick for each
//! moment. The rarest kinds are drawn through the plots too, to be read off; hundreds of lines
//! would hide what they are to explain.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::frame::Frame;
use super::{COLOURS, LEFT, PLOT_WIDTH, RIGHT, WIDTH, escaped, text};
use crate::mark::MarkKind;
use crate::results::MarkResult;

/// The height of a row.
const ROW: f64 = 16.0;

/// Marks that are drawn through the plots, of all kinds together.
const LINES_MAX: usize = 24;

/// Ticks nearer to each other than this are drawn as one, the darker the more they are.
const TICK_WIDTH: f64 = 1.5;

/// How dark a tick can be.
const SHADES: [f64; 4] = [0.35, 0.55, 0.75, 1.0];

/// All marks of one kind.
struct Row<'a> {
    name: String,
    colour: &'static str,
    marks: Vec<&'a MarkResult>,
}

/// The rows that a picture has.
pub(super) struct MarkRows<'a> {
    rows: Vec<Row<'a>>,
}

impl<'a> MarkRows<'a> {
    pub(super) fn new() -> MarkRows<'a> {
        MarkRows { rows: Vec::new() }
    }

    /// A row for each kind of one run's marks. The prefix tells apart several runs.
    pub(super) fn add(&mut self, prefix: &str, marks: &'a [MarkResult]) {
        let mut of_kind: BTreeMap<(usize, &str), Vec<&MarkResult>> = BTreeMap::new();
        for mark in marks {
            of_kind.entry((place(&mark.kind), &mark.kind)).or_default().push(mark);
        }
        self.rows.extend(of_kind.into_iter().map(|((place, kind), marks)| Row {
            name: format!("{prefix}{kind}"),
            colour: colour(place),
            marks,
        }));
    }

    pub(super) fn height(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let rows = self.rows.len() as f64;
        rows * ROW
    }

    /// The latest moment, in seconds.
    pub(super) fn last_second(&self) -> f64 {
        let marks = self.rows.iter().flat_map(|row| &row.marks);
        marks.map(|mark| mark.at_ms / 1e3).fold(0.0, f64::max)
    }

    /// Lines through a plot: the rarest kinds first, each with all of its marks or none.
    pub(super) fn write_lines(&self, svg: &mut String, frame: &Frame) -> std::fmt::Result {
        let mut rows: Vec<&Row<'_>> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.marks.len());
        let mut lines = 0;
        for row in rows {
            lines += row.marks.len();
            if lines > LINES_MAX {
                return Ok(());
            }
            for mark in &row.marks {
                let (x, top, bottom) = (frame.x(mark.at_ms / 1e3), frame.top, frame.bottom());
                writeln!(
                    svg,
                    "<path stroke=\"{}\" stroke-opacity=\"0.45\" d=\"M{x:.1},{top:.1} \
                     V{bottom:.1}\"><title>{} at {:.3} s: {}</title></path>",
                    row.colour,
                    escaped(&row.name),
                    mark.at_ms / 1e3,
                    escaped(&mark.label)
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn write_rows(
        &self,
        svg: &mut String,
        frame: &Frame,
        mut top: f64,
    ) -> std::fmt::Result {
        for row in &self.rows {
            let baseline = top + ROW - 4.0;
            text(svg, LEFT - 6.0, baseline, "end", &row.name)?;
            text(svg, WIDTH - RIGHT + 4.0, baseline, "start", &row.marks.len().to_string())?;
            let (right, bottom) = (LEFT + PLOT_WIDTH, top + ROW - 1.0);
            writeln!(svg, "<path stroke=\"#eee\" d=\"M{LEFT:.1},{bottom:.1} H{right:.1}\"/>")?;
            write_ticks(svg, frame, row, top + 2.0)?;
            top += ROW;
        }
        Ok(())
    }
}

/// One path a shade, however many marks there are.
fn write_ticks(svg: &mut String, frame: &Frame, row: &Row<'_>, top: f64) -> std::fmt::Result {
    let mut columns: BTreeMap<u32, usize> = BTreeMap::new();
    for mark in &row.marks {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place in the picture"
        )]
        let column = ((frame.x(mark.at_ms / 1e3) - LEFT) / TICK_WIDTH).round() as u32;
        *columns.entry(column).or_default() += 1;
    }
    let most = columns.values().copied().max().unwrap_or(1);
    for (shade, opacity) in SHADES.into_iter().enumerate() {
        let mut path = String::new();
        for (column, count) in &columns {
            // A single mark is as dark as any, where nowhere is more than one.
            if shade_of(*count, most) == shade {
                let x = LEFT + f64::from(*column) * TICK_WIDTH;
                write!(path, "M{x:.1},{top:.1}v{:.0}", ROW - 5.0)?;
            }
        }
        if !path.is_empty() {
            writeln!(
                svg,
                "<path stroke=\"{}\" stroke-width=\"{TICK_WIDTH}\" stroke-opacity=\"{opacity}\" \
                 d=\"{path}\"/>",
                row.colour
            )?;
        }
    }
    Ok(())
}

fn shade_of(count: usize, most: usize) -> usize {
    (count * SHADES.len()).div_ceil(most) - 1
}

/// Where a kind stands among the rows; one that this version doesn't know comes last.
fn place(kind: &str) -> usize {
    let known = MarkKind::ALL.iter().position(|known| known.name() == kind);
    known.unwrap_or(MarkKind::ALL.len())
}

fn colour(place: usize) -> &'static str {
    match MarkKind::ALL.get(place) {
        Some(MarkKind::Pause) => COLOURS[4],
        Some(MarkKind::Resume | MarkKind::Start) => COLOURS[2],
        Some(MarkKind::Kill | MarkKind::Shutdown | MarkKind::Corruption) => COLOURS[1],
        Some(MarkKind::Takeover) => COLOURS[0],
        Some(MarkKind::ClockStep | MarkKind::Refusal) => COLOURS[3],
        None => "#666",
    }
}
