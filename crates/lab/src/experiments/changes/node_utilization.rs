//! `node-utilization`: how many nodes each site has over the time of bursts, how busy they are, and what sits idle beside a site that
//! waits (Reconfiguration-2004 §4.3.2).
//!
//! ```text
//! each 50 ms, by /api/status:   site of each node, requests in flight there
//! busy      the node has a request                waits    the site has more requests than nodes
//! idle_s    sum of 50 ms x nodes without a request, of other sites, while a site waits
//! ```
//!
//! Sites, bursts and arms are those of `burst_runs.rs`, three sites with 3, 3 and 2 nodes. The front-end is the only one, so its own
//! requests in flight are all. Failure case: what lasts less than 50 ms is seen by chance.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::FrontEnd;
use crate::results::{Axis, Curve, Plot};

use super::super::judge::{at_least, at_most, median, ratio};
use super::super::measured::{Measured, labelled};
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale};
use super::burst_clients::BurstRun;
use super::burst_runs::{
    self, CLIENTS, LIMIT, NODE_RATE, OURS, PAPER, RIGID, SETTLES, THREE_SITES, requests, rigid,
    rules,
};
use super::{BESIDE, CLUSTER, Changed, ChangesExperiment, Figures, ROUNDS, SET_UP};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "node-utilization",
    about: "nodes of each site over the time of bursts, how busy they are, and nodes that are idle while another site waits",
    source: "Reconfiguration-2004 §4.3.2, Figure 15",
    needs: "namespaces (root)",
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

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_S: f64 = 0.05;
const IDLE: &str = "idle_pct";
const THROUGHPUT: &str = "throughput_rps";

fn bursts(scale: Scale) -> [u64; 2] {
    scale.pick([256, 1024], [512, 8192])
}

fn all() -> Vec<Changed> {
    let [paper, ours] = rules();
    vec![rigid(RIGID), paper, ours]
}

fn estimate(scale: Scale) -> Duration {
    let sites = THREE_SITES.sites.len();
    let each = bursts(scale).map(|burst| {
        // All as if no node moved.
        let rate = NODE_RATE * 8.0 / sites as f64;
        let seconds = requests(burst, sites) as f64 / rate;
        SET_UP + SETTLES + Duration::from_secs_f64(seconds)
    });
    CLUSTER + each.iter().sum::<Duration>() * all().len() as u32 * ROUNDS
}

/// What a site has at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SiteLook {
    nodes: u32,
    busy: u32,
    in_flight: u64,
}

/// All sites at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Look {
    /// Since the begin.
    seconds: f64,
    sites: BTreeMap<String, SiteLook>,
}

impl Look {
    /// From what `GET /api/status` says.
    fn of(seconds: f64, status: &Value) -> Self {
        let sites = status["sites"].as_array().into_iter().flatten();
        let look = |site: &Value| {
            let mut look = SiteLook::default();
            for node in site["nodes"].as_array().into_iter().flatten() {
                let in_flight = node["in_flight"].as_u64().unwrap_or(0);
                look.nodes += 1;
                look.busy += u32::from(in_flight > 0);
                look.in_flight += in_flight;
            }
            (site["name"].as_str().unwrap_or_default().to_owned(), look)
        };
        Self {
            seconds,
            sites: sites.map(look).collect(),
        }
    }

    /// Nodes without a request of sites other than one that waits, and all nodes; none if no site waits.
    fn idle(&self) -> Option<(u32, u32)> {
        let waits = |look: &&SiteLook| look.in_flight > u64::from(look.nodes);
        let idle = |look: &SiteLook| look.nodes - look.busy;
        self.sites.values().any(|it| waits(&it)).then(|| {
            let others = self.sites.values().filter(|it| !waits(it));
            let all = self.sites.values().map(|it| it.nodes).sum();
            (others.map(idle).sum(), all)
        })
    }
}

/// Both burst lengths of one arm.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let (mut table, mut raw, mut failed) = (Vec::new(), Vec::new(), 0);
    for burst in bursts(lab.scale) {
        let plan = THREE_SITES.plan(burst);
        let (result, looks) = burst_runs::run(
            cluster,
            changed,
            &THREE_SITES,
            plan,
            Clone::clone,
            |front, run| watch(front, cluster, run),
        )?;
        failed += result.failed;
        let label = format!("burst={burst}");
        let seconds = result.took.as_secs_f64().max(1e-9);
        table.push((
            labelled(THROUGHPUT, &label),
            result.answered as f64 / seconds,
        ));
        table.extend(figures(&looks, &label));
        raw.push(json!({ "burst": burst, "looks": looks }));
    }
    table.push(("failed".into(), failed as f64));
    Ok(Figures {
        table,
        raw: json!(raw),
    })
}

/// Looks until all is sent.
fn watch(
    front: &FrontEnd,
    cluster: &Cluster,
    run: &BurstRun,
) -> Result<Vec<Look>, ExperimentError> {
    let begin = clock::now();
    let (mut looks, mut due) = (Vec::new(), begin);
    while run.site().is_some() && clock::now().since(begin) < LIMIT {
        let status = front.answer(cluster.front(), "/api/status")?;
        looks.push(Look::of(clock::now().since(begin).as_secs_f64(), &status));
        due = (due + LOOK).max(clock::now());
        clock::sleep_until(due);
    }
    Ok(looks)
}

