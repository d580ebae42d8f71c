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
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front;
use crate::load::LoadResult;

use super::super::judge::{at_least, at_most, median, ratio};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, drive};
use super::orders::{BOUNDS, EACH, KEPT, Orders, PER_REQUEST, SITES, THINK, light_load};
use super::{
    BESIDE, Changed, ChangesExperiment, Figures, WARM_UP, change_figures, estimated, load_figures,
    moving, repeat, site,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "move-safety",
    about: "a thousand moves of nodes between two sites under kept connections and connections per request: lost requests, latency",
    source: "design goals",
    needs: "namespaces (root)",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const AUTO: &str = "auto";
const MOVED: &str = "auto, moved";
const EVERY: Duration = Duration::from_millis(30);

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
    let arm = || moving(AUTO, "dry_run = true", BOUNDS);
    vec![arm(), arm().each(MOVED, EVERY)]
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
    let mut orders = Orders::new(&sites);
    let mut front = front::start_to_change(place, &changed.arm.kind, sites, cluster)?;
    let per_request = drive::run_load(
        cluster,
        &light_load(vec![front.address], length(lab.scale), true),
    )?;
    let kept = drive::run_load(
        cluster,
        &light_load(vec![front.address], length(lab.scale), false),
    )?;
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

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
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
