//! `single-site`: throughput of one site under Zipf requests of several alphas (KLM-2005 §5.2,
//! Figure 5).
//!
//! Closed loop, so throughput says how much of the nodes' capacity the balancer keeps busy. The
//! paper compares random, round robin, ULM, pKLM and KLM; `auto` and the peers stand beside. Its
//! schemes are nearer to each other than one alpha can tell apart in seconds, so their order is
//! judged by all alphas together (geometric mean, `alpha=all`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{Table, ahead, at_least, gain, ratio};
use super::measured::{Measured, labelled};
use super::paper::{beside, best_gain, own, peers, ranked};
use super::plan::{Arm, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, auto_ahead, report};
use super::runner::{NoHook, Runner};
use super::workload::ALL_ALPHAS;
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "single-site",
    about: "throughput of one site as Zipf alpha varies: random, round robin, ULM, pKLM, KLM, auto, peers",
    source: "KLM-2005 §5.2, Figure 5",
    needs: "haproxy, nginx, apache2, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const SITE: &str = "site";
const METRIC: &str = "throughput_rps";
/// Alphas that all arms are measured at, and those between for the paper's arms.
const LOW: f64 = 0.1;
const HIGH: f64 = 0.9;

/// Below this ratio two arms are about level here.
const LEVEL: f64 = 1.05;
/// Why round robin may be.
const ROTATION: &str = "The paper has round robin level with random; here it is about as good as load of 50 ms ago. \
     Equal and undisturbed nodes are what rotation is best at: see loaded-nodes and tail for others.";

/// Which arms are measured at a point.
type Only = Option<fn(&Arm) -> bool>;

fn plan(scale: Scale) -> Plan {
    let mut all = arms::paper();
    all.push(arms::auto());
    all.extend(match scale {
        Scale::Quick => arms::best_peers().into_iter().take(2).collect(),
        Scale::Full => arms::some_peers(),
    });
    let (warm_up, length) = scale.pick((600, 2300), (600, 4000));
    let point = |(alpha, only): &(f64, Only)| Point {
        only: *only,
        ..Point::single(
            label(*alpha),
            workload::clients(SITE, workload::CLIENTS, *alpha),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    let own: Only = Some(|arm| !arm.peer());
    let alphas = match scale {
        Scale::Quick => vec![(LOW, None), (HIGH, None)],
        Scale::Full => vec![
            (LOW, None),
            (0.25, own),
            (0.5, own),
            (0.75, own),
            (HIGH, None),
        ],
    };
    Plan {
        stages: vec![Stage::new(
            workload::cluster(arms::PAPER_AGENTS),
            alphas.iter().map(point).collect(),
        )],
        arms: workload::processes(all),
        rounds: 2,
    }
}

fn label(alpha: f64) -> String {
    format!("alpha={alpha}")
}

fn metric(alpha: f64) -> String {
    labelled(METRIC, &label(alpha))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut measured = Runner::run(lab, &plan, &mut NoHook)?;
    measured.pool(&plan, METRIC, ALL_ALPHAS);
    let findings = findings(&plan, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

fn findings(plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let (low, high) = (metric(LOW), metric(HIGH));
    let over_random = |arm| gain(table, arm, "random", &low);
    let all = labelled(METRIC, ALL_ALPHAS);
    let over = |arm, base| ahead(table, arm, base, &all);
    let mut verdicts = vec![
        at_least(
            "ulm's gain on random at alpha 0.1, %".into(),
            over_random("ulm"),
            12.0,
        ),
        at_least(
            "klm's gain on random at alpha 0.1, %".into(),
            over_random("klm"),
            22.0,
        ),
        at_least(
            "auto's gain on random at alpha 0.1, %: the paper's KLM".into(),
            over_random(AUTO),
            22.0,
        ),
        over("ulm", "random"),
        over("ulm", "round_robin"),
        over("pklm", "ulm"),
        over("klm", "pklm"),
        over("klm", "round_robin"),
        at_least(
            "klm's gain on random at alpha 0.1 less that at 0.9, points".into(),
            over_random("klm")
                .zip(gain(table, "klm", "random", &high))
                .map(|(low, high)| low - high),
            0.0,
        ),
    ];
    for point in plan.stages.iter().flat_map(|stage| &stage.points) {
        verdicts.extend(auto_ahead(
            plan,
            table,
            &labelled(METRIC, &point.label),
            true,
        ));
    }
    let mut notes = vec![
        arms::RUNG.into(),
        format!(
            "{} clients in a closed loop over {} nodes; the paper does not tell its number.",
            workload::CLIENTS,
            workload::NODES
        ),
    ];
    if ratio(table, "klm", "round_robin", &all).is_some_and(|ratio| ratio < LEVEL) {
        notes.push(ROTATION.into());
    }
    ExperimentFindings {
        paper: paper(plan, table),
        verdicts,
        notes,
        plots: vec![Sketch::Over {
            title: "Throughput of one site",
            quantity: METRIC,
            parameter: "alpha",
            x: Axis::linear("Zipf alpha"),
            y: Axis::from_zero("requests/s"),
        }],
    }
}

fn paper(plan: &Plan, table: &Table) -> BTreeMap<String, Value> {
    let (low, all) = (metric(LOW), labelled(METRIC, ALL_ALPHAS));
    let (own, peers) = (own(plan, table), peers(plan, table));
    let gained = |arm: &str, paper: u32| {
        let here = best_gain(table, &[arm], "random", &low);
        let theirs = best_gain(table, &peers, "random", &low);
        beside(json!(paper), "KLM-2005 §5.2, lowest alpha", here, theirs)
    };
    let order = beside(
        json!("klm > pklm > ulm > round robin and random; gains grow as alpha falls"),
        "KLM-2005 §5.2, Figure 5; here by all alphas, peers at 0.1",
        ranked(table, &own, &all, true),
        ranked(table, &peers, &low, true),
    );
    [
        ("klm_gain_percent".to_owned(), gained("klm", 22)),
        ("ulm_gain_percent".to_owned(), gained("ulm", 12)),
        ("order".to_owned(), order),
    ]
    .into()
}
