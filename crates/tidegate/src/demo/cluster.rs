//! The demo's cluster and its load: what every policy is given, the same for all.
//!
//! Two sites on nodes of unequal size, antagonists on some, several front-ends. Every choice
//! is one that makes balancing matter and none favours a policy: sizes and antagonists are what
//! any shared cluster has, and no node's weight is given. With one front-end before equal
//! nodes, counting own requests is already optimal, and there would be nothing to see.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::admission::AdmissionConfig;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::{Capacity, ClusterSpec, NodeSpec, SiteId, SiteSpec};
use tidegate_emulator::antagonist as emulated;
use tidegate_sim::model::{Antagonist, Demand, Stream};

/// Front-ends, which do not talk to each other.
pub(super) const FRONT_ENDS: u32 = 6;
/// The policies that are compared, in the order in which they run.
pub(super) const POLICIES: [PolicyKind; 5] = [
    PolicyKind::RoundRobin,
    PolicyKind::LeastRequest,
    PolicyKind::PowerOfTwo,
    PolicyKind::Prequal,
    PolicyKind::Auto,
];
/// Offered load as a share of what antagonists leave of the nodes on the average.
const LOAD: f64 = 0.8;
/// Mean demand of a request before it is stretched for a slow machine.
const MEAN_DEMAND: Duration = Duration::from_millis(10);
/// Antagonists are on for this share of the time, this long at a stretch.
const ANTAGONIST_DUTY: f64 = 0.3;
const ANTAGONIST_SHORTEST: Duration = Duration::from_millis(200);
const ANTAGONIST_LONGEST: Duration = Duration::from_secs(2);

/// One site.
#[derive(Debug)]
pub(super) struct SitePlan {
    pub(super) name: &'static str,
    pub(super) host: &'static str,
}

/// One emulated node.
#[derive(Debug)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) site: SiteId,
    pub(super) cores: u32,
    pub(super) antagonist: Option<Antagonist>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) sites: Vec<SitePlan>,
    pub(super) nodes: Vec<NodePlan>,
    /// Demands are this many times longer and requests as many times rarer than on a fast
    /// machine: the same load for the emulated nodes, less for the machine that emulates them.
    pub(super) stretch: f64,
}

/// A request that will be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrival {
    /// When, since the start of the run.
    pub(super) at: Duration,
    pub(super) front_end: u32,
    pub(super) site: SiteId,
    /// CPU time that it wants.
    pub(super) demand: Duration,
}

impl Cluster {
    /// The demo's cluster, not stretched.
    pub(super) fn new() -> Self {
        let sites = vec![
            SitePlan {
                name: "shop",
                host: "shop.demo",
            },
            SitePlan {
                name: "blog",
                host: "blog.demo",
            },
        ];
        // Cores, and whether a neighbour runs there as well, by site.
        let sizes: [&[(u32, bool)]; 2] = [
            &[(4, true), (3, false), (2, true), (2, false)],
            &[(4, false), (4, true), (3, false), (2, true)],
        ];
        let mut nodes = Vec::new();
        for (site, sizes) in sizes.iter().enumerate() {
            for (index, (cores, shared)) in sizes.iter().enumerate() {
                nodes.push(NodePlan {
                    name: format!("{}-{}", sites[site].name, index + 1),
                    site: SiteId(site as u32),
                    cores: *cores,
                    antagonist: shared.then_some(Antagonist {
                        tasks: *cores,
                        duty: ANTAGONIST_DUTY,
                        shortest: ANTAGONIST_SHORTEST,
                        longest: ANTAGONIST_LONGEST,
                    }),
                });
            }
        }
        Self {
            sites,
            nodes,
            stretch: 1.0,
        }
    }

    /// Mean demand of a request.
    pub(super) fn mean_demand(&self) -> Duration {
        MEAN_DEMAND.mul_f64(self.stretch)
    }

    /// Requests per second for all sites.
    pub(super) fn rate(&self) -> f64 {
        let left: f64 = self.nodes.iter().map(NodePlan::left).sum();
        LOAD * left / self.mean_demand().as_secs_f64()
    }

    /// As the front-ends are configured: every node of the same weight.
    pub(super) fn spec(&self, policy: PolicyKind, addresses: &[SocketAddr]) -> ClusterSpec {
        let sites = self.sites.iter().map(|site| SiteSpec {
            name: site.name.into(),
            hosts: vec![site.host.into()],
            paths: Vec::new(),
            policy: PolicyConfig::new(policy),
            admission: AdmissionConfig::default(),
            health: Default::default(),
        });
        let nodes = self.nodes.iter().zip(addresses);
        let nodes = nodes.map(|(node, address)| NodeSpec {
            name: node.name.clone(),
            address: *address,
            site: node.site,
            weight: 1.0,
            capacity: Capacity::default(),
        });
        ClusterSpec {
            sites: sites.collect(),
            nodes: nodes.collect(),
            groups: Vec::new(),
            front_ends: FRONT_ENDS,
        }
    }

