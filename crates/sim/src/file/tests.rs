//! What is read, and what is refused where.

use tidegate_core::admission::AdmissionKind;

use super::*;
use crate::model::{Antagonist, Arrivals, Demand};
use crate::scenario::{FaultKind, Scope};

const HEAD: &str = r#"
name = "a"
description = "d"
source = "s"
family = "f"
half = "tune"
requests = 1000
"#;

const BASE: &str = r#"
[front_ends]
count = 8
[[site]]
load = 0.9
[[nodes]]
count = 4
cores = 4
"#;

const EVERYTHING: &str = r#"
guessed = ["x"]
seed = 7
golden_requests = 100
warm_up = 0.2
[front_ends]
count = 2
subset = 3
tick = "2ms"
timeout = "1s"
[network]
delay = "50us"
jitter = "10us"
[[site]]
load = 0.5
mean_demand = "1ms"
demand = { shape = "pareto", tail = 1.5, spread = 100 }
bursts = { peak = 2, share = 0.2, length = "100ms" }
io = { mean = "40ms", shape = { shape = "fixed" } }
priorities = [0.2, 0.8]
admission = { mode = "maxconn", slo = "200ms", queue = 10, connections = 3 }
[[nodes]]
count = 3
cores = [2, 8]
speed = [0.5, 1.5]
allocation = 3
weight = 2
antagonist = { tasks = 4, duty = 0.25, shortest = "10ms", longest = "1s" }
io_channels = 16
io_slowness = 4
limit = 40
reports = true
[nodes.records]
rung = "agent"
interval = "5ms"
published = "10ms"
age = "1ms"
delay = "200us"
loss = 0.1
in_flight = false
scope = "requests"
process = "4ms"
[[nodes]]
count = 1
cores = 1
records = false
[[join]]
at = "1s"
nodes = [3]
[[override]]
at = "2s"
nodes = [0, 1]
state = "drain"
[[fault]]
kind = "flapping"
nodes = [2]
from = "1s"
to = "3s"
period = "100ms"
down = 0.5
[expect]
failed = 0.01
"#;

fn read(text: &str) -> ScenarioFile {
    let file = ScenarioFile::parse(text);
    file.unwrap_or_else(|error| panic!("{error}: {}", &text[error.at.clone()]))
}

/// The message, and the text that the caret stands under.
fn refused(text: &str) -> (String, String) {
    let error = ScenarioFile::parse(text).unwrap_err();
    (error.message, text[error.at].to_owned())
}

#[test]
fn a_node_that_leaves_while_it_is_gone_is_an_error() {
    let of = |second: &str| {
        let text = include_str!("../../scenarios/rolling-n20-m8-0.7-exp.toml");
        ScenarioFile::parse(&format!("{text}\n[[leave]]\nnodes = [3]\n{second}\n"))
    };
    let sound = of("from = \"9s\"\nto = \"9100ms\"").unwrap().scenario;
    assert_eq!(sound.leaves.len(), 21);
    assert_eq!(sound.sites[0].slow_start, Duration::from_millis(600));
    assert!(sound.nodes[0].warming.is_some());
    let twice = of("from = \"1s\"\nto = \"9s\"").unwrap_err();
    assert!(
        twice.to_string().contains("node 3 leaves while it is gone"),
        "{twice}"
    );
    assert!(of("from = \"9s\"\nto = \"8s\"").is_err());
}

#[test]
fn what_is_not_said_is_the_base_of_the_policy_study() {
    let file = read(&format!("{HEAD}{BASE}"));
    let base = Scenario::new(4, 8, 0.9).requests(1000);
    assert_eq!(file.scenario, base);
    assert_eq!(file.golden().requests, 200);
}

