//! The alerts and the dashboard of `contrib`: they ask for metrics that a front-end has, and the alerts fire when they should.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code; a test that cannot run says why"
)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{FrontEnd, folder};

/// Begins of the names of metrics that are a front-end's.
const OWN: [&str; 2] = ["tidegate_", "process_"];
/// Labels and other words that begin in the same way and are no metrics.
const NO_METRICS: [&str; 1] = ["tidegate_rules"];

fn contrib(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../../contrib").join(file)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of metrics in a text of queries.
fn asked(text: &str) -> BTreeSet<&str> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_name(letter));
    words
        .filter(|word| OWN.iter().any(|own| word.starts_with(own)))
        .filter(|word| !NO_METRICS.contains(word))
        .collect()
}

/// Names of the samples of an exposition.
fn exported(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect()
}

/// The queries of a dashboard, those of its variables among them.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let text = value.as_str().map(str::to_owned);
                found.extend(text.filter(|_| matches!(&**name, "expr" | "definition")));
                queries(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn each_metric_that_is_asked_for_is_exported() {
    let folder = folder("monitoring");
    let front_end = FrontEnd::start(
        &folder,
        "[[site]]\nname = \"a\"\n[[node]]\nname = \"n\"\nsite = \"a\"\naddress = \"127.0.0.1:9\"\n",
    );
    let live = support::ask(front_end.admin, "/metrics").unwrap().body;
    // That page has metrics of all that there can be.
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metrics.txt"));
    let mut known = exported(&live);
    known.extend(exported(&page));
    let dashboard: Value = serde_json::from_str(&read(&contrib("grafana/tidegate.json"))).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    assert!(found.len() > 20, "{found:?}");
    let rules = read(&contrib("prometheus/tidegate.rules.yml"));
    let rules = rules.lines().filter(|line| !line.starts_with('#'));
    found.extend(rules.map(str::to_owned));
    let text = found.join("\n");
    let asked = asked(&text);
    assert!(asked.len() > 20, "{asked:?}");
    let vain: Vec<_> = asked.difference(&known).collect();
    assert!(vain.is_empty(), "no front-end exports {vain:?}");
}

#[test]
fn panels_of_the_dashboard_do_not_overlap_and_say_what_they_show() {
    let dashboard: Value = serde_json::from_str(&read(&contrib("grafana/tidegate.json"))).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut cells = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(
            !panel["description"].as_str().unwrap().is_empty(),
            "{title}"
        );
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{title}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}");
        for column in at("x")..at("x") + at("w") {
            for row in at("y")..at("y") + at("h") {
                assert!(cells.insert((column, row)), "{title} lies on another panel");
            }
        }
    }
}

#[test]
fn alerts_are_sound_and_fire_when_they_should() {
    let rules = read(&contrib("prometheus/tidegate.rules.yml"));
    let tests = read(&contrib("prometheus/tidegate.rules.test.yml"));
    let alerts = rules
        .lines()
        .filter_map(|it| it.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let tested = format!("alertname: {alert}\n");
        assert!(tests.contains(&tested), "{alert} has no test");
    }
    for arguments in [
        ["check", "rules", "tidegate.rules.yml"],
        ["test", "rules", "tidegate.rules.test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        promtool.args(arguments).current_dir(contrib("prometheus"));
        let Ok(output) = promtool.output() else {
            println!("SKIPPED: promtool is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}
