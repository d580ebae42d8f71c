//! `tidegate simulate` through the binary itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("simulate")
        .args(arguments)
        .current_dir(folder())
        .env("COLUMNS", "100")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    let ran = simulate(&all);
    assert!(ran.stderr.is_empty(), "{}", text(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn one_scenario_under_some_policies() {
    let ran = simulate(&["small.toml", "--policy", "auto", "--policy", "random"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    // No terminal: no progress.
    assert!(ran.stderr.is_empty(), "{}", text(&ran.stderr));
    let table = text(&ran.stdout);
    for part in [
        "p99.9 ms",
        "\nauto ",
        "\nrandom ",
        "600 requests, seed 1",
        "as expected",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn the_object_for_programs_has_every_figure() {
    let value = json(&["small.toml", "--policy", "auto"]);
    assert_eq!(value["scenario"], "small");
    let auto = &value["policies"][0];
    assert_eq!(auto["name"], "auto");
    assert_eq!(auto["completed"], 600);
    for figure in [
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "mean_ms",
        "herding",
        "least_share",
    ] {
        assert!(auto[figure].as_f64().unwrap() > 0.0, "{figure}: {auto}");
    }
    assert!(value["speed"]["events"].as_u64().unwrap() > 600);
}

#[test]
fn a_seed_replays_and_another_does_not() {
    let policies =
        |seed| json(&["small.toml", "--policy", "auto", "--seed", seed])["policies"].clone();
    assert_eq!(policies("7"), policies("7"));
    assert_ne!(policies("7"), policies("8"));
}

#[test]
fn an_expectation_that_does_not_come_true_is_a_failure() {
    let ran = simulate(&["unmet.toml", "--policy", "auto"]);
    assert_eq!(ran.status.code(), Some(1));
    let why = text(&ran.stderr);
    assert!(why.contains("least share of a node"), "{why}");
    // The table is there all the same.
    assert!(text(&ran.stdout).contains("\nauto "));
}

#[test]
fn what_is_wrong_in_a_file_is_shown_with_line_column_and_caret() {
    let cases = [
        (
            "broken-key.toml",
            "broken-key.toml:17:1",
            "unknown key `spede`",
        ),
        (
            "broken-unit.toml",
            "broken-unit.toml:13:15",
            "a duration with its unit",
        ),
    ];
    for (file, place, message) in cases {
        let ran = simulate(&[file]);
        assert_eq!(ran.status.code(), Some(2), "{file}");
        let shown = text(&ran.stderr);
        for part in [place, message, "^^"] {
            assert!(shown.contains(part), "{file}: {part}: {shown}");
        }
        let ran = simulate(&[file, "--json"]);
        let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(value["ok"], false);
        assert!(
            value["problems"][0]["line"].as_u64().unwrap() > 10,
            "{value}"
        );
    }
}

#[test]
fn names_that_are_not_there_are_bad_usage() {
    let ran = simulate(&["load-0.5-n20-m8-ex"]);
    assert_eq!(ran.status.code(), Some(2));
    let shown = text(&ran.stderr);
    assert!(
        shown.contains("did you mean `load-0.5-n20-m8-exp`?"),
        "{shown}"
    );
    for arguments in [
        &["small.toml", "--policy", "none"][..],
        &["compare", "--only", "nothing"],
    ] {
        assert_eq!(simulate(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_list_names_every_built_in_scenario() {
    let all = json(&["list"]);
    let all = all.as_array().unwrap();
    assert!(all.len() >= 71);
    let shown = text(&simulate(&["list"]).stdout);
    for scenario in all {
        let name = scenario["name"].as_str().unwrap();
        assert!(shown.contains(name), "{name}");
    }
}

#[test]
fn the_comparison_names_winners_losers_and_its_own_speed() {
    let arguments = [
        "compare",
        "--only",
        "small",
        "--requests",
        "400",
        "--policy",
        "random",
    ];
    let value = json(&arguments);
    let scenarios = value["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 2);
    for scenario in scenarios {
        let policies = scenario["policies"].as_array().unwrap();
        let names: Vec<_> = policies.iter().map(|policy| &policy["name"]).collect();
        assert_eq!(names, ["auto", "random"]);
        assert!(
            scenario["oracle"]["p99_ms"].as_f64().unwrap() > 0.0,
            "{scenario}"
        );
    }
    let random = &value["against"][0];
    let games = ["wins", "ties", "losses"].map(|it| random[it].as_u64().unwrap());
    assert_eq!(games.iter().sum::<u64>(), 2, "{random}");
    assert!(value["speed"]["events_per_second"].as_f64().unwrap() > 0.0);

    let ran = simulate(&arguments);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let shown = text(&ran.stdout);
    for part in [
        "oracle  auto  random",
        "auto against",
        "By family",
        "million events/s",
        "2 scenarios",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
