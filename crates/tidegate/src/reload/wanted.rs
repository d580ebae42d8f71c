//! What is wanted of the cluster: what the file says, and the nodes that others know of.
//!
//! A name is a node's once. Where several want it, this is the order: the file, what operators have added, then the
//! sources in the order of the file. A node that is left out is said, and comes in when its name is free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::topology::discovered::Announced;
use tidegate_core::topology::{
    Capacity, ClusterSpec, HealthConfig, NodeId, NodeSpec, Site, SiteId, SiteSpec, Topology,
};
use tidegate_proxy::SiteConfig;

use crate::config::discover::hosted_source;
use crate::config::file::ConfigFile;
use crate::config::setting::At;
use crate::config::throttle::Throttled;
use crate::config::{FrontEnd, NodeRead, NodeSource, ReadPace, ReadPlan, Resource, read_interval};
use crate::models::{AddedNode, LeftOutStatus, MovedNodes};
use crate::reads::WantedReads;

/// What the nodes that operators have added are called as a source.
pub(super) const OPERATORS: &str = "operators";
/// The same of the configuration file.
const FILE: &str = "the configuration file";

/// What a configuration wants of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) cluster: ClusterSpec,
    /// By site, in the order of the cluster's.
    pub(super) sites: Vec<SiteConfig>,
    pub(crate) reads: BTreeMap<String, NodeRead>,
    /// Time between two reads; none: what is affordable.
    interval: Option<Duration>,
    pace: ReadPace,
    pub(super) throttles: Vec<Throttled>,
    /// Nodes that serve nothing and are read.
    pub(super) resources: Vec<Resource>,
    /// Where more nodes come from.
    pub(super) sources: Vec<NodeSource>,
    /// How the load of nodes is read that operators add.
    usual_read: ReadPlan,
    /// By group: the names of the nodes that share it; none: all of its sites.
    group_nodes: Vec<Vec<String>>,
    /// Where clients connect: no node is there.
    listeners: Vec<SocketAddr>,
    /// The nodes whose address is a host name: their names are taken while they have none.
    hosted: BTreeSet<String>,
}

/// The nodes that others than the file know of.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherNodes {
    /// By source.
    pub(crate) announced: BTreeMap<String, Vec<Announced>>,
    /// By operators.
    pub(crate) added: Vec<AddedNode>,
    /// Nodes of the file that serve another site than it says: the site, by node.
    pub(crate) moved: MovedNodes,
    /// Weights that operators have set, by node.
    pub(crate) weights: BTreeMap<String, Weighed>,
}

/// A weight that an operator has set, until the process ends, or the node's owner says another one than it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weighed {
    /// What it weighs.
    pub(crate) weight: f32,
    /// What it weighs by its owner.
    pub(crate) instead_of: f32,
}

/// What is wanted in all.
#[derive(Clone, Debug)]
pub(crate) struct WholeCluster {
    /// With the nodes of others.
    pub(crate) wanted: Wanted,
    /// Which of these are left out and why.
    left_out: BTreeMap<String, String>,
    /// Of which source the others are.
    owners: BTreeMap<String, String>,
}

impl WholeCluster {
    /// What is left out and was not in the one before, in sentences.
    pub(super) fn newly_left_out(&self, before: Option<&Self>) -> Vec<String> {
        let known = |node: &String| before.is_some_and(|it| it.left_out.contains_key(node));
        let left_out = self.left_out.iter().filter(|(node, _)| !known(node));
        left_out
            .map(|(node, why)| format!("{node}: left out: {why}"))
            .collect()
    }

    /// What is left out.
    pub(super) fn left_out(&self) -> Vec<LeftOutStatus> {
        let left_out = self.left_out.iter().map(|(node, why)| LeftOutStatus {
            what: node.clone(),
            why: why.clone(),
        });
        left_out.collect()
    }

    /// Why this node of a source is left out, if it is.
    pub(super) fn why_left_out(&self, source: &str, node: &str) -> Option<&str> {
        self.left_out.get(&titled(source, node)).map(String::as_str)
    }

