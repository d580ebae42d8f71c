//! What holds for every experiment.

use std::collections::BTreeSet;
use std::time::Duration;

use super::reserve::QUICK_MAX;
use super::{ALL, Scale, find};

/// What a whole run may take; some need more requests or more arms than the others.
const FULL_MAX: Duration = Duration::from_secs(600);
const LONG_MAX: Duration = Duration::from_secs(900);
const LONG: [&str; 9] = [
    "one-vs-two-sided",
    "burst-length",
    "move-faults",
    "poll-interval",
    "slbl-overload",
    "slbl-poll-interval",
    "tail",
    "admission-goodput",
    "culprits-suite",
];
/// Its longest requests take over a minute, and have to be seen to their end; five arms, two rounds.
const LONGEST: (&str, Duration) = ("elephants", Duration::from_secs(1500));

#[test]
fn every_experiment_of_the_papers_and_of_the_design_is_there() {
    let names: Vec<_> = ALL.iter().map(|it| it.name).collect();
    let expected = [
        "one-vs-two-sided",
        "rdma-micro",
        "accuracy",
        "single-site",
        "loaded-nodes",
        "shared-sites",
        "load-variance",
        "poll-interval",
        "proxy-cost",
        "protocol-cost",
        "idle-cost",
        "tail",
        "crash",
        "hostile",
        "reload",
        "upgrade",
        "discovery",
        "burst-length",
        "burst-files",
        "node-utilization",
        "move-latency",
        "move-safety",
        "move-faults",
        "slbl-poll-interval",
        "slbl-normal",
        "slbl-overload",
        "slbl-scale",
        "slbl-reaction",
        "admission",
        "admission-instant",
        "qos",
        "admission-traces",
        "admission-goodput",
        "admission-recovery",
        "admission-priority",
        "culprits-suite",
        "elephants",
    ];
    assert_eq!(names, expected);
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.iter().all(|name| find(name).is_some()) && find("no such").is_none());
    assert!(
        ALL.iter()
            .all(|it| !it.about.is_empty() && !it.source.is_empty())
    );
}

#[test]
fn every_plan_can_be_carried_out() {
    for experiment in ALL {
        let Some(plan) = experiment.plan else {
            continue;
        };
        for scale in [Scale::Quick, Scale::Full] {
            let checked = plan(scale).check();
            assert_eq!(checked, Ok(()), "{} {scale:?}", experiment.name);
        }
    }
}

#[test]
fn every_experiment_keeps_within_its_time() {
    for experiment in ALL {
        let quick = (experiment.estimate)(Scale::Quick);
        assert!(
            quick <= QUICK_MAX,
            "{} --quick takes {quick:?}",
            experiment.name
        );
        let most = match experiment.name {
            name if name == LONGEST.0 => LONGEST.1,
            name if LONG.contains(&name) => LONG_MAX,
            _ => FULL_MAX,
        };
        let full = (experiment.estimate)(Scale::Full);
        assert!(full <= most, "{} takes {full:?}", experiment.name);
    }
}
