//! What the pictures show of a run whose results are known.

mod harness;

use harness::{FakeServer, Fault, load};
use monolock_loadgen::mark::MarkKind;
use monolock_loadgen::report::svg;
use monolock_loadgen::results::{MarkResult, Results, SecondResult};
use roxmltree::{Document, Node};

/// A handover of one second, with grants and without marks.
fn results() -> Results {
    let server = FakeServer::start(Fault::None);
    let words = "handover -c 6 -L 2 -R 40 -l 2s --ramp 50ms --warmup 0 -d 1s";
    let (run, results) = load(&server, words);
    run.expect_exit(0);
    results
}

fn marks(kind: MarkKind, count: u32) -> Vec<MarkResult> {
    let mark = |number: u32| MarkResult {
        at_ms: 1000.0 * f64::from(number) / f64::from(count),
        kind: kind.name().to_owned(),
        label: format!("<session {number}>"),
    };
    (0..count).map(mark).collect()
}

fn texts<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    document
        .descendants()
        .filter(|node| node.has_tag_name("text"))
        .filter_map(|n| n.text())
        .collect()
}

/// The lines through the plots that have this in their explanation.
fn explained(document: &Document<'_>, part: &str) -> usize {
    let is_it = |node: &Node<'_, '_>| {
        node.has_tag_name("title") && node.text().is_some_and(|text| text.contains(part))
    };
    document.descendants().filter(is_it).count()
}

#[test]
fn grants_add_up_and_are_drawn() {
    let results = results();
    let granted: u64 = results.grants.counts.iter().sum();
    assert!((36..=44).contains(&granted), "each of 40 releases makes a grant: {granted}");
    assert!((10..=11).contains(&results.grants.counts.len()), "{:?}", results.grants);
    let picture = svg::of_run(&results);
    let document = Document::parse(&picture).expect("well-formed XML");
    assert!(texts(&document).contains(&"Grants a second"));
}

#[test]
fn no_line_is_drawn_through_seconds_in_which_nothing_was_timed() {
    let mut results = results();
    results.phases.retain(|phase| phase.name == "handover");
    results.grants.counts.clear();
    let second = results.phases[0].seconds[0].clone();
    let at = |number| SecondResult { second: number, ..second.clone() };
    let lines = |seconds: &[u64]| {
        let mut results = results.clone();
        results.phases[0].seconds = seconds.iter().map(|&number| at(number)).collect();
        let picture = svg::of_run(&results);
        let document = Document::parse(&picture).expect("well-formed XML");
        let lines = document.descendants().filter(|node| node.has_tag_name("polyline"));
        let points = |node: Node<'_, '_>| node.attribute("points").map(|p| p.split(' ').count());
        let dashed = lines.filter(|node| node.attribute("stroke-dasharray").is_some());
        dashed.filter_map(points).map(|words| words - 1).collect::<Vec<_>>()
    };
    assert_eq!(lines(&[0, 1, 2]), [3]);
    assert_eq!(lines(&[0, 1, 5, 6, 7, 9]), [2, 3, 2], "the last one is a second long");
}

#[test]
fn few_marks_go_through_the_plots_and_many_stay_below() {
    let mut results = results();
    let without = svg::of_run(&results);
    results.marks.extend(marks(MarkKind::Kill, 2));
    results.marks.extend(marks(MarkKind::Pause, 5000));
    results.marks.push(MarkResult { kind: "eclipse".into(), ..marks(MarkKind::Kill, 1).remove(0) });
    let picture = svg::of_run(&results);
    let document = Document::parse(&picture).expect("well-formed XML");
    assert_eq!(explained(&document, "kill at 0.500 s: <session 1>"), 2, "in both plots over time");
    assert_eq!(explained(&document, "pause"), 0);
    let texts = texts(&document);
    for word in ["kill", "2", "pause", "5000", "eclipse"] {
        assert!(texts.contains(&word), "no {word:?} in {texts:?}");
    }
    assert!(picture.len() < without.len() + 20_000, "{} of {}", picture.len(), without.len());
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
}
