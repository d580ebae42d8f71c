//! The loads of the nodes that servers are: read from their agents as a front-end reads them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::LoadTable;
use tidegate_core::steer::ServerDemand;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{NodeId, SoftLimits};
use tidegate_remote::reader::{ONE_SIDED_TIMEOUT, ReaderError, ReaderOptions};

use super::book::NodeDemand;
use crate::config::{FrontEnd, ReadPace};
use crate::reads::{ReadNode, Reads, WantedReads};

/// Shortest time between two reads: weights follow means of seconds.
const READ_INTERVAL: Duration = Duration::from_millis(10);

/// See the module.
pub(super) struct Loads {
    table: Arc<LoadTable>,
    reads: Reads,
    nodes: Vec<Node>,
    /// Between two turns of weights.
    every: Duration,
}

struct Node {
    name: String,
    address: SocketAddr,
    limits: SoftLimits,
    demand: ServerDemand,
    /// That nothing is known of it was said.
    said_unknown: bool,
}

impl Node {
    fn read_at(&self, place: usize) -> ReadNode<'_> {
        ReadNode {
            id: NodeId(place as u32),
            generation: 0,
            name: &self.name,
        }
    }
}

impl Loads {
    /// Starts to read the nodes of a configuration.
    pub(super) fn start(front_end: &FrontEnd, every: Duration) -> Result<Self, ReaderError> {
        let cluster = &front_end.cluster;
        let node = |it: &tidegate_core::topology::NodeSpec| Node {
            name: it.name.clone(),
            address: SocketAddr::new(it.address.ip().to_canonical(), it.address.port()),
            limits: cluster.sites[it.site.index()].health.soft_limits,
            demand: ServerDemand::default(),
            said_unknown: false,
        };
        let nodes: Vec<_> = cluster.nodes.iter().map(node).collect();
        let names = nodes.iter().map(|it| it.name.clone());
        let wanted = WantedReads {
            nodes: names.zip(front_end.reads.iter().cloned()).collect(),
            interval: front_end.interval.max(READ_INTERVAL),
            pace: ReadPace::default(),
        };
        let places = nodes.iter().enumerate();
        let read: Vec<_> = places.map(|(place, node)| node.read_at(place)).collect();
        let options = ReaderOptions {
            interval: wanted.interval,
            budget: None,
            timeout: front_end.timeout,
            one_sided_timeout: ONE_SIDED_TIMEOUT,
            realtime: front_end.realtime,
        };
        let table = Arc::new(LoadTable::new(nodes.len(), 0));
        let reads = Reads::start(&wanted, &read, options, &table)?;
        Ok(Self {
            table,
            reads,
            nodes,
            every,
        })
    }

    /// Takes what was read by now into the means.
    pub(super) fn sample(&mut self, now: Timestamp) {
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let load = self.table.fresh(NodeId(place as u32), now);
            // A weight that is set now acts at once, and shows in the load of the next turn.
            node.demand
                .on_load(&node.limits, load.as_ref(), self.every, now);
        }
    }

    /// What is known of each node, by its address.
    pub(super) fn demands(&self) -> BTreeMap<SocketAddr, NodeDemand> {
        let demand = |node: &Node| NodeDemand {
            demand: node.demand.mean(),
            at_limit: node.demand.crossing().is_some(),
            work: node.demand.work(),
        };
        let nodes = self.nodes.iter();
        nodes.map(|node| (node.address, demand(node))).collect()
    }

    /// What is to be said: which nodes have a load that is not known, and why.
    pub(super) fn events(&mut self) -> Vec<(&'static str, String)> {
        let mut events = Vec::new();
        for (place, node) in self.nodes.iter_mut().enumerate() {
            let is_unknown = node.demand.mean().is_none();
            if is_unknown == std::mem::replace(&mut node.said_unknown, is_unknown) {
                continue;
            }
            let name = &node.name;
            events.push(match is_unknown {
                true => {
                    let why = self.reads.trouble(NodeId(place as u32));
                    let why = why.unwrap_or_else(|| "the configuration does not read it".into());
                    let text = format!(
                        "{name}: its load is not known, it weighs as the mean of the others: {why}"
                    );
                    ("load_unknown", text)
                }
                false => ("load_known", format!("{name}: its load is known")),
            });
        }
        events
    }
}
