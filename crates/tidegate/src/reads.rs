//! How loads are read, as the driver and the admin interface see it: of the nodes that the cluster has now.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tidegate_core::director::{Director, Pace};
use tidegate_core::load::LoadTable;
use tidegate_core::topology::{Node, NodeId, Topology};
use tidegate_remote::RegionError;
use tidegate_remote::clock;
use tidegate_remote::privilege;
use tidegate_remote::reader::{
    NodeReadStatus, OneSided, ReadFault, Reader, ReaderError, ReaderHandle, ReaderOptions, Target,
    Transport,
};

use tidegate_proxy::{LoadReports, ReportCounts, ReportingNode};
use tidegate_reported::{AgentHeard, AgentSaid, ReportReader, ReportReaderHandle, ReportStatus};

use crate::config::{NodeRead, ReadPace, UseRdma};
use crate::models::ReadStatus;

/// What is wanted: how each node is read, by its name, and how often.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WantedReads {
    /// How; a node without an entry is not read.
    pub(crate) nodes: BTreeMap<String, NodeRead>,
    /// Time between two reads of a node, at least.
    pub(crate) interval: Duration,
    /// How often reads are needed.
    pub(crate) pace: ReadPace,
}

/// A node that may be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadNode<'a> {
    /// Its place in the load table.
    pub(crate) id: NodeId,
    /// Which of the nodes that have had its place.
    pub(crate) generation: u32,
    /// Its name.
    pub(crate) name: &'a str,
}

impl<'t> ReadNode<'t> {
    /// The nodes of a cluster.
    pub(crate) fn all(topology: &'t Topology) -> Vec<Self> {
        let node = |(id, node): (NodeId, &'t Node)| ReadNode {
            id,
            generation: node.generation,
            name: &node.name,
        };
        topology.members().map(node).collect()
    }
}

/// The reader, once there is anything to read.
#[derive(Debug)]
pub(crate) struct Reads {
    table: Arc<LoadTable>,
    options: ReaderOptions,
    reader: OnceLock<ReaderHandle>,
    /// What asks other programs, once there is one to ask.
    reports: OnceLock<ReportReaderHandle>,
    /// What takes in what nodes say with their responses, where there are any.
    responses: Option<Arc<LoadReports>>,
    known: Mutex<Known>,
}

/// What is read now.
#[derive(Debug, Default)]
struct Known {
    /// Names by place.
    names: Vec<String>,
    /// By place, whether an operator has asked for RDMA.
    rdma: Vec<bool>,
    /// Of each node that is read through shared memory, the name of that.
    shared: Vec<Option<PathBuf>>,
    nodes: u32,
    interval: Duration,
    pace: ReadPace,
}

