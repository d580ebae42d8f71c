//! The cluster and the load of the paper's experiments, on one machine.
//!
//! ```text
//! 8 nodes with 0.11 of a CPU each        paper 000: 8 back-ends with two CPUs each
//! a request = own cost of its file       log-normal, mean 0.7 ms CPU, cv 1.5, fixed per file
//!           + 2 ms CPU if this node does not have the file in its LRU cache
//! 2000 files, 200 in each node's cache; asked for in proportion to rank^-alpha
//! ```
//!
//! So a low alpha means many misses: dear, uneven requests, and more for a balancer to do. That is
//! the paper's own explanation of its Figure 5 ("temporal locality"). Clients are a closed
//! loop: with C clients and N nodes, random routing keeps about C / (C + N - 1) of the nodes'
//! capacity busy, since some nodes idle while others queue; a perfect balancer all of it.
//! With 32 clients and 8 nodes that leaves 22 % to gain, and less where the nodes are not the
//! bottleneck. The paper does not tell its number of clients.

use std::time::Duration;

use crate::cluster::{AgentPlan, CachePlan, ClusterPlan, NodePlan};
use crate::load::{Pacing, Requests, Size, Spread, Stream};

/// Nodes of the paper's cluster.
pub(super) const NODES: usize = 8;
/// Each node's share of one CPU: together they leave some of it to the system.
const SHARE: f64 = 0.11;
/// Files of a site.
const FILES: u32 = 2000;
/// Files in a node's cache.
const CACHED: u32 = 200;
/// What a file costs by itself, CPU microseconds.
const FILE_COST: Size = Size {
    mean: 700.0,
    spread: Spread::LogNormal { cv: 1.5 },
};
/// What fetching a file into the cache costs.
const MISS: Duration = Duration::from_millis(2);
/// Requests that a node works on at once; more wait in its server. Few enough that an agent can
/// look at the state of every thread each few milliseconds.
const WORKERS: u32 = 12;
/// Clients of a closed loop.
pub(super) const CLIENTS: u32 = 32;

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
    }
}
