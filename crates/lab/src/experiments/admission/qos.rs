//! `qos`: the share of answered requests that took over a second, by clients (Admission-2008 §IV-B,
//! Figures 8 and 9).

use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::experiments::judge::at_most;
use crate::experiments::measured::{Measured, labelled};
use crate::experiments::paper::{beside, ranked};
use crate::experiments::plan::{Plan, Stage};
use crate::experiments::report::{ExperimentFindings, Sketch, report};
use crate::experiments::runner::Runner;
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::results::{Axis, Report};

use super::{
    ADAPTIVE, InTime, KERNEL, SLO, STATIC, STATIC_TCP, by_clients, closed, cluster, haproxy,
    measured_arms, of, paper_arms, point, stream,
};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "qos",
    about: "share of requests over 1 s by clients: no admission, static and adaptive, over TCP and one-sided",
    source: "Admission-2008 §IV, Figures 8 and 9",
    needs: "haproxy for its arm",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const METRIC: &str = "over_1s_pct";
/// From just beyond what nodes bear within a second.
const QUICK: &[u32] = &[200, 400];
const FULL: &[u32] = &[150, 250, 400];

fn clients(scale: Scale) -> &'static [u32] {
    scale.pick(QUICK, FULL)
}

fn plan(scale: Scale) -> Plan {
    let length = scale.pick([2000, 3000], [2500, 4500]);
    let by = |clients: &u32| point(by_clients(*clients), stream(closed(*clients)), length);
    let mut arms = paper_arms();
    arms.push(haproxy(SLO));
    Plan {
        stages: vec![Stage::new(
            cluster(KERNEL),
            clients(scale).iter().map(by).collect(),
        )],
        arms,
        rounds: 2,
    }
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut InTime)?;
    let findings = findings(lab.scale, &plan, &measured);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn findings(scale: Scale, plan: &Plan, measured: &Measured) -> ExperimentFindings {
    let table = &measured.table;
    let (names, _) = measured_arms(plan, table);
    let mut verdicts = Vec::new();
    for clients in clients(scale) {
        let label = by_clients(*clients);
        verdicts.push(at_most(
            format!("adaptive's requests over 1 s, %, {label}"),
            of(table, ADAPTIVE, METRIC, &label),
            0.1,
        ));
        let tcp = of(table, STATIC_TCP, METRIC, &label);
        verdicts.extend(tcp.map(|tcp| {
            at_most(
                format!("static's requests over 1 s, %, at most {STATIC_TCP}'s, {label}"),
                of(table, STATIC, METRIC, &label),
                tcp,
            )
        }));
    }
    let at = |clients: &u32| {
        let label = by_clients(*clients);
        let order = ranked(table, &names, &labelled(METRIC, &label), false);
        format!("{label}: {}", order.as_str().unwrap_or("–"))
    };
    let orders: Vec<_> = clients(scale).iter().map(at).collect();
    ExperimentFindings {
        paper: [(
            "over_1s".to_owned(),
            beside(
                json!("no admission: many; TCP: some under heavy overload; RDMA: almost none"),
                "Admission-2008 §IV, Figures 8 and 9 (no numbers in the text)",
                json!(orders),
                Value::Null,
            ),
        )]
        .into(),
        verdicts,
        notes: vec![
            "Of answered requests; refused ones are in refused_pct. A refused client rests for 100 ms and asks again.".into(),
        ],
        plots: vec![Sketch::Over {
            title: "Requests over 1 s by clients",
            quantity: METRIC,
            parameter: "clients",
            x: Axis::linear("clients"),
            y: Axis::from_zero("% of answered requests"),
        }],
    }
}
