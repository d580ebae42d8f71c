//! What nodes share beside their site.

use crate::ids::{NodeId, SiteId};

/// Nodes that share something which bears only so many requests: a database, say.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Most requests in flight at its nodes, of all front-ends together.
    pub limit: u32,
    /// The sites that share it, each with its weight. A site is in one group at most.
    pub members: Vec<(SiteId, f64)>,
    /// Nodes of theirs that do, each in this group only.
    pub nodes: Vec<NodeId>,
}
