//! `burst-files`: whether moves of nodes bring as much where sites serve other files than one of 1 KiB (Reconfiguration-2004,
//! Figures 11 to 14).
//!
//! ```text
//! 1K, 4K, 16K    one file of that size                                      bursts of 2048
//! zipf           400 files of each site, popularity as rank^-0.9            bursts of 256, two of each site
//! world-cup      a thousand recorded requests, in their order               the same
//! ```
//!
//! Sites and arms are those of `burst_runs.rs`, three sites with 3, 3 and 2 nodes. A node has 40 files in its cache, another one
//! costs it 6 ms of CPU, and sites have no file in common: a node that comes finds none of its new site's. The recorded requests
//! are not part of the repository (`TIDEGATE_TRACES`); without them their row is SKIPPED.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidegate_core::stats::quantile_of_sorted;

use crate::cluster::Cluster;
use crate::load::{recorded_requests, zipf_files};
use crate::results::Axis;

use super::super::judge::{at_least, at_most, median, ratio};
use super::super::measured::{Measured, labelled};
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale};
use super::burst_clients::{AskedFile, BurstPlan};
use super::burst_runs::{
    self, NODE_RATE, OURS, OVER, PAPER, RIGID, SETTLES, THREE_SITES, rigid, rules,
};
use super::{BESIDE, CLUSTER, Changed, ChangesExperiment, Figures, ROUNDS, SET_UP};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "burst-files",
    about: "throughput of sites whose nodes follow bursts, by what they serve: one file of 1, 4 or 16 KiB, Zipf, recorded requests",
    source: "Reconfiguration-2004 §4.3, Figures 10 to 14",
    needs: "namespaces (root); recorded requests for a row",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const CHANGES: ChangesExperiment = ChangesExperiment {
    experiment: &EXPERIMENT,
    agents: BESIDE,
    arms: all,
    run: one,
    findings,
};

const METRIC: &str = "throughput_rps";
const TO_SERVING: &str = "to_serving_p99_ms";
const ALPHA: f64 = 0.9;
const FILES: u32 = 400;
const DRAWS: usize = 4096;
const SEED: u64 = 1;
/// Of a file by popularity.
const ZIPF_BYTES: u32 = 1024;
/// Longer answers are cut to this.
const BYTES_MAX: u32 = 64 << 10;
/// Of files that are seldom in a cache: requests per second of a node, about.
const MISS_RATE: f64 = 30.0;

/// What sites serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    One(&'static str, u32),
    Zipf,
    WorldCup,
}

const QUICK: &[Served] = &[Served::One("16K", 16 << 10)];
const FULL: &[Served] = &[
    Served::One("1K", 1 << 10),
    Served::One("4K", 4 << 10),
    Served::One("16K", 16 << 10),
    Served::Zipf,
    Served::WorldCup,
];

impl Served {
    fn label(self) -> String {
        let name = match self {
            Self::One(name, _) => name,
            Self::Zipf => "zipf",
            Self::WorldCup => "world-cup",
        };
        format!("files={name}")
    }

    /// In the order in which they are asked for, or why there are none.
    fn files(self) -> Result<Arc<[AskedFile]>, String> {
        let numbered = |number, bytes| AskedFile {
            number: Some(number),
            bytes,
        };
        Ok(match self {
            Self::One(_, bytes) => Arc::new([AskedFile::of(bytes)]),
            Self::Zipf => {
                let files = zipf_files(ALPHA, FILES, DRAWS, SEED).into_iter();
                files.map(|file| numbered(file, ZIPF_BYTES)).collect()
            }
            Self::WorldCup => {
                let files = recorded_requests()?.into_iter();
                files
                    .map(|it| numbered(it.file, it.bytes.min(BYTES_MAX)))
                    .collect()
            }
        })
    }

    /// Requests of a burst, and bursts of each site.
    fn bursts(self) -> (u64, u64) {
        match self {
            Self::One(..) => (2048, 1),
            Self::Zipf | Self::WorldCup => (256, 2),
        }
    }

    fn node_rate(self) -> f64 {
        match self {
            Self::One(..) => NODE_RATE,
            Self::Zipf | Self::WorldCup => MISS_RATE,
        }
    }

