//! `move-safety`: a thousand moves of nodes between two sites under load, as an operator asks for them.
//!
//! ```text
//! shop, blog    4 of 8 servers each at first, 1 to 7 later     a request takes 1 ms of CPU
//! 8 clients of each site in a closed loop, connections kept; 4 of each with a connection per request
//! auto          nodes stay where they are        auto, moved    POST /api/moves each 30 ms, a random node that may go
//! ```
//!
//! The sites' load is low, so that what is slower with moves is slower by them and not by the nodes that a site lacks for a while.
//!
//! * **failed**: requests without a right answer, refusals included, of all loops.
//! * **change**: from asking to the answer that the node serves its new site.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_core::prng::Prng;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::{self, FrontEnd, Site};
use crate::load::{LoadPlan, LoadResult, Pacing, Requests, Stream};
use crate::results::Report;

use super::super::judge::{Table, at_least, at_most, median, ratio};
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, arms, drive, workload};
use super::{
    Changed, Figures, WARM_UP, carry_out, change_figures, estimated, load_figures, moving, repeat,
    site,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "move-safety",
    about: "a thousand moves of nodes between two sites under kept connections and connections per request: lost requests, latency",
    source: "design goals",
    needs: "namespaces (root)",
    estimate,
    run,
    plan: None,
};

const AUTO: &str = "auto";
const MOVED: &str = "auto, moved";
const SITES: [&str; 2] = ["shop", "blog"];
/// Nodes of a site at first.
const EACH: usize = workload::NODES / SITES.len();
/// Least nodes of a site.
const FLOOR: usize = 1;
/// Clients of each site.
const KEPT: u32 = 8;
const PER_REQUEST: u32 = 4;
/// Clients rest so long on the average.
const THINK: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_millis(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Of the moves: the same for all rounds.
const SEED: u64 = 1;

/// Moves in a run.
fn moves(scale: Scale) -> f64 {
    scale.pick(100.0, 1000.0)
}

fn length(scale: Scale) -> Duration {
    // A little more than the moves need, for those that are late.
    scale.pick(Duration::from_secs(5), Duration::from_secs(36))
}

fn all() -> Vec<Changed> {
    // Load moves nothing: what happens is what is asked for.
    let arm = || moving(AUTO, "dry_run = true", (FLOOR, workload::NODES - FLOOR));
    vec![arm(), arm().each(MOVED, EVERY)]
}

fn estimate(scale: Scale) -> Duration {
    estimated(&all(), length(scale))
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    carry_out(
        lab,
        &EXPERIMENT,
        &[arms::beside_agent()],
        &all(),
        one,
        |table| findings(table, lab.scale),
    )
}

/// One run of an arm.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let place = cluster.front();
    let sites = SITES
        .iter()
        .enumerate()
        .map(|(index, name)| site(name, index * EACH..(index + 1) * EACH, changed, cluster));
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let mut orders = Orders::new(&sites);
    let mut front = front::start_to_change(place, &changed.arm.kind, sites, cluster)?;
    let per_request = drive::run_load(cluster, &load(lab.scale, &front, true))?;
    let kept = drive::run_load(cluster, &load(lab.scale, &front, false))?;
    let begin = clock::now() + WARM_UP;
    clock::sleep_until(begin);
    let end = begin + length(lab.scale);
    let took = match changed.every {
        None => Vec::new(),
        Some(every) => repeat(every, end, || {
            let (node, site) = orders.next();
            Ok(front.move_node(place, &node, site)?)
        })?,
    };
    let results = [kept.wait()?, per_request.wait()?];
    if let Some(why) = front.ended() {
        return Err(ExperimentError::Unfit(why));
    }
    Ok(figures(&results, &took))
}

/// Which node goes to which site next.
struct Orders {
    /// Names of nodes, and the place of the site that each serves.
    nodes: Vec<(String, usize)>,
    prng: Prng,
}

