//! Begins to read loads, of nodes and of resources.

use std::sync::Arc;

use tidegate_proxy::Shared;
use tidegate_remote::reader::{ReaderError, ReaderOptions};

use crate::config::{NodeRead, ReadPace, Resource};
use crate::failure::Failure;
use crate::reads::{ReadNode, Reads, WantedReads};
use crate::resources::Resources;

/// Begins to read the loads of nodes, and of those that are resources alone.
pub(super) fn loads(
    nodes: Vec<NodeRead>,
    resources: &[Resource],
    (options, pace): (ReaderOptions, ReadPace),
    shared: &Arc<Shared>,
) -> Result<(Arc<Reads>, Arc<Resources>), Failure> {
    let failed = |error: ReaderError| Failure::Failed(error.to_string());
    let reads = start_reads(nodes, options, pace, shared).map_err(failed)?;
    let resources = Resources::start(resources, options).map_err(failed)?;
    Ok((reads, Arc::new(resources)))
}

/// Starts to read the nodes' loads, each in the way that the configuration has in its place.
fn start_reads(
    reads: Vec<NodeRead>,
    options: ReaderOptions,
    pace: ReadPace,
    shared: &Shared,
) -> Result<Arc<Reads>, ReaderError> {
    let topology = shared.topology.load();
    let names = topology.nodes.iter().map(|node| node.name.clone());
    let wanted = WantedReads {
        nodes: names.zip(reads).collect(),
        interval: options.interval,
        pace,
    };
    let nodes = ReadNode::all(&topology);
    let responses = Some(Arc::clone(&shared.load_reports));
    Reads::start_with(&wanted, &nodes, options, &shared.table, responses).map(Arc::new)
}
