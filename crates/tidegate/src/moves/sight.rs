//! What moves look at: the load of sites and of the nodes that can be moved.
//!
//! ```text
//! demand  runnable tasks and accept queues of the site's nodes with a fresh record, and requests that wait at this front-end
//! CPUs    of the same nodes
//! ```
//!
//! Failure case: a node without a fresh record is no part of either, so a site of which half is silent looks half as
//! large and as loaded as the other half.

use std::time::Duration;

use tidegate_core::admission::Priority;
use tidegate_core::load::{LoadTable, NodeLoad};
use tidegate_core::moves::choice::SiteLoad;
use tidegate_core::moves::mover::{NodeSight, ReadyNode, SiteSight};
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::quiet::Quiet;
use tidegate_core::moves::words::{NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Health, NodeId, SiteId, Topology};

/// Longest time of a request that is believed.
const SERVICE_TIME_MAX: Duration = Duration::from_secs(10);

/// Which places of the topology the numbers of moves mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    version: u64,
    sites: Vec<Option<SiteId>>,
    nodes: Vec<Option<NodeId>>,
}

impl Places {
    /// Those of a topology.
    pub(super) fn of(constitution: &Constitution, topology: &Topology) -> Self {
        let sites = (0..constitution.sites()).map(|number| {
            let rules = constitution.site(SiteNumber(number as u8))?;
            topology.site_named(&rules.name)
        });
        let nodes = (0..constitution.nodes()).map(|number| {
            let name = constitution.node_name(NodeNumber(number as u16))?;
            topology.node_named(name)
        });
        Self {
            version: topology.version,
            sites: sites.collect(),
            nodes: nodes.collect(),
        }
    }

    /// Whether they are those of this topology.
    pub(super) fn are_of(&self, topology: &Topology) -> bool {
        self.version == topology.version
    }

    /// What a node's word held when its load was last read, and when that was asked for.
    pub(super) fn first_word(
        &self,
        node: NodeNumber,
        table: &LoadTable,
    ) -> Option<(u64, Timestamp)> {
        let id = self.node(node)?;
        table.first_word(id)
    }

    /// The site that a node serves here.
    pub(super) fn site_of(&self, node: NodeNumber, topology: &Topology) -> Option<SiteNumber> {
        let id = self.node(node)?;
        self.site_number(topology.node(id).site)
    }

    /// The number of a site of the topology.
    pub(super) fn site_number(&self, site: SiteId) -> Option<SiteNumber> {
        let place = self.sites.iter().position(|it| *it == Some(site));
        place.map(|place| SiteNumber(place as u8))
    }

    /// What is seen of each site.
    pub(super) fn sites(
        &self,
        topology: &Topology,
        table: &LoadTable,
        now: Timestamp,
    ) -> Vec<SiteSight> {
        let mut all: Vec<_> = self.sites.iter().map(|_| SiteSight::default()).collect();
        for (site, sight) in self.sites.iter().zip(&mut all) {
            let Some(site) = *site else { continue };
            let waiting = Priority::ALL.map(|priority| table.waiting(site, priority));
            sight.load.demand = waiting.iter().sum::<u64>() as f64;
        }
        // One on its way serves neither site.
        for (id, node) in topology.members().filter(|(_, node)| !node.withheld) {
            let place = self.sites.iter().position(|it| *it == Some(node.site));
            let fresh = table.fresh(id, now);
            let (Some(place), Some(load)) = (place, fresh) else {
                continue;
            };
            let own = SiteLoad {
                demand: demand(&load),
                cpus: cpus(&load),
            };
            let sight = &mut all[place];
            sight.load.demand += own.demand;
            sight.load.cpus += own.cpus;
            sight.service_time = sight.service_time.max(service_time(&load));
        }
        all
    }

    /// What is seen of each node.
    pub(super) fn nodes(
        &self,
        topology: &Topology,
        table: &LoadTable,
        quiet: &[Quiet],
        now: Timestamp,
    ) -> Vec<NodeSight> {
        let ready = |id: NodeId| {
            let node = topology.node(id);
            let site = self.site_number(node.site).filter(|_| node.is_ready())?;
            let is_up = node.health == Health::Up;
            Some(ReadyNode { site, is_up })
        };
        let sight = |(id, quiet): (&Option<NodeId>, &Quiet)| {
            let load = id.and_then(|id| table.fresh(id, now));
            let ready = id.and_then(ready);
            let serves = ready.is_some_and(|it| it.is_up);
            NodeSight {
                cpus: load.map_or(0.0, |it| cpus(&it)),
                load: load.map_or(0.0, |it| demand(&it)),
                fresh: serves && load.is_some(),
                ready,
                agent: None,
                quiet_since: quiet.since(),
            }
        };
        self.nodes.iter().zip(quiet).map(sight).collect()
    }

    /// Takes in which nodes have requests of this front-end.
    pub(super) fn note_quiet(&self, table: &LoadTable, quiet: &mut Vec<Quiet>, now: Timestamp) {
        quiet.resize_with(self.nodes.len(), Quiet::default);
        for (id, quiet) in self.nodes.iter().zip(quiet) {
            match id {
                Some(id) => {
                    let own = table.own(*id);
                    quiet.on_look(own.dispatched, own.in_flight(), now);
                }
                None => *quiet = Quiet::default(),
            }
        }
    }

    /// The node's place in the topology.
    pub(super) fn node(&self, node: NodeNumber) -> Option<NodeId> {
        self.nodes.get(node.index()).copied().flatten()
    }
}

fn demand(load: &NodeLoad) -> f64 {
    let queue = match load.run_queue.is_nan() {
        true => load.runnable,
        false => load.run_queue,
    };
    known(queue) + known(load.accept_queue)
}

fn cpus(load: &NodeLoad) -> f64 {
    known(load.capacity)
}

fn service_time(load: &NodeLoad) -> Duration {
    Duration::try_from_secs_f64(known(load.request_time))
        .unwrap_or_default()
        .min(SERVICE_TIME_MAX)
}

/// A number that is not known counts for nothing.
fn known(value: f32) -> f64 {
    match value.is_finite() {
        true => f64::from(value.max(0.0)),
        false => 0.0,
    }
}