impl Reads {
    /// Starts to read what is wanted of these nodes.
    pub(crate) fn start(
        wanted: &WantedReads,
        nodes: &[ReadNode<'_>],
        options: ReaderOptions,
        table: &Arc<LoadTable>,
    ) -> Result<Self, ReaderError> {
        Self::start_with(wanted, nodes, options, table, None)
    }

    /// The same where nodes' responses are seen.
    pub(crate) fn start_with(
        wanted: &WantedReads,
        nodes: &[ReadNode<'_>],
        options: ReaderOptions,
        table: &Arc<LoadTable>,
        responses: Option<Arc<LoadReports>>,
    ) -> Result<Self, ReaderError> {
        let reads = Self {
            table: Arc::clone(table),
            options,
            responses,
            ..Self::default()
        };
        reads.follow(wanted, nodes, 0)?;
        Ok(reads)
    }

    /// Reads what is wanted of these nodes, those of this version of the cluster, from the reader's next slot on. One
    /// thread calls it.
    pub(crate) fn follow(
        &self,
        wanted: &WantedReads,
        nodes: &[ReadNode<'_>],
        version: u64,
    ) -> Result<(), ReaderError> {
        let read = |node: &ReadNode<'_>| wanted.nodes.get(node.name).unwrap_or(&NodeRead::None);
        let targets = nodes.iter().filter_map(|node| target(node, read(node)));
        let targets: Vec<_> = targets.collect();
        let mut known = Known {
            nodes: targets.len() as u32,
            interval: wanted.interval,
            pace: wanted.pace,
            ..Known::default()
        };
        for node in nodes {
            let place = node.id.index();
            if known.names.len() <= place {
                known.names.resize(place + 1, String::new());
                known.shared.resize(place + 1, None);
                known.rdma.resize(place + 1, false);
            }
            known.rdma[place] = read(node).wants_rdma();
            known.names[place] = node.name.into();
            if let NodeRead::Shm { path } = read(node) {
                known.shared[place] = Some(path.clone());
            }
        }
        self.follow_reports(wanted, nodes)?;
        self.follow_responses(wanted, nodes);
        match self.reader.get() {
            Some(reader) => {
                reader.set_targets(targets, wanted.interval, wanted.pace.budget, version)?;
            }
            None if targets.is_empty() => {}
            None => {
                let options = ReaderOptions {
                    interval: wanted.interval,
                    budget: wanted.pace.budget,
                    ..self.options
                };
                let reader = Reader::spawn(targets, Arc::clone(&self.table), options)?;
                // One thread sets it.
                self.reader.set(reader).ok();
            }
        }
        *self.known() = known;
        Ok(())
    }

    /// The version of the topology whose nodes are read: nothing is written for those that it lacks.
    pub(crate) fn followed(&self) -> u64 {
        self.reader.get().map_or(u64::MAX, ReaderHandle::followed)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most front-ends that any agent says read it; zero while none says so.
    pub(crate) fn readers(&self) -> u32 {
        self.reader.get().map_or(0, ReaderHandle::readers)
    }

    /// Why a node's load is not known; nothing for a node that is not read.
    pub(crate) fn trouble(&self, node: NodeId) -> Option<String> {
        if let Some(status) = self.reported(node) {
            return Some(status.fault.map_or_else(waiting, |fault| fault.to_string()));
        }
        if let Some(counts) = self.counts(node) {
            return Some(no_report(counts).map_or_else(waiting, str::to_owned));
        }
        let status = self.raw(node)?;
        Some(match status.last_error {
            Some(fault) => self.describe(node, fault, &status),
            None => waiting(),
        })
    }

    /// That a node answers to a key of others, if it does.
    pub(crate) fn wrong_key(&self, node: NodeId) -> Option<String> {
        let status = self.raw(node)?;
        let fault = status.last_error?;
        (fault == ReadFault::WrongKey).then(|| self.describe(node, fault, &status))
    }

    /// How the reads of a node go; nothing for a node that is not read.
    pub(crate) fn status(&self, node: NodeId) -> Option<ReadStatus> {
        if let Some(status) = self.reported(node) {
            return Some(of_report(&status));
        }
        if let Some(counts) = self.counts(node) {
            return Some(of_responses(counts));
        }
        let status = self.raw(node)?;
        Some(ReadStatus {
            reads: status.reads,
            unchanged: status.unchanged,
            timeouts: status.timeouts,
            torn: status.torn,
            implausible: status.implausible,
            restarts: status.restarts.into(),
            rtt_seconds: (!status.rtt.is_zero()).then_some(status.rtt.as_secs_f64()),
            key: status.key,
            last_error: status
                .last_error
                .map(|fault| self.describe(node, fault, &status)),
            no_rdma: self.no_rdma(node),
        })
    }

    /// Why a node is not read over RDMA that is to be.
    pub(crate) fn no_rdma(&self, node: NodeId) -> Option<String> {
        let why = match self.reader.get()?.one_sided(node)? {
            OneSided::Stands => return None,
            // Hosts without a device are the rule: only where it was asked for it is worth a word.
            OneSided::Impossible(_) if !self.wants_rdma(node) => return None,
            OneSided::Lacks(why) | OneSided::Impossible(why) => why,
        };
        Some(why.map_or_else(
            || "it has not been tried yet".to_owned(),
            |why| why.to_string(),
        ))
    }

    /// Whether a node for which an operator has asked for RDMA is read so; or why not, once that is known.
    pub(crate) fn asked_rdma(&self, node: NodeId) -> Option<Result<(), String>> {
        if !self.wants_rdma(node) {
            return None;
        }
        match self.reader.get()?.one_sided(node)? {
            OneSided::Stands => Some(Ok(())),
            OneSided::Lacks(why) | OneSided::Impossible(why) => Some(Err(why?.to_string())),
        }
    }

    /// Whether an operator has asked for RDMA at this node.
    fn wants_rdma(&self, node: NodeId) -> bool {
        let known = self.known();
        known.rdma.get(node.index()).copied().unwrap_or_default()
    }

    /// What nodes' agents have said that is new since this was called last.
    pub(crate) fn poll_agents(&self) -> Vec<AgentSaid> {
        let reports = self.reports.get();
        reports.map_or_else(Vec::new, ReportReaderHandle::poll_agents)
    }

    /// How a node's agent is heard; nothing for a node without one.
    pub(crate) fn agent(&self, node: NodeId) -> Option<AgentHeard> {
        self.reported(node)?.agent
    }

    /// Nodes that are read.
    pub(crate) fn nodes(&self) -> u32 {
        self.known().nodes
    }

    /// Time between two reads of a node, at least.
    pub(crate) fn shortest(&self) -> Duration {
        self.known().interval
    }

    /// Whether nodes are always read as often as that.
    pub(crate) fn is_constant(&self) -> bool {
        self.known().pace.constant
    }

    /// Time between two reads of a node, as of now.
    pub(crate) fn interval(&self) -> Duration {
        let now = self.reader.get().map(ReaderHandle::interval);
        now.filter(|now| !now.is_zero()).unwrap_or(self.shortest())
    }

    /// Reading this often is enough from now on; when the director is to think next.
    pub(crate) fn follow_pace(&self, director: &Director) -> Duration {
        let (shortest, constant) = {
            let known = self.known();
            (known.interval, known.pace.constant)
        };
        let pace = match constant {
            true => Pace::constant(shortest),
            false => director.pace(shortest),
        };
        if let Some(reader) = self.reader.get() {
            reader.set_pace(pace.read);
        }
        pace.tick
    }

    /// CPU time of the reading thread so far; nothing without one.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let stats = self.reader.get()?.stats();
        Some(stats.cpu_user + stats.cpu_system)
    }

    /// Whether the reader runs at real-time priority, or why not; nothing without a reader.
    pub(crate) fn realtime(&self) -> Option<Result<(), String>> {
        let realtime = self.reader.get()?.realtime();
        Some(realtime.map_err(ToString::to_string))
    }

    /// A fault as a person would say it.
    fn describe(&self, node: NodeId, fault: ReadFault, status: &NodeReadStatus) -> String {
        match fault {
            // It has answered to its key before: a restart of its agent looks like this.
            ReadFault::Timeout if status.key.is_some() => "no answer in time: is the agent running?",
            ReadFault::Timeout => {
                "no answer in time: is the agent running, and is its key this node's, from our master? (a node without one: load = { transport = \"none\" })"
            }
            ReadFault::Unreachable => "the system cannot send to it, or open what it publishes",
            ReadFault::Untrusted => {
                return format!(
                    "{} belongs to another user and is not believed: run the agent as root or as the front-end's user; if it is \
                     no agent's, remove it",
                    self.shared_name(node)
                );
            }
            ReadFault::Denied => {
                return format!(
                    "permission to {} is denied: an agent hands its load to root and to its own user only, so run both \
                     as the same user",
                    self.shared_name(node)
                );
            }
            ReadFault::Absent => "nothing is published there",
            ReadFault::Torn => "the record changes each time while it is read",
            ReadFault::Record => "what is published there is no load record",
            ReadFault::WrongKey => {
                let known = self.known();
                let name = |node: NodeId| known.names.get(node.index()).map_or("", String::as_str);
                let whose = match status.key_of {
                    Some(other) => format!("the agent there has the key of node {}", name(other)),
                    None => "the answer was made with a key that is not this node's".into(),
                };
                return format!(
                    "wrong key: {whose}; give it the one that `tidegate key derive` makes from our master for {}",
                    name(node)
                );
            }
            ReadFault::Refused => "the agent refuses the read",
            ReadFault::Implausible(why) => {
                return format!("the record is refused, it cannot be true: {why}");
            }
        }
        .into()
    }

    /// Under which name a node's load is in shared memory.
    fn shared_name(&self, node: NodeId) -> String {
        let known = self.known();
        let path = known.shared.get(node.index()).and_then(Option::as_deref);
        path.map_or_else(
            || "its shared memory".into(),
            |path| path.display().to_string(),
        )
    }

    /// Asks other programs for the loads that are wanted from them.
    fn follow_reports(
        &self,
        wanted: &WantedReads,
        nodes: &[ReadNode<'_>],
    ) -> Result<(), ReaderError> {
        let targets = nodes
            .iter()
            .filter_map(|node| match wanted.nodes.get(node.name)? {
                NodeRead::Reported(source) => Some(tidegate_reported::Target {
                    node: node.id,
                    generation: node.generation,
                    source: (**source).clone(),
                }),
                NodeRead::None
                | NodeRead::Udp { .. }
                | NodeRead::Shm { .. }
                | NodeRead::Responses { .. } => None,
            });
        let targets: Vec<_> = targets.collect();
        if self.reports.get().is_none() {
            if targets.is_empty() {
                return Ok(());
            }
            let table = Arc::clone(&self.table);
            let reader = ReportReader::spawn(table, clock::now, || {
                // What it needs none for, it does as well with those that it has.
                privilege::keep(privilege::NONE).ok();
            });
            let reader = reader.map_err(|error| RegionError::Io {
                what: "start the thread that asks for loads",
                error,
            })?;
            // One thread sets it.
            self.reports.set(reader).ok();
        }
        if let Some(reader) = self.reports.get() {
            reader.set_targets(targets);
        }
        Ok(())
    }

    /// Takes in what these nodes say with their responses, and no others.
    fn follow_responses(&self, wanted: &WantedReads, nodes: &[ReadNode<'_>]) {
        let Some(responses) = &self.responses else {
            return;
        };
        let reporting = |node: &ReadNode<'_>| match wanted.nodes.get(node.name)? {
            NodeRead::Responses { period } => Some(ReportingNode {
                node: node.id,
                generation: node.generation,
                period: *period,
            }),
            NodeRead::None
            | NodeRead::Udp { .. }
            | NodeRead::Shm { .. }
            | NodeRead::Reported(_) => None,
        };
        let nodes: Vec<_> = nodes.iter().filter_map(reporting).collect();
        responses.set_nodes(&nodes);
    }

    fn counts(&self, node: NodeId) -> Option<ReportCounts> {
        self.responses.as_ref()?.counts(node)
    }

    fn reported(&self, node: NodeId) -> Option<ReportStatus> {
        self.reports.get()?.status(node)
    }

    fn raw(&self, node: NodeId) -> Option<NodeReadStatus> {
        self.reader.get()?.status(node)
    }
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            table: Arc::new(LoadTable::new(0, 0)),
            options: ReaderOptions::default(),
            reader: OnceLock::new(),
            reports: OnceLock::new(),
            responses: None,
            known: Mutex::default(),
        }
    }
}

/// What the reader is given of a node, if it is read.
fn target(node: &ReadNode<'_>, read: &NodeRead) -> Option<Target> {
    let transport = match read {
        NodeRead::None | NodeRead::Reported(_) | NodeRead::Responses { .. } => return None,
        NodeRead::Udp {
            address,
            keys,
            rdma,
        } => Transport::Udp {
            address: *address,
            keys: keys.clone(),
            rdma: *rdma != UseRdma::Never,
        },
        NodeRead::Shm { path } => Transport::Shm { path: path.clone() },
    };
    Some(Target {
        node: node.id,
        generation: node.generation,
        transport,
    })
}

fn waiting() -> String {
    "nothing newer has come".into()
}

/// Why nothing is known by a node's responses; nothing if they tell.
fn no_report(counts: ReportCounts) -> Option<&'static str> {
    match (counts.reports, counts.malformed) {
        (0, 0) => Some("no response has had a load report yet"),
        (0, _) => Some("what its responses report cannot be understood"),
        _ => None,
    }
}

fn of_responses(counts: ReportCounts) -> ReadStatus {
    ReadStatus {
        reads: counts.reports,
        unchanged: 0,
        timeouts: 0,
        torn: 0,
        implausible: counts.malformed + counts.implausible,
        restarts: 0,
        rtt_seconds: None,
        key: None,
        last_error: no_report(counts).map(str::to_owned),
        no_rdma: None,
    }
}

fn of_report(status: &ReportStatus) -> ReadStatus {
    ReadStatus {
        reads: status.answered,
        unchanged: 0,
        timeouts: status.timeouts,
        torn: 0,
        implausible: status.implausible,
        restarts: 0,
        rtt_seconds: (!status.took.is_zero()).then_some(status.took.as_secs_f64()),
        key: None,
        last_error: status.fault.as_ref().map(ToString::to_string),
        no_rdma: None,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::load::Rung;
    use tidegate_core::time::Timestamp;

    use super::*;

    #[test]
    fn shared_memory_that_is_refused_is_told_with_its_name_and_the_remedy() {
        let reads = Reads::default();
        reads.known().shared = vec![None, Some("/dev/shm/n2".into())];
        let status = NodeReadStatus {
            rung: Rung::None,
            reads: 0,
            unchanged: 0,
            timeouts: 0,
            consecutive_faults: 1,
            torn: 0,
            implausible: 0,
            restarts: 0,
            last_error: None,
            key: None,
            key_of: None,
            rtt: Duration::ZERO,
            progress_at: Timestamp::ZERO,
        };
        let said = |fault| reads.describe(NodeId(1), fault, &status);
        let untrusted = said(ReadFault::Untrusted);
        assert!(
            untrusted.starts_with(
                "/dev/shm/n2 belongs to another user and is not believed: run the agent as "
            ),
            "{untrusted}"
        );
        let denied = said(ReadFault::Denied);
        assert!(
            denied.starts_with("permission to /dev/shm/n2 is denied: ")
                && denied.ends_with("run both as the same user"),
            "{denied}"
        );
    }
}
