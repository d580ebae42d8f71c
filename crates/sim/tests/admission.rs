//! Admission control in overload: what comes through in time, and that nothing is refused below.
//!
//! Goals are those of the design; where a row is short of its goal the bound here is what is
//! reached, and `docs/admission.md` says so.

mod support {
    pub(crate) mod admission;
}

use support::admission::{Row, measure, rows};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind};
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::run;

fn row(name: &str) -> Row {
    let mut rows = rows().into_iter();
    let found = rows.find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("no row {name}"))
}

#[test]
fn overload_without_admission_delivers_nothing_and_with_it_all_that_can_be() {
    let off = measure(&row("2"), "off").unwrap();
    assert!(off.goodput < 1.0, "{off:?}");
    for (name, least) in [
        ("1.4 fe=1", 97.0),
        ("2 fe=1", 97.0),
        ("10 fe=1", 97.0),
        ("1.4", 97.0),
        ("2", 97.0),
        ("4", 97.0),
        ("10", 97.0),
        ("exponential 2", 97.0),
        ("unequal 2", 97.0),
        ("antagonists 2", 97.0),
        ("6 workers 2", 95.0),
        ("records 50 ms 2", 97.0),
        ("io 20+2 2", 90.0),
        ("database 2", 95.0),
        ("database 10", 95.0),
        ("2 fe=16", 97.0),
        ("2 fe=64", 95.0),
        ("10 fe=64", 95.0),
        ("2 fe=16 no words", 90.0),
        ("no records 2 fe=1", 95.0),
        ("no records 2", 90.0),
    ] {
        let it = measure(&row(name), "adaptive").unwrap();
        assert!(it.goodput >= least, "{name}: {it:?}");
        assert!(it.p50_ms <= it.p99_ms && it.shed > 0.0, "{name}: {it:?}");
    }
}

#[test]
fn nothing_is_refused_while_there_is_room() {
    for name in ["0.85 fe=1", "0.9 fe=1", "0.9", "0.9 fe=16"] {
        let it = measure(&row(name), "adaptive").unwrap();
        assert!(it.shed == 0.0, "{name}: {it:?}");
        let off = measure(&row(name), "off").unwrap();
        assert!(it.p99_ms <= off.p99_ms * 1.3, "{name}: {it:?} {off:?}");
    }
}

#[test]
fn the_highest_class_comes_through_at_ten_times_the_capacity() {
    for name in ["10 fe=1", "10", "10 fe=64"] {
        the_highest_class_comes_through(name);
    }
}

fn the_highest_class_comes_through(name: &str) {
    let scenario = row(name).scenario;
    let sent = |scenario: &Scenario| run(scenario, PolicyConfig::new(PolicyKind::Auto)).unwrap();
    let of = |classes: Vec<f64>| {
        scenario.clone().sites(|site| {
            site.admission = AdmissionConfig {
                slo: support::admission::SLO,
                classes: classes.len() as u8,
                ..AdmissionConfig::new(AdmissionKind::Adaptive)
            };
            site.classes = classes.clone();
        })
    };
    // A twentieth of the requests, half of what the servers can do.
    let report = sent(&of(vec![0.05, 0.15, 0.3, 0.5]));
    let offered = report.classes[0].offered;
    let completed = report.classes[0].completed;
    assert!(
        completed as f64 >= 0.999 * offered as f64,
        "{name}: {:?}",
        report.classes
    );
    let lowest = report.classes[3];
    assert!(
        lowest.completed * 50 < lowest.offered,
        "{:?}",
        report.classes
    );
}