#[test]
fn every_key_has_its_effect() {
    let file = read(&format!("{HEAD}{EVERYTHING}"));
    let scenario = &file.scenario;
    assert_eq!((scenario.seed, file.golden_requests), (7, 100));
    assert_eq!(scenario.front_ends.subset, Some(3));
    assert_eq!(scenario.front_ends.timeout, Some(Duration::from_secs(1)));
    assert_eq!(scenario.network.jitter, Duration::from_micros(10));
    let site = &scenario.sites[0];
    assert_eq!(
        site.demand,
        Demand::Pareto {
            tail: 1.5,
            spread: 100.0
        }
    );
    assert!(matches!(site.arrivals, Arrivals::Bursts { peak: 2.0, .. }));
    assert_eq!(site.io.unwrap().shape, Demand::Fixed);
    let admission = site.admission;
    assert_eq!((admission.queue, admission.priorities), (10, 2));
    assert_eq!(admission.slo, Duration::from_millis(200));
    let cores: Vec<_> = scenario.nodes.iter().map(|node| node.cores).collect();
    assert_eq!(cores, [2.0, 5.0, 8.0, 1.0]);
    let node = &scenario.nodes[1];
    assert_eq!(
        (node.speed, node.allocation, node.limit),
        (1.0, Some(3.0), Some(40))
    );
    let usual = Antagonist::new(4, 0.25);
    let antagonist = node.antagonist.unwrap();
    assert_eq!(antagonist.duty, usual.duty);
    assert_eq!(antagonist.longest, Duration::from_secs(1));
    let records = node.records.unwrap();
    assert_eq!((records.scope, records.in_flight), (Scope::Requests, false));
    assert_eq!(scenario.nodes[3].records, None);
    assert_eq!(scenario.overrides.len(), 4);
    assert!(matches!(
        scenario.faults[0].kind,
        FaultKind::Flapping { .. }
    ));
    assert_eq!(scenario.expect.failed, Some(0.01));
}

#[test]
fn the_short_run_meets_its_faults_too() {
    let file = read(&format!("{HEAD}{EVERYTHING}"));
    let golden = file.golden();
    assert_eq!(golden.requests, 100);
    let (whole, short) = (file.scenario.faults[0], golden.faults[0]);
    assert_eq!((short.from, short.to), (whole.from / 10, whole.to / 10));
    assert_eq!(golden.overrides[1].at, file.scenario.overrides[1].at / 10);
}

/// The text above has every key.
#[test]
fn every_key_is_documented() {
    let docs = include_str!("../../../../docs/simulate.md");
    let table: toml::Table = format!("{HEAD}{EVERYTHING}").parse().unwrap();
    let mut tables = vec![toml::Value::Table(table)];
    while let Some(value) = tables.pop() {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let named = ["`", "[", "{ ", ", "]
                        .iter()
                        .any(|before| docs.contains(&format!("{before}{key}")));
                    assert!(named, "docs/simulate.md does not name `{key}`");
                    tables.push(value);
                }
            }
            toml::Value::Array(items) => tables.extend(items),
            toml::Value::String(_)
            | toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_) => {}
        }
    }
}

#[test]
fn unknown_keys_and_bare_numbers_are_refused_where_they_stand() {
    let (message, at) = refused(&format!("{HEAD}colour = 1\n{BASE}"));
    assert!(message.contains("unknown key `colour`"), "{message}");
    assert_eq!(at, "colour");
    let (message, at) = refused(&format!("{HEAD}{BASE}\nspede = 1.0\n"));
    assert!(message.contains("unknown key `spede`"), "{message}");
    assert_eq!(at, "spede");
    let (message, at) = refused(&format!("{HEAD}{BASE}\nrecords = {{ interval = 5 }}\n"));
    assert!(message.contains("a duration with its unit"), "{message}");
    assert_eq!(at, "5");
    let (message, at) = refused(&format!(
        "{HEAD}{BASE}\nrecords = {{ interval = \"5 days\" }}\n"
    ));
    assert!(message.contains("unknown unit `days`"), "{message}");
    assert_eq!(at, "\"5 days\"");
}

