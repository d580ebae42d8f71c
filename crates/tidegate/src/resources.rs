//! Resources: nodes that serve no requests and whose load is read all the same, like the host of a database
//! that stands behind the servers.
//!
//! They have a load table and a reader of their own: no policy sees them, nothing is sent to them, and
//! their losing touch changes nothing for any request. Read each [`INTERVAL`] or as seldom as nodes are:
//! the search for what loads them wants windows of a tenth of a second.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::{Counters, LoadTable, NodeLoad};
use tidegate_core::topology::NodeId;
use tidegate_remote::reader::{ReaderError, ReaderOptions};

use crate::config::Resource;
use crate::models::ReadStatus;
use crate::reads::{ReadNode, Reads, WantedReads};

/// Shortest time between two reads.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Resources {
    named: Vec<(String, SocketAddr)>,
    table: Arc<LoadTable>,
    reads: Reads,
}

impl Resources {
    /// Starts to read them.
    pub(crate) fn start(
        resources: &[Resource],
        options: ReaderOptions,
    ) -> Result<Self, ReaderError> {
        let table = Arc::new(LoadTable::new(resources.len(), 0));
        let named = (0..).map(NodeId).zip(resources);
        let nodes: Vec<_> = named
            .map(|(id, it)| ReadNode {
                id,
                generation: 0,
                name: &it.name,
            })
            .collect();
        let reads = resources.iter();
        let wanted = WantedReads {
            nodes: reads.map(|it| (it.name.clone(), it.read.clone())).collect(),
            interval: options.interval.max(INTERVAL),
        };
        Ok(Self {
            named: resources
                .iter()
                .map(|it| (it.name.clone(), it.address))
                .collect(),
            reads: Reads::start(&wanted, &nodes, options, &table)?,
            table,
        })
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    /// The counters of one, as they were read last.
    pub(crate) fn counters(&self, index: usize) -> Option<Counters> {
        self.table.counters(NodeId(index as u32))
    }

    /// Each with its name, its host, its last load and how the reads go.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (&str, SocketAddr, NodeLoad, Option<ReadStatus>)> {
        (0..).map(NodeId).zip(&self.named).map(|(id, (name, at))| {
            let load = self.table.last(id);
            (name.as_str(), *at, load, self.reads.status(id))
        })
    }
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            named: Vec::new(),
            table: Arc::new(LoadTable::new(0, 0)),
            reads: Reads::default(),
        }
    }
}