    /// Poisson arrivals for `length`; a seed gives the same ones every time.
    pub(super) fn arrivals(&self, seed: u64, length: Duration) -> Vec<Arrival> {
        let mut prng = Stream::Requests(0).prng(seed);
        let left: Vec<f64> = self.nodes.iter().map(NodePlan::left).collect();
        let all: f64 = left.iter().sum();
        let nodes = self.nodes.iter().zip(&left);
        let first: f64 = nodes
            .filter(|(node, _)| node.site == SiteId(0))
            .map(|(_, left)| left)
            .sum();
        let (gap, mean) = (1.0 / self.rate(), self.mean_demand().as_secs_f64());
        let mut arrivals = Vec::new();
        let mut at = prng.exponential(gap);
        while at < length.as_secs_f64() {
            arrivals.push(Arrival {
                at: Duration::from_secs_f64(at),
                front_end: prng.below(FRONT_ENDS as usize) as u32,
                site: SiteId(u32::from(prng.unit() * all >= first)),
                demand: Duration::from_secs_f64(Demand::Exponential.draw(mean, &mut prng)),
            });
            at += prng.exponential(gap);
        }
        arrivals
    }

    /// The antagonists, each with the number of its node.
    pub(super) fn antagonists(&self, seed: u64) -> Vec<(usize, emulated::Antagonist)> {
        let nodes = self.nodes.iter().enumerate();
        let antagonists = nodes.filter_map(|(node, plan)| {
            let Antagonist {
                tasks,
                duty,
                shortest,
                longest,
            } = plan.antagonist?;
            let seed = Stream::Antagonist(node as u32).prng(seed).bits();
            let bursty = emulated::Antagonist::Bursty {
                threads: tasks,
                duty,
                shortest,
                longest,
                seed,
            };
            Some((node, bursty))
        });
        antagonists.collect()
    }

    /// What was made, for people.
    pub(super) fn describe(&self, seed: u64) -> String {
        let mut text = format!(
            "cluster: {} sites on {} emulated nodes, behind {FRONT_ENDS} front-ends that do not \
             talk to each other\n",
            self.sites.len(),
            self.nodes.len()
        );
        for node in &self.nodes {
            let shared = node.antagonist.map_or(String::new(), |antagonist| {
                let duty = antagonist.duty * 100.0;
                let tasks = antagonist.tasks;
                format!(", shared with {tasks} antagonist tasks for {duty:.0} % of the time")
            });
            // Writing to a string cannot fail.
            writeln!(text, "  {:<7} {} CPUs{shared}", node.name, node.cores).ok();
        }
        let cores: u32 = self.nodes.iter().map(|node| node.cores).sum();
        write!(
            text,
            "nodes:   real HTTP servers on 127.0.0.1; their CPUs are virtual: requests share them \
             by processor sharing, computed in real time. Each publishes a load record \
             every 1 ms in shared memory\nload:    {:.0} requests/s (open loop, Poisson, seed \
             {seed}), {:.0} ms of CPU each on the average (exponential): {:.0} % of what \
             antagonists leave of the {cores} CPUs",
            self.rate(),
            self.mean_demand().as_secs_f64() * 1e3,
            LOAD * 100.0,
        )
        .ok();
        text
    }
}

impl NodePlan {
    /// CPUs that the antagonist leaves on the average.
    fn left(&self) -> f64 {
        let taken = self.antagonist.map_or(0.0, |antagonist| {
            antagonist.duty * f64::from(antagonist.tasks.min(self.cores))
        });
        f64::from(self.cores) - taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_arrivals_and_antagonists() {
        let cluster = Cluster::new();
        let length = Duration::from_secs(5);
        assert_eq!(cluster.arrivals(1, length), cluster.arrivals(1, length));
        assert_ne!(cluster.arrivals(1, length), cluster.arrivals(2, length));
        assert_eq!(cluster.antagonists(1), cluster.antagonists(1));
        assert_ne!(cluster.antagonists(1), cluster.antagonists(2));
    }

    #[test]
    fn a_stretched_load_is_the_same_share_of_the_capacity() {
        let demand = |cluster: &Cluster| -> f64 {
            let arrivals = cluster.arrivals(3, Duration::from_secs(100));
            let seconds: f64 = arrivals.iter().map(|a| a.demand.as_secs_f64()).sum();
            seconds / 100.0
        };
        let mut cluster = Cluster::new();
        let left: f64 = cluster.nodes.iter().map(NodePlan::left).sum();
        assert!((demand(&cluster) / left - LOAD).abs() < 0.02);
        cluster.stretch = 4.0;
        assert!((demand(&cluster) / left - LOAD).abs() < 0.04);
    }
}
