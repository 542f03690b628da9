//! The dashboard, the alerts and the documented queries name metrics that exist, and Prometheus'
//! own tool accepts them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use monolock::control::metrics::{FAMILIES, Kind};
use serde_json::Value;

use crate::harness::outside;

const DASHBOARD: &str = "packaging/grafana/monolock.json";
const ALERTS: &str = "packaging/prometheus/alerts.yml";
const ALERTS_TEST: &str = "packaging/prometheus/alerts_test.yml";
const MANUAL: &str = "docs/operations/observability.md";

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Where alerts and their tests are.
pub(crate) fn alerts() -> PathBuf {
    path(ALERTS)
}

/// Every query of the dashboard, with its variables filled in.
pub(crate) fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> = targets
        .map(|target| {
            let query = target["expr"].as_str().expect("a query");
            query.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
        })
        .collect();
    assert!(queries.len() > 20 && queries.iter().all(|query| !query.contains('$')));
    queries
}

/// Every query that the manual shows.
pub(crate) fn documented_queries() -> Vec<String> {
    let text = read(MANUAL);
    let blocks = text.split("```promql\n").skip(1);
    let queries: Vec<String> = blocks
        .map(|block| block.split("```").next().expect("a block has an end").to_owned())
        .collect();
    assert!(queries.len() >= 8, "there are queries in the manual");
    queries
}

/// The families that a text names, by what is left of a sample's name without its suffix.
fn families_in(text: &str) -> BTreeSet<&'static str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text
        .split(|c: char| !is_of_name(c))
        .filter(|word| word.starts_with("monolock_") || word.starts_with("process_"));
    names
        .map(|name| {
            let family = FAMILIES.iter().find(|family| match family.kind {
                Kind::Histogram => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|suffix| name.strip_suffix(suffix) == Some(family.name)),
                Kind::Gauge | Kind::Counter => name == family.name,
            });
            family.unwrap_or_else(|| panic!("there is no metric {name}")).name
        })
        .collect()
}

#[test]
fn every_metric_that_is_watched_exists() {
    let dashboard = families_in(&read(DASHBOARD));
    let alerts = families_in(&read(ALERTS));
    let manual = families_in(&documented_queries().concat());
    families_in(&read(ALERTS_TEST));
    assert!(dashboard.len() > 15 && alerts.len() > 8 && manual.len() > 5);
    // What nobody may overlook.
    for name in [
        "monolock_token_ahead_seconds",
        "monolock_session_slots",
        "monolock_accept_errors_total",
        "monolock_lease_remaining_ratio",
        "monolock_audit_dropped_total",
        "monolock_loop_responsive",
    ] {
        assert!(alerts.contains(name), "there is an alert on {name}");
    }
}

#[test]
fn every_alert_is_tried_out_and_prometheus_accepts_them() {
    let (rules, tests) = (read(ALERTS), read(ALERTS_TEST));
    let mut count = 0;
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let cases = tests.split("alertname: ").skip(1);
        let fires = cases
            .filter(|case| case.lines().next() == Some(name))
            .any(|case| case.lines().take(4).any(|line| line.contains("exp_labels")));
        assert!(fires, "{name} fires in no test");
        count += 1;
    }
    assert!(count > 8, "there are alerts");
    if !outside::is_installed("promtool", "the Debian package prometheus") {
        return;
    }
    promtool(&["check", "rules", ALERTS]);
    promtool(&["test", "rules", ALERTS_TEST]);
}

#[test]
fn every_query_can_be_parsed() {
    if !outside::is_installed("promtool", "the Debian package prometheus") {
        return;
    }
    // The tool checks rules, so each query becomes the rule of a recording.
    let queries = [dashboard_queries(), documented_queries()].concat();
    let mut rules = "groups:\n- name: queries\n  rules:\n".to_owned();
    for (index, query) in queries.iter().enumerate() {
        let query = Value::from(query.as_str());
        rules.push_str(&format!("  - {{record: \"query_{index}\", expr: {query}}}\n"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yml");
    fs::write(&file, &rules).expect("writing");
    let found = promtool(&["check", "rules", file.to_str().expect("UTF-8")]);
    assert!(found.contains(&format!("{} rules found", queries.len())), "{found}");
}

#[test]
fn panels_of_the_dashboard_stand_beside_each_other() {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        let place = &panel["gridPos"];
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| place[key].as_u64().expect("a number"));
        assert!(x + w <= 24, "{title} is within the grid");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line))) {
            assert!(taken.insert(cell), "{title} stands on another panel");
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

/// Runs the tool in the repository's folder, and gives what it says.
#[track_caller]
fn promtool(arguments: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("starting promtool");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    stdout
}