    /// What has the node of this name.
    pub(super) fn owner(&self, node: &str) -> Option<&str> {
        let owner = self.owners.get(node).map(String::as_str);
        owner.or_else(|| self.wanted.is_named(node).then_some(FILE))
    }
}

/// A node of another source than the file.
struct OtherNode<'a> {
    source: &'a str,
    name: &'a str,
    address: SocketAddr,
    site: &'a str,
    weight: f32,
    capacity: Capacity,
    read: &'a ReadPlan,
}

impl OtherNodes {
    /// Forgets the nodes of sources that there are no more, and weights of nodes that are gone or that their owner changed.
    pub(super) fn prune(&mut self, wanted: &Wanted) {
        if !self.weights.is_empty() {
            let weights = std::mem::take(&mut self.weights).into_iter();
            let nodes = wanted.with(self).wanted.cluster.nodes;
            let owners = |name: &str| nodes.iter().find(|it| it.name == name).map(|it| it.weight);
            let holds =
                |(name, weighed): &(String, Weighed)| owners(name) == Some(weighed.instead_of);
            self.weights = weights.filter(holds).collect();
        }
        let is_known = |name: &String| wanted.sources.iter().any(|it| it.config.name == *name);
        self.announced.retain(|name, _| is_known(name));
    }
}

impl Wanted {
    pub(crate) fn of(file: &ConfigFile, front_end: &FrontEnd) -> Self {
        let nodes = front_end.cluster.nodes.iter();
        let reads = nodes
            .map(|node| node.name.clone())
            .zip(front_end.reads.clone());
        Self {
            reads: reads.collect(),
            cluster: front_end.cluster.clone(),
            sites: front_end.sites.clone(),
            interval: file.load.interval.value,
            pace: front_end.pace,
            throttles: front_end.throttles.clone(),
            resources: front_end.resources.clone(),
            sources: front_end.sources.clone(),
            usual_read: front_end.usual_read.clone(),
            group_nodes: file.group.iter().map(|it| names(&it.nodes)).collect(),
            listeners: front_end.listeners.iter().map(|it| it.address).collect(),
            hosted: file.hosted().map(|it| it.name.value.clone()).collect(),
        }
    }

    /// The same with the nodes of others.
    pub(crate) fn with(&self, others: &OtherNodes) -> WholeCluster {
        let mut whole = WholeCluster {
            wanted: self.clone(),
            left_out: BTreeMap::new(),
            owners: BTreeMap::new(),
        };
        for (node, site) in &others.moved {
            whole.wanted.move_node(node, site);
        }
        for node in self.other_nodes(others) {
            match whole.wanted.place(&node, &whole.owners) {
                Ok(()) => drop(whole.owners.insert(node.name.into(), node.source.into())),
                Err(why) => drop(whole.left_out.insert(titled(node.source, node.name), why)),
            }
        }
        for node in &mut whole.wanted.cluster.nodes {
            let weighed = others.weights.get(&node.name);
            node.weight = weighed.map_or(node.weight, |it| it.weight);
        }
        whole
    }

    /// Whether a node serves this site by the file.
    pub(crate) fn serves(&self, node: &str, site: &str) -> bool {
        let mut nodes = self.cluster.nodes.iter();
        let node = nodes.find(|it| it.name == node);
        let own = node.and_then(|it| self.cluster.sites.get(it.site.index()));
        own.is_some_and(|it| it.name == site)
    }

    /// A node serves another site. One that is gone, or whose site is, stays as the file has it.
    fn move_node(&mut self, node: &str, site: &str) {
        let mut sites = self.cluster.sites.iter();
        let site = sites.position(|it| it.name == site);
        let mut nodes = self.cluster.nodes.iter();
        let place = nodes.position(|it| it.name == node);
        let (Some(site), Some(place)) = (site, place) else {
            return;
        };
        let (site, id) = (SiteId(site as u32), NodeId(place as u32));
        self.cluster.nodes[place].site = site;
        for group in &mut self.cluster.groups {
            group.nodes.retain(|it| *it != id);
        }
        self.join_groups(node, site, id);
    }