    fn requests(self) -> u64 {
        let (burst, each) = self.bursts();
        burst * each * THREE_SITES.sites.len() as u64
    }
}

fn rows(scale: Scale) -> &'static [Served] {
    scale.pick(QUICK, FULL)
}

fn all() -> Vec<Changed> {
    let [paper, ours] = rules();
    vec![rigid(RIGID), rigid(OVER), paper, ours]
}

fn estimate(scale: Scale) -> Duration {
    let own = 8.0 / THREE_SITES.sites.len() as f64;
    let most = THREE_SITES.most as f64;
    // Rigid, over-provisioned, and two in between.
    let nodes = [own, most, (own + most) / 2.0, (own + most) / 2.0];
    let each = rows(scale).iter().map(|row| {
        let of_one = row.requests() as f64 / row.node_rate();
        let seconds: f64 = nodes.iter().map(|it| of_one / it).sum();
        (SET_UP + SETTLES) * nodes.len() as u32 + Duration::from_secs_f64(seconds)
    });
    CLUSTER + each.sum::<Duration>() * ROUNDS
}

/// All rows of one arm.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let (mut table, mut raw, mut failed) = (Vec::new(), Vec::new(), 0);
    for row in rows(lab.scale) {
        // Without its files a row is SKIPPED, which the findings say.
        let Ok(files) = row.files() else { continue };
        let label = row.label();
        lab.progress
            .message(&format!("{} {label}", changed.arm.name));
        let burst = row.bursts().0;
        let plan = BurstPlan {
            files,
            burst,
            requests: row.requests(),
            ..THREE_SITES.plan(burst)
        };
        let nodes = burst_runs::nodes_of(changed, &THREE_SITES);
        let (result, ()) =
            burst_runs::run(cluster, changed, &THREE_SITES, plan, nodes, |_, _| Ok(()))?;
        failed += result.failed;
        let seconds = result.took.as_secs_f64().max(1e-9);
        table.push((labelled(METRIC, &label), result.answered as f64 / seconds));
        let served = result.bursts.iter().filter_map(|it| it.to_serving_ms());
        let mut served: Vec<_> = served.collect();
        served.sort_unstable_by(f64::total_cmp);
        if let Some(p99) = quantile_of_sorted(&served, 0.99) {
            table.push((labelled(TO_SERVING, &label), p99));
        }
        raw.push(json!({ "label": label, "seconds": seconds, "to_serving_ms": served }));
    }
    table.push(("failed".into(), failed as f64));
    Ok(Figures {
        table,
        raw: json!(raw),
    })
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let metric = |row: &Served| labelled(METRIC, &row.label());
    let verdict = |row: &Served| {
        at_least(
            format!("throughput of ours over rigid, {}", row.label()),
            ratio(table, OURS, RIGID, &metric(row)),
            0.97,
        )
    };
    let mut verdicts: Vec<_> = rows(scale).iter().map(verdict).collect();
    let over_paper = |row: &Served| {
        at_least(
            format!("throughput of ours over the paper's rule, {}", row.label()),
            ratio(table, OURS, PAPER, &metric(row)),
            1.0,
        )
    };
    verdicts.extend(rows(scale).iter().map(over_paper));
    verdicts.push(at_most(
        "requests lost, ours".into(),
        median(table, OURS, "failed"),
        0.0,
    ));
    let skipped = rows(scale).iter().filter_map(|row| {
        let why = row.files().err()?;
        Some(format!("SKIPPED {}: {why}", row.label()))
    });
    let mut notes = vec![
        "Every request takes 0.2 ms of CPU, whatever its size; what a larger answer costs beside is the system's.".into(),
        "Arrivals are those of the closed loop, for recorded requests too: of them only the order, the URLs and the sizes (64 KiB at most) are recorded.".into(),
    ];
    notes.extend(skipped);
    ExperimentFindings {
        paper: BTreeMap::from([(
            "trend".to_owned(),
            json!(
                "4 KB, 16 KB, Zipf and World Cup: the trend is similar to the single file of 1 KB"
            ),
        )]),
        verdicts,
        notes,
        plots: vec![Sketch::Bars {
            title: "Throughput by what sites serve".into(),
            groups: rows(scale)
                .iter()
                .map(|row| (row.label(), metric(row)))
                .collect(),
            y: Axis::log("requests/s"),
        }],
    }
}
