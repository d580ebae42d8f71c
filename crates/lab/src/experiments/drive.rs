//! What one run of an experiment starts: the processes of an arm, and the load beside them.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, Process, lab};
use crate::front::{self, FrontEnd, FrontKind, SiteTargets, TidegateArm};
use crate::load::{self, LoadPlan, Pacing, Stream};

use super::ExperimentError;
use super::plan::{Arm, Point};

/// Of all loads.
const SEED: u64 = 1;

/// A point's load, by way of these front-ends.
pub(super) fn load_plan(point: &Point, knee: Option<f64>, fronts: &[FrontEnd]) -> LoadPlan {
    LoadPlan {
        targets: fronts.iter().map(|front| front.address).collect(),
        streams: match knee {
            Some(knee) => scaled(&point.streams, knee),
            None => point.streams.clone(),
        },
        warm_up: point.warm_up,
        length: point.length,
        // The same requests for all arms and rounds: ranges show the system, not the draw.
        seed: SEED,
        timeout: point.timeout,
        windows: point.windows,
        count_by: point.count_by.clone(),
        sum_by: point.sum_by.clone(),
        slo: point.slo,
        rest: point.rest,
        ..LoadPlan::default()
    }
}

/// All processes of an arm, and what they need on the nodes.
pub(super) struct Fronts {
    pub(super) processes: Vec<FrontEnd>,
    _helpers: Vec<Process>,
}

/// Starts all processes of an arm before all nodes.
pub(super) fn start(
    arm: &Arm,
    point: &Point,
    cluster: &Cluster,
) -> Result<Fronts, ExperimentError> {
    let sites = sites(&point.streams, cluster);
    let processes = point.processes(arm);
    Ok(Fronts {
        _helpers: front::helpers(&arm.kind, cluster)?,
        processes: front::start_many(cluster.front(), &arm.kind, &sites, cluster, processes)?,
    })
}

/// Looks whether an arm that finds culprits itself does so, before it is measured.
pub(super) fn trial(arm: &Arm, point: &Point, cluster: &Cluster) -> Result<(), String> {
    let FrontKind::Tidegate(TidegateArm {
        automatic: true, ..
    }) = &arm.kind
    else {
        return Ok(());
    };
    let fronts = start(arm, point, cluster).map_err(|error| error.to_string())?;
    let mut admins = fronts.processes.iter().filter_map(|front| front.admin);
    admins.try_for_each(|admin| {
        let report = front::report(cluster.front(), admin);
        report
            .map(drop)
            .map_err(|why| format!("it finds no culprits by itself: {why}"))
    })
}

/// Every site of the streams, served by all nodes that serve.
pub(super) fn sites(streams: &[Stream], cluster: &Cluster) -> Vec<SiteTargets> {
    let names: BTreeSet<_> = streams.iter().map(|stream| stream.site.clone()).collect();
    let nodes = cluster.nodes().iter().enumerate();
    let nodes = nodes.filter(|(_, node)| node.server.is_web());
    let nodes: Vec<_> = nodes.map(|(index, _)| index).collect();
    let site = |name| SiteTargets {
        name,
        nodes: nodes.clone(),
    };
    names.into_iter().map(site).collect()
}

/// The streams with their rates, which are fractions, times `rps`.
pub(super) fn scaled(streams: &[Stream], rps: f64) -> Vec<Stream> {
    let scale = |stream: &Stream| {
        let mut stream = stream.clone();
        if let Pacing::Open { rate, .. } = &mut stream.pacing {
            *rate *= rps;
        }
        stream
    };
    streams.iter().map(scale).collect()
}

/// The load generator beside the front-ends.
pub(super) fn run_load(
    cluster: &Cluster,
    plan: &LoadPlan,
) -> Result<load::Running, ExperimentError> {
    let mut command = cluster.clients().command(lab()?);
    command.arg("load");
    Ok(load::start(command, plan)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_fractions_until_the_knee_is_known() {
        let stream = Stream {
            site: "shop".into(),
            pacing: Pacing::Open {
                rate: 0.9,
                arrivals: load::Arrivals::Poisson,
            },
            requests: load::Requests::zipf(0.5, 10, "/"),
            header: None,
        };
        let scaled = scaled(&[stream], 200.0);
        assert!(
            matches!(scaled[0].pacing, Pacing::Open { rate, .. } if (rate - 180.0).abs() < 1e-9)
        );
    }
}
