//! The cluster and the load of the paper's experiments, on one machine.
//!
//! ```text
//! 8 nodes with 0.10 of a CPU each        KLM-2005: 8 back-ends with two CPUs each
//! 16 processes of every front-end        KLM-2005: 16 front-ends
//! a request = own cost of its file       log-normal, mean 2 ms CPU, cv 1.5, fixed per file
//!           + 6 ms CPU if this node does not have the file in its LRU cache
//! 400 files, 40 in each node's cache; asked for in proportion to rank^-alpha
//! ```
//!
//! A request alone on a node takes 20 to 80 ms, as dynamic pages of the paper's time did: requests
//! must outlive the 50 ms between two reads, or load read that seldom says nothing of the load
//! that a request will meet. (With requests of a quarter of that, ULM was 6 % behind random here.)
//! A low alpha means many misses: dear, uneven requests, and more for a balancer to do. That is
//! the paper's own explanation of its Figure 5 ("temporal locality").
//!
//! Clients are a closed loop, and each request goes to one of the front-ends at random. With C
//! clients and N nodes random routing keeps C / (C + N - 1) of the nodes' capacity busy, since
//! some nodes idle while others queue; a perfect balancer all of it: with 24 and 8 there is 29 %
//! to gain. The paper does not tell its number of clients. Round robin by one front-end would be
//! nearly perfect here; by many that do not know of each other it is worth less, and the same becomes
//! of fewest connections. (With 8 processes round robin and the peers came out above all schemes of
//! the paper; with 16 its order is that of the paper.)

use std::time::Duration;

use crate::cluster::{AgentPlan, CachePlan, ClusterPlan, NodePlan};
use crate::load::{Pacing, Requests, Size, Spread, Stream};

use super::plan::Arm;

/// Nodes of the paper's cluster.
pub(super) const NODES: usize = 8;
/// Each node's share of one CPU. Together they leave a fifth of it to the agents beside the quotas,
/// to the nodes' network stacks and to the hypervisor: all of a share must be there to be used.
const SHARE: f64 = 0.10;
/// The label of all Zipf alphas of an experiment together.
pub(super) const ALL_ALPHAS: &str = "alpha=all";
/// Files of a site.
const FILES: u32 = 400;
/// Files in a node's cache.
const CACHED: u32 = 40;
/// What a file costs by itself, CPU microseconds.
const FILE_COST: Size = Size {
    mean: 2000.0,
    spread: Spread::LogNormal { cv: 1.5 },
};
/// What fetching a file into the cache costs.
const MISS: Duration = Duration::from_millis(6);
/// Requests that a node works on at once; more wait in its server. Few enough that an agent can
/// look at the state of every thread each few milliseconds.
const WORKERS: u32 = 12;
/// Clients of a closed loop.
pub(super) const CLIENTS: u32 = 24;
/// Processes of each front-end, which do not know of each other.
pub(super) const PROCESSES: u32 = 16;

/// Nodes of equal share with these agents.
#[must_use]
pub(super) fn cluster(agents: &[AgentPlan]) -> ClusterPlan {
    unequal(&[SHARE; NODES], agents)
}

/// Nodes of these shares with these agents.
#[must_use]
pub(super) fn unequal(shares: &[f64], agents: &[AgentPlan]) -> ClusterPlan {
    let node = |(index, share): (usize, &f64)| NodePlan {
        agents: agents.to_vec(),
        workers: WORKERS,
        cache: CachePlan {
            files: CACHED,
            hit: Duration::ZERO,
            miss: MISS,
        },
        seed: index as u64 + 1,
        ..NodePlan::new(format!("n{}", index + 1), *share)
    };
    ClusterPlan::new(shares.iter().enumerate().map(node).collect())
}

/// Files by popularity.
#[must_use]
pub(super) fn zipf(alpha: f64) -> Requests {
    Requests::Zipf {
        alpha,
        files: FILES,
        path: "/work?file={file}&cpu={cpu}us&bytes={bytes}".into(),
        size: Size::fixed(1024.0),
        cost: FILE_COST,
    }
}

/// Clients that ask as fast as they are answered.
#[must_use]
pub(super) fn clients(site: &str, clients: u32, alpha: f64) -> Stream {
    Stream {
        site: site.into(),
        pacing: Pacing::Closed {
            clients,
            think: Duration::ZERO,
        },
        requests: zipf(alpha),
        header: None,
    }
}

/// The arms as so many processes each.
#[must_use]
pub(super) fn processes(arms: Vec<Arm>) -> Vec<Arm> {
    arms.into_iter().map(|arm| arm.times(PROCESSES)).collect()
}
