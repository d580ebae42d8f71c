//! What experiments with bursts have in common: sites that share eight nodes, the arms, and a run of them.
//!
//! ```text
//! 3 sites with 3, 3 and 2 nodes, 6 at most      4 sites with 2 nodes each, 5 at most
//! rigid              nodes stay                 over-provisioned   each site has the most that it could ever get
//! paper's rule       T = 100 ms, S = 10 ms, the least loaded node, moved nodes take their full share at once
//! ours               as `[reconfigure]` has it where nothing else is said; but for `moves_max`, which bursts exceed
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::{self, FrontEnd};

use super::super::ExperimentError;
use super::burst_clients::{AskedFile, BurstPlan, BurstResult, BurstRun};
use super::{Changed, auto, moving, site};

pub(super) const RIGID: &str = "rigid";
pub(super) const OVER: &str = "over-provisioned";
pub(super) const PAPER: &str = "paper's rule";
pub(super) const OURS: &str = "ours";
pub(super) const CLIENTS: usize = 32;
/// A front-end moves nothing in its first second: it does not know yet what its sites usually use.
pub(super) const SETTLES: Duration = Duration::from_secs(2);
/// Requests per second of a node, about: what is planned with.
pub(super) const NODE_RATE: f64 = 280.0;
/// Longest run of one burst length.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
const BYTES: u32 = 1024;

/// Sites and their nodes, and the most that one gets.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) sites: &'static [(&'static str, Range<usize>)],
    pub(super) most: usize,
}

pub(super) const THREE_SITES: Shape = Shape {
    name: "3:3:2",
    sites: &[("alpha", 0..3), ("beta", 3..6), ("gamma", 6..8)],
    most: 6,
};

pub(super) const FOUR_SITES: Shape = Shape {
    name: "2:2:2:2",
    sites: &[
        ("alpha", 0..2),
        ("beta", 2..4),
        ("gamma", 4..6),
        ("delta", 6..8),
    ],
    most: 5,
};

impl Shape {
    /// Bursts of so many requests each, until each site has had one, and short ones several.
    pub(super) fn plan(&self, burst: u64) -> BurstPlan {
        BurstPlan {
            sites: self.sites.iter().map(|(name, _)| *name).collect(),
            files: Arc::new([AskedFile::of(BYTES)]),
            burst,
            requests: requests(burst, self.sites.len()),
            clients: CLIENTS,
            limit: LIMIT,
        }
    }
}

/// Requests of a run: each site has a burst, and short ones several.
pub(super) fn requests(burst: u64, sites: usize) -> u64 {
    burst * sites as u64 * (1024 / burst).max(1)
}

/// Nodes stay.
pub(super) fn rigid(name: &str) -> Changed {
    let mut arm = auto();
    arm.arm.name = name.into();
    arm
}

/// The rules that move nodes. Bounds are those of the shape.
pub(super) fn rules() -> [Changed; 2] {
    let paper = "history = \"100ms\"\nsensitivity = \"10ms\"\nchoice = \"least_loaded\"\nwarm_up = \"0s\"\nmoves_max = 1000";
    [
        moving(PAPER, paper, (1, 1)),
        moving(OURS, "moves_max = 1000", (1, 1)),
    ]
}

/// Nodes that an arm gives the site which has these: of over-provisioned sites each has the most that it could ever get.
pub(super) fn nodes_of(changed: &Changed, shape: &Shape) -> impl Fn(&Range<usize>) -> Range<usize> {
    let most = (changed.arm.name == OVER).then_some(shape.most);
    move |own| most.map_or_else(|| own.clone(), |most| 0..most)
}

/// A run of bursts with an arm, while something watches; `nodes` are those of the site that has these.
pub(super) fn run<T>(
    cluster: &Cluster,
    changed: &Changed,
    shape: &Shape,
    plan: BurstPlan,
    nodes: impl Fn(&Range<usize>) -> Range<usize>,
    watch: impl FnOnce(&FrontEnd, &BurstRun) -> Result<T, ExperimentError>,
) -> Result<(BurstResult, T), ExperimentError> {
    let place = cluster.front();
    let changed = changed.bounded((1, shape.most));
    let sites = shape.sites.iter();
    let sites = sites.map(|(name, own)| site(name, nodes(own), &changed, cluster));
    let sites = sites.collect::<Result<Vec<_>, _>>()?;
    let mut front = front::start_to_change(place, &changed.arm.kind, sites, cluster)?;
    clock::sleep_until(clock::now() + SETTLES);
    let run = BurstRun::new(plan, vec![front.address]);
    let clients = cluster.clients();
    let (result, watched) = std::thread::scope(|scope| {
        let all = scope.spawn(|| clients.inside(|| run.run()));
        let watched = watch(&front, &run);
        let result = all.join();
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, watched)
    });
    let result = result?;
    if let Some(why) = front.ended() {
        return Err(ExperimentError::Unfit(why));
    }
    Ok((result, watched?))
}
