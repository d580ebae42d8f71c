//! `shared-sites`: throughput of two sites on the same nodes (KLM-2005 §5.4, Figure 7: one Zipf
//! stream of alpha 0.9, the other of 0.1 to 0.75, gains per site on random balancing).
//!
//! Every node serves both sites with one server, as a host with two virtual hosts does; the
//! front-end has both sites, each with all nodes, and each site has its own clients. Caches are
//! shared by both: file 1 of one site is not file 1 of the other. As in `single-site`, the order of
//! the schemes is judged by all alphas together.

use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::load::{Requests, Stream};
use crate::results::{Axis, Report};

use super::arms::AUTO;
use super::judge::{ahead, at_least, gain};
use super::measured::{Measured, labelled};
use super::paper::{beside, best_gain, peers};
use super::plan::{Arm, Plan, Point, Stage};
use super::report::{ExperimentFindings, Sketch, auto_ahead, report};
use super::runner::{NoHook, Runner};
use super::workload::ALL_ALPHAS;
use super::{Experiment, ExperimentError, Lab, Scale, arms, workload};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "shared-sites",
    about: "throughput of two sites that share all nodes, Zipf alpha 0.9 beside 0.1 to 0.75",
    source: "KLM-2005 §5.4, Figure 7",
    needs: "haproxy, nginx, apache2, envoy for their arms",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "throughput_rps";
const FIXED: &str = "fixed";
const VARIED: &str = "varied";
const FIXED_ALPHA: f64 = 0.9;
const LOW: f64 = 0.1;
/// Clients of each site.
const CLIENTS: u32 = workload::CLIENTS / 2;
const QUICK: &[f64] = &[LOW];
const FULL: &[f64] = &[LOW, 0.25, 0.5, 0.75];

/// The two streams; also what `load-variance` runs.
pub(super) fn streams(alpha: f64) -> Vec<Stream> {
    vec![
        workload::clients(FIXED, CLIENTS, FIXED_ALPHA),
        others(workload::clients(VARIED, CLIENTS, alpha)),
    ]
}

/// The same requests for other files.
fn others(mut stream: Stream) -> Stream {
    if let Requests::Zipf { path, .. } = &mut stream.requests {
        // A digit before the number makes it another file of the node's cache.
        *path = path.replace("file={file}", "file=9{file}");
    }
    stream
}

fn plan(scale: Scale) -> Plan {
    let mut all = arms::paper();
    all.push(arms::auto());
    all.extend(arms::best_peers());
    let (warm_up, length) = scale.pick((1000, 4500), (1000, 4000));
    let point = |alpha: &f64| Point {
        streams: streams(*alpha),
        // Peers where misses are most.
        only: (*alpha > LOW).then_some(|arm: &Arm| !arm.peer()),
        ..Point::single(
            label(*alpha),
            workload::clients(FIXED, CLIENTS, FIXED_ALPHA),
            Duration::from_millis(warm_up),
            Duration::from_millis(length),
        )
    };
    Plan {
        stages: vec![Stage::new(
            workload::cluster(arms::PAPER_AGENTS),
            scale.pick(QUICK, FULL).iter().map(point).collect(),
        )],
        arms: workload::processes(all),
        rounds: 2,
    }
}

fn label(alpha: f64) -> String {
    format!("alpha={alpha}")
}

fn metric(alpha: f64, site: &str) -> String {
    labelled(&format!("site_{METRIC}:{site}"), &label(alpha))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let mut measured = Runner::run(lab, &plan, &mut NoHook)?;
    measured.pool(&plan, METRIC, ALL_ALPHAS);
    let findings = findings(lab.scale, &plan, &measured);
    Ok(report(
        &EXPERIMENT,
        lab,
        &plan,
        measured,
        findings,
        clock::now().since(started),
    ))
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let goal = |arm: &str, site: &str, wanted: f64| {
        at_least(
            format!("{arm}'s gain on random, site {site}, alphas 0.9 and 0.1, %"),
            gain(table, arm, "random", &metric(LOW, site)),
            wanted,
        )
    };
    let all = labelled(METRIC, ALL_ALPHAS);
    let peers = peers(plan, table);
    let gained = |arm: &str, paper: &str| {
        let of = |arms: &[&str]| {
            let [fixed, varied] =
                [FIXED, VARIED].map(|site| best_gain(table, arms, "random", &metric(LOW, site)));
            json!([fixed, varied])
        };
        beside(json!(paper), "KLM-2005 §5.4", of(&[arm]), of(&peers))
    };
    let mut verdicts = vec![
        goal("klm", FIXED, 25.0),
        goal("klm", VARIED, 21.0),
        goal("ulm", FIXED, 11.0),
        goal("ulm", VARIED, 9.0),
        goal(AUTO, FIXED, 25.0),
        goal(AUTO, VARIED, 21.0),
        ahead(table, "ulm", "random", &all),
        ahead(table, "klm", "ulm", &all),
    ];
    let alphas = scale.pick(QUICK, FULL);
    for alpha in alphas {
        verdicts.extend(auto_ahead(
            plan,
            table,
            &labelled(METRIC, &label(*alpha)),
            true,
        ));
    }
    ExperimentFindings {
        paper: [
            (
                "klm_gain_percent".to_owned(),
                gained("klm", "25 with alpha 0.9, 21 with 0.1"),
            ),
            (
                "ulm_gain_percent".to_owned(),
                gained("ulm", "11 with alpha 0.9, 9 with 0.1"),
            ),
        ]
        .into(),
        verdicts,
        notes: vec![
            arms::RUNG.into(),
            format!("{CLIENTS} clients in a closed loop for each site."),
            "Random leaves a quarter of the nodes' time unused with so many clients; more cannot be gained. klm takes any of the \
             less loaded half, by load that is up to 50 ms old."
                .into(),
        ],
        plots: vec![Sketch::Over {
            title: "Throughput of two sites on the same nodes",
            quantity: METRIC,
            parameter: "alpha",
            x: Axis::linear("Zipf alpha of the second site"),
            y: Axis::from_zero("requests/s, both sites"),
        }],
    }
}
