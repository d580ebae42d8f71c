//! `reload`: a thousand reloads under load that add, remove, move and re-address servers.
//!
//! ```text
//! shop, blog    3 or 4 of 8 servers each, an open loop at about 0.4 of what 3 of them bear
//! auto          as it begins                      haproxy            as it begins
//! auto, reloaded    each 30 ms                    haproxy, reloaded  each second
//! ```
//!
//! `shuffle.rs` says what changes; each site keeps its capacity, so that what is slower with reloads is slower by them.
//! A reload of Tidegate is over when it answers that it is in force. HAProxy is asked as seldom as it is because each
//! time it starts a process that lives until its connections end.
//!
//! * **failed**: requests without a right answer, refusals included.
//! * **change**: from asking to the answer; of HAProxy it is the signal alone.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::{self, FrontEnd};
use crate::load::{Arrivals, LoadPlan, Mix, Pacing, Requests, Size, Spread, Stream};

use super::super::judge::{at_least, at_most, median, ratio};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, drive};
use super::shuffle::Shuffle;
use super::{
    BESIDE, Changed, ChangesExperiment, Figures, WARM_UP, auto, change_figures, estimated, haproxy,
    load_figures, repeat, site,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "reload",
    about: "a thousand reloads under load that add, remove, move and re-address servers: lost requests, latency",
    source: "design goals",
    needs: "namespaces (root); haproxy for its arms",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const AUTO: &str = "auto";
const RELOADED: &str = "auto, reloaded";
const HAPROXY: &str = "haproxy leastconn";
const HAPROXY_RELOADED: &str = "haproxy, reloaded";

const SITES: [&str; 2] = ["shop", "blog"];
/// Servers that a site has at first.
const EACH: usize = 3;
/// Of each site, requests per second; three servers, 0.3 of a CPU, bear about 550 with the server's own work.
const RATE: f64 = 200.0;
const COST: Size = Size {
    mean: 400.0,
    spread: Spread::Exponential,
};
const EVERY: Duration = Duration::from_millis(30);
const HAPROXY_EVERY: Duration = Duration::from_secs(1);
/// A request that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Of the changes and of the load: the same for all arms and rounds.
const SEED: u64 = 1;

/// Reloads of Tidegate in a run.
fn reloads(scale: Scale) -> f64 {
    scale.pick(200.0, 1000.0)
}

fn length(scale: Scale) -> Duration {
    // A little more than the reloads need, for those that are late.
    scale.pick(Duration::from_secs(8), Duration::from_secs(32))
}

fn all() -> Vec<Changed> {
    vec![
        auto(),
        auto().each(RELOADED, EVERY),
        haproxy(),
        haproxy().each(HAPROXY_RELOADED, HAPROXY_EVERY),
    ]
}

fn estimate(scale: Scale) -> Duration {
    estimated(&all(), length(scale))
}

const CHANGES: ChangesExperiment = ChangesExperiment {
    experiment: &EXPERIMENT,
    agents: BESIDE,
    arms: all,
    run: one,
    findings,
};

/// One run of an arm.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let place = cluster.front();
    let sites = SITES
        .iter()
        .enumerate()
        .map(|(index, name)| site(name, index * EACH..(index + 1) * EACH, changed, cluster));
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let spares = site(
        "spare",
        SITES.len() * EACH..cluster.nodes().len(),
        changed,
        cluster,
    )?;
    let mut shuffle = Shuffle::new(sites.clone(), spares.servers, SEED);
    let mut front = front::start_to_change(place, &changed.arm.kind, sites, cluster)?;
    let running = drive::run_load(cluster, &load(lab.scale, &front))?;
    let begin = clock::now() + WARM_UP;
    clock::sleep_until(begin);
    let cpu = front.cpu_time();
    let end = begin + length(lab.scale);
    let took = match changed.every {
        None => Vec::new(),
        Some(every) => repeat(every, end, || Ok(front.reload(place, shuffle.next())?))?,
    };
    let result = running.wait()?;
    if let Some(why) = front.ended() {
        return Err(ExperimentError::Unfit(why));
    }
    let total = result.total();
    let mut table = load_figures(&total);
    table.extend(change_figures(&took));
    table.push(("processes_at_end", front.processes().len() as f64));
    let raw = json!({
        "errors": total.errors, "generator": result.generator, "said": result.said,
        "change_ms": took.iter().map(|it| it.as_secs_f64() * 1e3).collect::<Vec<_>>(),
        "cpu_seconds": front.cpu_time().saturating_sub(cpu).as_secs_f64(),
    });
    Ok(Figures::plain(table, raw))
}

fn load(scale: Scale, front: &FrontEnd) -> LoadPlan {
    let stream = |site: &str| Stream {
        site: site.into(),
        pacing: Pacing::Open {
            rate: RATE,
            arrivals: Arrivals::Poisson,
        },
        requests: Requests::Mix(vec![Mix {
            weight: 1.0,
            path: "/work?cpu={cpu}us&bytes=1024".into(),
            size: Size::fixed(1024.0),
            cost: COST,
        }]),
        header: None,
    };
    LoadPlan {
        targets: vec![front.address],
        streams: SITES.map(stream).into(),
        warm_up: WARM_UP,
        length: length(scale),
        timeout: TIMEOUT,
        seed: SEED,
        ..LoadPlan::default()
    }
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let own = |metric| median(table, RELOADED, metric);
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: vec![
            at_least("reloads in a run".into(), own("changes"), reloads(scale)),
            at_most("requests lost, auto reloaded".into(), own("failed"), 0.0),
            at_most(
                "p99 of auto reloaded over auto".into(),
                ratio(table, RELOADED, AUTO, "p99_ms"),
                1.2,
            ),
            at_most(
                "p99 of auto reloaded over HAProxy reloaded".into(),
                ratio(table, RELOADED, HAPROXY_RELOADED, "p99_ms"),
                1.0,
            ),
            at_most(
                "p99 of HAProxy reloaded over HAProxy".into(),
                ratio(table, HAPROXY_RELOADED, HAPROXY, "p99_ms"),
                1.2,
            ),
        ],
        notes: vec![format!(
            "{RELOADED}: each {EVERY:?}; {HAPROXY_RELOADED}: each {HAPROXY_EVERY:?}. An open loop of {RATE:.0} requests/s to each of {} sites.",
            SITES.len()
        )],
        plots: vec![
            Sketch::bar("p99 of all requests", "p99_ms", "ms"),
            Sketch::bar("Requests lost", "failed", "requests"),
        ],
    }
}
