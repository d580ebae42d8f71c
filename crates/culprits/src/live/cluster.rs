//! The cluster as discovery sees it: which sites, nodes and resources there are now, and what their counters say.
//!
//! ```text
//! Topology ────────┐
//! ResourceNodes ───┴─> Members: owners (a site, or a node that is a resource) and the sources of each
//! LoadTable ───────┐
//! ResourceNodes ───┴─> counters of a source
//! ```
//!
//! A place in a table may be given to another node, so a source is a place, its generation and its address: what the
//! next one at that place reports is another source.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::load::{Counters, LoadTable};
use tidegate_core::topology::{NodeId, SiteId, Topology};

use super::front_end::{ResourceNodes, ResourceSet};

/// In which table a source has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    /// That of the nodes that serve sites.
    Nodes,
    /// That of the nodes that are resources alone.
    Resources,
}

/// One node's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    pub(super) table: Table,
    pub(super) place: u32,
    pub(super) generation: u32,
    pub(super) address: SocketAddr,
}

/// Whose use is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// All nodes of a site.
    Site(SiteId),
    /// A node that is a resource alone, by its place and generation.
    Resource(u32, u32),
}

/// An owner as it is now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) owner: Owner,
    /// Its name.
    pub(super) name: String,
    /// Its nodes, each with its name.
    pub(super) sources: Vec<(Source, String)>,
}

/// Which members there are, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) topology: Arc<Topology>,
    resources: Arc<ResourceSet>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) topology: Arc<ArcSwap<Topology>>,
    pub(super) table: Arc<LoadTable>,
    pub(super) resources: Arc<dyn ResourceNodes>,
}

impl Cluster {
    /// Which members there are now.
    pub(super) fn members(&self) -> Members {
        Members {
            topology: self.topology.load_full(),
            resources: self.resources.nodes(),
        }
    }

    /// Changes with every change of them.
    pub(super) fn version(&self) -> (u64, u64) {
        (self.topology.load().version, self.resources.nodes().version)
    }

    /// What is read at a place now.
    pub(super) fn counters(&self, source: Source) -> Option<Counters> {
        match source.table {
            Table::Nodes => self.table.counters(NodeId(source.place)),
            Table::Resources => self.resources.counters(source.place),
        }
    }
}

impl Members {
    /// See [`Cluster::version`].
    pub(super) fn version(&self) -> (u64, u64) {
        (self.topology.version, self.resources.version)
    }

    /// All that is served: sites with their nodes, and nodes that are resources alone.
    pub(super) fn owned(&self) -> Vec<Owned> {
        let sites = self.topology.served();
        let sites = sites.map(|(id, site)| Owned {
            owner: Owner::Site(id),
            name: site.name.clone(),
            sources: self.nodes_of(id),
        });
        let resources = self.resources.nodes.iter().map(|node| {
            let source = Source {
                table: Table::Resources,
                place: node.place,
                generation: node.generation,
                address: node.address,
            };
            Owned {
                owner: Owner::Resource(node.place, node.generation),
                name: node.name.clone(),
                sources: vec![(source, node.name.clone())],
            }
        });
        sites.chain(resources).collect()
    }

    fn nodes_of(&self, site: SiteId) -> Vec<(Source, String)> {
        let nodes = self.topology.members();
        let own = nodes.filter(|(_, node)| node.site == site);
        own.map(|(id, node)| {
            let source = Source {
                table: Table::Nodes,
                place: id.0,
                generation: node.generation,
                address: node.address,
            };
            (source, node.name.clone())
        })
        .collect()
    }
}