fn figures(looks: &[Look], label: &str) -> Vec<(String, f64)> {
    let waiting: Vec<_> = looks.iter().filter_map(Look::idle).collect();
    let (idle, all) = waiting
        .iter()
        .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let mut figures = vec![
        (
            labelled("idle_node_seconds", label),
            f64::from(idle) * LOOK_S,
        ),
        (
            labelled(IDLE, label),
            100.0 * f64::from(idle) / f64::from(all.max(1)),
        ),
    ];
    for (name, _) in THREE_SITES.sites {
        let of_it = looks.iter().filter_map(|it| it.sites.get(*name));
        let (nodes, busy) = of_it.fold((0, 0), |sum, it| (sum.0 + it.nodes, sum.1 + it.busy));
        let mut add = |metric: &str, value| {
            figures.push((labelled(&format!("{metric}:{name}"), label), value));
        };
        add("nodes", f64::from(nodes) / (looks.len() as f64).max(1.0));
        add("busy_share", f64::from(busy) / f64::from(nodes.max(1)));
    }
    figures
}

/// Nodes of each site over the first round of an arm.
fn course(measured: &Measured, arm: &str, burst: u64) -> Option<Plot> {
    let first = measured.raw.iter().find(|it| it["arm"] == arm)?;
    let runs = first["run"].as_array()?.iter();
    let run = runs.filter(|it| it["burst"] == burst).find_map(|it| {
        let looks = Vec::<Look>::deserialize(&it["looks"]);
        looks.ok()
    })?;
    let curve = |(name, _): &(&str, _)| Curve {
        name: (*name).into(),
        peer: false,
        points: run
            .iter()
            .filter_map(|look| Some((look.seconds, f64::from(look.sites.get(*name)?.nodes))))
            .collect(),
    };
    Some(Plot::Series {
        title: format!("Nodes of each site: {arm}, bursts of {burst}"),
        x: Axis::linear("s"),
        y: Axis::from_zero("nodes"),
        series: THREE_SITES.sites.iter().map(curve).collect(),
        marks: Vec::new(),
    })
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let [short, long] = bursts(scale);
    let metric = |metric: &str, burst: u64| labelled(metric, &format!("burst={burst}"));
    let idle = |arm, burst| median(table, arm, &metric(IDLE, burst));
    let over = |base, what, burst| ratio(table, OURS, base, &metric(what, burst));
    let courses = [
        (RIGID, long),
        (PAPER, short),
        (OURS, short),
        (PAPER, long),
        (OURS, long),
    ];
    let courses = courses.map(|(arm, burst)| course(measured, arm, burst));
    let mut plots: Vec<_> = courses.into_iter().flatten().map(Sketch::Course).collect();
    plots.push(Sketch::Bars {
        title: "Nodes without a request while another site waits".into(),
        groups: bursts(scale)
            .map(|burst| (format!("bursts of {burst}"), metric(IDLE, burst)))
            .into(),
        y: Axis::from_zero("% of all nodes"),
    });
    ExperimentFindings {
        paper: BTreeMap::from([(
            "nodes of the site that is asked".to_owned(),
            json!("rigid 3, over-provisioned 6 at most; with moves not all six at bursts of 512, down to one as a burst finds it; at 8096 all six for long"),
        )]),
        verdicts: vec![
            at_most(
                format!("% of nodes idle while another site waits, ours, bursts of {long}"),
                idle(OURS, long),
                // Two of eight cannot come.
                30.0,
            ),
            at_most(
                format!("the same of ours over rigid, bursts of {short}"),
                over(RIGID, IDLE, short),
                1.0,
            ),
            at_most(
                format!("the same of ours over the paper's rule, bursts of {short}"),
                over(PAPER, IDLE, short),
                1.0,
            ),
            at_least(
                format!("throughput of ours over rigid, bursts of {short}"),
                over(RIGID, THROUGHPUT, short),
                0.97,
            ),
            at_most("requests lost, ours".into(), median(table, OURS, "failed"), 0.0),
        ],
        notes: vec![
            format!("{CLIENTS} clients in a closed loop ask one site at a time, so nodes of the others that have not come are idle: of eight nodes {} can serve it.", THREE_SITES.most),
            "Each site keeps a node, so of eight nodes two, 25 %, are idle at best. Courses are of the first round.".into(),
        ],
        plots,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_requests_count_while_another_site_waits() {
        let site = |name: &str, in_flight: &[u64]| {
            let nodes: Vec<_> = in_flight
                .iter()
                .map(|it| json!({ "in_flight": it }))
                .collect();
            json!({ "name": name, "nodes": nodes })
        };
        let status = json!({ "sites": [site("alpha", &[3, 2]), site("beta", &[0, 1, 0])] });
        let look = Look::of(1.0, &status);
        assert_eq!(
            look.sites["beta"],
            SiteLook {
                nodes: 3,
                busy: 1,
                in_flight: 1
            }
        );
        assert_eq!(look.idle(), Some((2, 5)));
        let calm = json!({ "sites": [site("alpha", &[1, 1]), site("beta", &[0, 1, 0])] });
        assert_eq!(Look::of(1.0, &calm).idle(), None);
        let figures: BTreeMap<_, _> = figures(&[look], "burst=1").into_iter().collect();
        assert_eq!(figures["idle_pct[burst=1]"], 40.0);
        assert_eq!(figures["nodes[burst=1 site=beta]"], 3.0);
        assert_eq!(figures["busy_share[burst=1 site=alpha]"], 1.0);
    }
}
