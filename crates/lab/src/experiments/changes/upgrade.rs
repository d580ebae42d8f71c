//! `upgrade`: a hundred hand-overs to a new process, under clients of three kinds.
//!
//! ```text
//! 16 clients in a closed loop, connections kept         1 KiB, 1 ms of CPU
//! 8 clients in a closed loop, a connection per request  the same
//! 20 tunnels (WebSocket), a second each, an echo each 50 ms
//! auto, upgraded       POST /api/upgrade each 300 ms, or when the last one has ended
//! haproxy, reloaded    SIGUSR2 to its master as often: its own way to another process
//! ```
//!
//! * **failed**: requests without a right answer, refusals included, of both loops.
//! * **broken**: tunnels that were not begun, or whose echo or end did not come back.
//! * **change**: from asking to the answer that the new process has taken over; of HAProxy the signal alone.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::{self, FrontEnd, Load, Server, Site};
use crate::load::{LoadPlan, LoadResult, Pacing, Requests, Stream};

use super::super::judge::{at_least, at_most, median, ratio};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, drive, workload};
use super::service::Service;
use super::tunnels::{self, Tunnels};
use super::{
    BESIDE, Changed, ChangesExperiment, Figures, WARM_UP, auto, change_figures, estimated, haproxy,
    load_figures, repeat, site,
};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "upgrade",
    about: "a hundred hand-overs to a new process under kept connections, connections per request and tunnels: what is refused or reset",
    source: "design goals",
    needs: "namespaces (root); haproxy for its arms",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const AUTO: &str = "auto";
const UPGRADED: &str = "auto, upgraded";
const HAPROXY_RELOADED: &str = "haproxy, reloaded";

const SITE: &str = "site";
const NODES: usize = workload::NODES;
const KEPT: u32 = 16;
const PER_REQUEST: u32 = 8;
/// Clients of closed loops rest so long on the average.
const THINK: Duration = Duration::from_millis(50);
const TUNNELS: usize = 20;
const TUNNEL_SITE: &str = "tunnel";
const EVERY: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Hand-overs in a run.
fn hand_overs(scale: Scale) -> f64 {
    scale.pick(20.0, 100.0)
}

fn length(scale: Scale) -> Duration {
    // A little more than the hand-overs need, for those that are late.
    scale.pick(Duration::from_secs(8), Duration::from_secs(32))
}

fn all() -> Vec<Changed> {
    vec![
        auto(),
        auto().each(UPGRADED, EVERY),
        haproxy(),
        haproxy().each(HAPROXY_RELOADED, EVERY),
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
    let echo = tunnels::start_echo(place)?;
    let mut front = start(cluster, changed, &echo)?;
    let per_request = drive::run_load(cluster, &load(lab.scale, &front, true))?;
    let kept = drive::run_load(cluster, &load(lab.scale, &front, false))?;
    let begin = clock::now() + WARM_UP;
    let end = begin + length(lab.scale);
    let address = front.address;
    let (took, tunnels) = std::thread::scope(|scope| {
        let clients = cluster.clients();
        let run = move || tunnels::run(TUNNELS, address, TUNNEL_SITE, end);
        let tunnels = scope.spawn(move || clients.inside(run));
        clock::sleep_until(begin);
        let took = match changed.every {
            None => Ok(Vec::new()),
            Some(every) => repeat(every, end, || Ok(front.hand_over(place)?)),
        };
        let tunnels = tunnels.join();
        let tunnels = tunnels.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (took, tunnels)
    });
    let (took, tunnels) = (took?, tunnels?);
    let results = [kept.wait()?, per_request.wait()?];
    if changed.every.is_none()
        && let Some(why) = front.ended()
    {
        return Err(ExperimentError::Unfit(why));
    }
    Ok(figures(&results, &tunnels, &took, &front))
}

/// A front-end before the nodes and the echo.
fn start(
    cluster: &Cluster,
    changed: &Changed,
    echo: &Service,
) -> Result<FrontEnd, ExperimentError> {
    let echo = Server {
        name: "echo".into(),
        address: echo.address(),
        load: Load::None,
        agent_check: None,
    };
    let tunnels = Site::of(TUNNEL_SITE, vec![echo]);
    let sites = vec![site(SITE, 0..NODES, changed, cluster)?, tunnels];
    let kind = &changed.arm.kind;
    Ok(front::start_to_change(
        cluster.front(),
        kind,
        sites,
        cluster,
    )?)
}

fn figures(
    results: &[LoadResult; 2],
    tunnels: &Tunnels,
    took: &[Duration],
    front: &FrontEnd,
) -> Figures {
    let both = LoadResult {
        streams: results.iter().flat_map(|it| it.streams.clone()).collect(),
        ..LoadResult::default()
    };
    let mut table = load_figures(&both.total());
    table.extend(change_figures(took));
    table.extend([
        ("tunnels", (tunnels.whole + tunnels.broken()) as f64),
        ("tunnels_failed", tunnels.broken() as f64),
        ("processes_at_end", front.processes().len() as f64),
    ]);
    let raw = json!({
        "errors": both.total().errors, "tunnels_broken": tunnels.broken,
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
    LoadPlan {
        targets: vec![front.address],
        streams: vec![Stream {
            site: SITE.into(),
            pacing: Pacing::Closed {
                clients,
                think: THINK,
            },
            requests: Requests::Single {
                path: "/work?cpu=1ms&bytes=1024".into(),
            },
            header: None,
        }],
        warm_up: WARM_UP,
        length: length(scale),
        timeout: TIMEOUT,
        connection_per_request: per_request,
        ..LoadPlan::default()
    }
}

fn findings(measured: &Measured, scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let own = |metric| median(table, UPGRADED, metric);
    let theirs = |metric| median(table, HAPROXY_RELOADED, metric);
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: vec![
            at_least(
                "hand-overs in a run".into(),
                own("changes"),
                hand_overs(scale),
            ),
            at_most("requests lost, auto upgraded".into(), own("failed"), 0.0),
            at_most(
                "tunnels broken, auto upgraded".into(),
                own("tunnels_failed"),
                0.0,
            ),
            at_most(
                "requests lost, HAProxy reloaded".into(),
                theirs("failed"),
                0.0,
            ),
            at_most(
                "tunnels broken, HAProxy reloaded".into(),
                theirs("tunnels_failed"),
                0.0,
            ),
            at_most(
                "p99 of auto upgraded over auto".into(),
                ratio(table, UPGRADED, AUTO, "p99_ms"),
                1.2,
            ),
        ],
        notes: vec![format!(
            "{KEPT} clients keep their connections, {PER_REQUEST} make one per request, each rests {THINK:?} on the average; {TUNNELS} tunnels of a second at once."
        )],
        plots: vec![
            Sketch::bar("Requests lost", "failed", "requests"),
            Sketch::bar("Tunnels broken", "tunnels_failed", "tunnels"),
            Sketch::bar("p99 of all requests", "p99_ms", "ms"),
        ],
    }
}