#[test]
fn values_that_make_no_sense_are_refused_where_they_stand() {
    let cases = [
        ("[[nodes]]\ncount = 0\ncores = 1", "`count` must be", "0"),
        (
            "[[nodes]]\ncount = 1\ncores = [1, 0]",
            "`cores` must be",
            "[1, 0]",
        ),
        (
            "[[nodes]]\ncount = 1\ncores = 1\nsite = 1",
            "`site` must be",
            "1",
        ),
        (
            "[[override]]\nat = \"1s\"\nnodes = [4]\nstate = \"drain\"",
            "no node 4",
            "[4]",
        ),
        (
            "[[override]]\nat = \"1s\"\nnodes = [3]\nstate = \"off\"",
            "unknown state",
            "\"off\"",
        ),
        (
            "[[site]]\nload = 1.0\n",
            "site 1 has no nodes",
            "[[nodes]]\ncount = 4\ncores = 4\n",
        ),
    ];
    for (more, message, at) in cases {
        let text = format!("{HEAD}{BASE}{more}\n");
        let found = refused(&text);
        assert!(found.0.contains(message), "{more}: {}", found.0);
        assert!(
            at.contains(found.1.trim()) || found.1.contains(at),
            "{more}: {}",
            found.1
        );
    }
}

#[test]
fn a_shape_takes_its_own_numbers_only() {
    let site = |demand: &str| {
        let base = BASE.replace(
            "load = 0.9",
            &format!("load = 0.9\ndemand = {{ {demand} }}"),
        );
        ScenarioFile::parse(&format!("{HEAD}{base}"))
    };
    assert!(site("shape = \"log-normal\", cv = 2").is_ok());
    let message = |demand| site(demand).unwrap_err().message;
    assert_eq!(message("shape = \"log-normal\""), "`cv` is missing");
    assert_eq!(
        message("shape = \"fixed\", cv = 2"),
        "this shape has no `cv`"
    );
    assert!(message("shape = \"normal\"").contains("unknown variant `normal`"));
}

#[test]
fn a_site_admits_by_any_mode_that_has_what_it_needs() {
    let site = |admission: &str| {
        let base = BASE.replace(
            "load = 0.9",
            &format!("load = 0.9\nadmission = {{ {admission} }}"),
        );
        ScenarioFile::parse(&format!("{HEAD}{base}"))
    };
    for (kind, mode) in AdmissionKind::ALL {
        let read = site(&format!("mode = \"{mode}\", connections = 3"));
        match kind {
            AdmissionKind::Static => assert!(read.is_err()),
            AdmissionKind::Off
            | AdmissionKind::Adaptive
            | AdmissionKind::MaxConn
            | AdmissionKind::Codel
            | AdmissionKind::Gradient2
            | AdmissionKind::Vegas
            | AdmissionKind::EnvoyAdaptiveConcurrency
            | AdmissionKind::EnvoyAdmissionControl
            | AdmissionKind::Dagor => {
                let admission = read.unwrap().scenario.sites[0].admission;
                assert_eq!(admission.kind, *kind);
                assert_eq!(admission.limits.connections, Some(3));
            }
        }
    }
    let message = |admission| site(admission).unwrap_err().message;
    assert_eq!(message("mode = \"codel\""), "`connections` is missing");
    assert_eq!(
        message("mode = \"maxcon\""),
        "unknown admission mode `maxcon`"
    );
    let zero = message("mode = \"codel\", connections = 0");
    assert!(zero.contains("`connections` must be"), "{zero}");
}

#[test]
fn faults_of_one_node_must_not_overlap() {
    let fault = |from: &str, to: &str| {
        format!("[[fault]]\nkind = \"dead\"\nnodes = [0]\nfrom = \"{from}\"\nto = \"{to}\"\n")
    };
    let text = |second: String| format!("{HEAD}{BASE}{}{second}", fault("1s", "2s"));
    assert!(ScenarioFile::parse(&text(fault("2s", "3s"))).is_ok());
    let (message, _) = refused(&text(fault("1500ms", "3s")));
    assert!(message.contains("overlap"), "{message}");
}