    /// A node shares what its site shares.
    fn join_groups(&mut self, node: &str, site: SiteId, id: NodeId) {
        for (group, names) in self.cluster.groups.iter_mut().zip(&self.group_nodes) {
            let is_member = group.members.iter().any(|(member, _)| *member == site);
            if is_member && (names.is_empty() || names.iter().any(|it| it == node)) {
                group.nodes.push(id);
            }
        }
    }

    /// Whether a node of this name is there, or is to be there.
    fn is_named(&self, node: &str) -> bool {
        self.reads.contains_key(node) || self.hosted.contains(node)
    }

    /// All of them, those first that have a name before others.
    fn other_nodes<'a>(&'a self, others: &'a OtherNodes) -> impl Iterator<Item = OtherNode<'a>> {
        let added = others.added.iter().map(|node| OtherNode {
            source: OPERATORS,
            name: &node.name,
            address: node.address,
            site: &node.site,
            weight: node.weight,
            capacity: Capacity::default(),
            read: &self.usual_read,
        });
        let announced = self.sources.iter().flat_map(|source| {
            let nodes = others.announced.get(&source.config.name);
            nodes.into_iter().flatten().map(|node| OtherNode {
                source: &source.config.name,
                name: &node.name,
                address: node.address,
                site: &source.site,
                weight: node.weight,
                capacity: source.capacity,
                read: &source.read,
            })
        });
        added.chain(announced)
    }

    /// Takes a node in, unless that is impossible.
    fn place(
        &mut self,
        node: &OtherNode<'_>,
        owners: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        if let Some(owner) = owners.get(node.name) {
            return Err(format!("a node of {owner} has its name"));
        }
        let is_its_own = node.source == hosted_source(node.name);
        if self.is_named(node.name) && !is_its_own {
            return Err(format!("a node of {FILE} has its name"));
        }
        if self.listeners.contains(&node.address) {
            return Err(format!("{} is our own listener", node.address));
        }
        let mut sites = self.cluster.sites.iter();
        let Some(site) = sites.position(|site| site.name == node.site) else {
            return Err(format!("there is no site {}", node.site));
        };
        let (site, id) = (SiteId(site as u32), NodeId(self.cluster.nodes.len() as u32));
        let read = node.read.of(node.name, node.address.ip());
        self.reads.insert(node.name.into(), read);
        self.cluster.nodes.push(NodeSpec {
            name: node.name.into(),
            address: node.address,
            site,
            weight: node.weight,
            capacity: node.capacity,
        });
        self.join_groups(node.name, site, id);
        Ok(())
    }

    pub(super) fn wanted_reads(&self) -> WantedReads {
        let reads: Vec<_> = self.reads.values().cloned().collect();
        WantedReads {
            nodes: self.reads.clone(),
            interval: read_interval(&reads, self.interval),
            pace: self.pace,
        }
    }

    /// What there is of each site, in the places that a topology gives them; new ones come behind those that it has.
    pub(super) fn by_place<T: Default>(
        &self,
        topology: &Topology,
        of: impl Fn(&SiteSpec, &SiteConfig) -> T,
    ) -> Vec<T> {
        let mut all: Vec<T> = topology.sites.iter().map(|_| T::default()).collect();
        let usual = SiteConfig::default();
        for (index, spec) in self.cluster.sites.iter().enumerate() {
            let value = of(spec, self.sites.get(index).unwrap_or(&usual));
            match topology.sites.iter().position(|it| it.name == spec.name) {
                Some(place) => all[place] = value,
                None => all.push(value),
            }
        }
        all
    }
}

/// A site that is served no more.
pub(super) fn gone(site: &Site) -> SiteSpec {
    SiteSpec {
        name: site.name.clone(),
        hosts: Vec::new(),
        paths: Vec::new(),
        policy: site.policy,
        admission: site.admission,
        health: HealthConfig::clone(&site.health),
    }
}

fn titled(source: &str, node: &str) -> String {
    format!("node {node} of {source}")
}

fn names(names: &[At<String>]) -> Vec<String> {
    names.iter().map(|name| name.value.clone()).collect()
}