impl Orders {
    fn new(sites: &[Site]) -> Self {
        let nodes = sites.iter().enumerate().flat_map(|(place, site)| {
            let servers = site.servers.iter();
            servers.map(move |server| (server.name.clone(), place))
        });
        Self {
            nodes: nodes.collect(),
            prng: Prng::new(SEED),
        }
    }

    /// A random node of those whose site has more than its floor.
    fn next(&mut self) -> (String, &'static str) {
        let count = |site| self.nodes.iter().filter(|(_, at)| *at == site).count();
        let may_give = [count(0) > FLOOR, count(1) > FLOOR];
        let nodes = 0..self.nodes.len();
        let may_go: Vec<_> = nodes.filter(|node| may_give[self.nodes[*node].1]).collect();
        let node = may_go[self.prng.below(may_go.len())];
        let (name, site) = &mut self.nodes[node];
        *site = 1 - *site;
        (name.clone(), SITES[*site])
    }
}

fn figures(results: &[LoadResult; 2], took: &[Duration]) -> Figures {
    let both = LoadResult {
        streams: results.iter().flat_map(|it| it.streams.clone()).collect(),
        ..LoadResult::default()
    };
    let mut table = load_figures(&both.total());
    table.extend(change_figures(took));
    let raw = json!({
        "errors": both.total().errors,
        "generators": results.iter().map(|it| it.generator).collect::<Vec<_>>(),
        "change_ms": took.iter().map(|it| it.as_secs_f64() * 1e3).collect::<Vec<_>>(),
    });
    Figures::plain(table, raw)
}

fn load(scale: Scale, front: &FrontEnd, per_request: bool) -> LoadPlan {
    let clients = match per_request {
        true => PER_REQUEST,
        false => KEPT,
    };
    let stream = |site: &str| Stream {
        site: site.into(),
        pacing: Pacing::Closed {
            clients,
            think: THINK,
        },
        requests: Requests::Single {
            path: "/work?cpu=1ms&bytes=1024".into(),
        },
        header: None,
    };
    LoadPlan {
        targets: vec![front.address],
        streams: SITES.map(stream).into(),
        warm_up: WARM_UP,
        length: length(scale),
        timeout: TIMEOUT,
        connection_per_request: per_request,
        ..LoadPlan::default()
    }
}

fn findings(table: &Table, scale: Scale) -> ExperimentFindings {
    let own = |metric| median(table, MOVED, metric);
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: vec![
            at_least("moves in a run".into(), own("changes"), moves(scale)),
            at_most("requests lost, auto moved".into(), own("failed"), 0.0),
            at_most(
                "p99 of auto moved over auto".into(),
                ratio(table, MOVED, AUTO, "p99_ms"),
                1.2,
            ),
        ],
        notes: vec![format!(
            "{MOVED}: a move each {EVERY:?}. {KEPT} clients of each of {} sites keep their connections, {PER_REQUEST} make one per request, each rests {THINK:?} on the average.",
            SITES.len()
        )],
        plots: vec![
            Sketch::bar("Requests lost", "failed", "requests"),
            Sketch::bar("p99 of all requests", "p99_ms", "ms"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Server;

    #[test]
    fn orders_leave_each_site_its_floor() {
        let server = |name: String| Server {
            name,
            address: ([127, 0, 0, 1], 80).into(),
            load: front::Load::None,
            agent_check: None,
        };
        let site = |name: &str| {
            let servers = (0..EACH).map(|number| server(format!("{name}-{number}")));
            Site::of(name, servers.collect())
        };
        let mut orders = Orders::new(&SITES.map(site));
        let mut least = EACH;
        for _ in 0..1000 {
            let before = orders.nodes.clone();
            let (name, site) = orders.next();
            let from = before.iter().find(|it| it.0 == name).unwrap().1;
            assert_ne!(SITES[from], site, "{name} is there already");
            let shop = orders.nodes.iter().filter(|it| it.1 == 0).count();
            least = least.min(shop).min(workload::NODES - shop);
        }
        assert_eq!(least, FLOOR);
    }
}
