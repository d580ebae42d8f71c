//! How loads are read, as the driver and the admin interface see it.

use std::path::{Display, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::LoadTable;
use tidegate_core::topology::NodeId;
use tidegate_remote::reader::{
    NodeReadStatus, ReadFault, Reader, ReaderError, ReaderHandle, ReaderOptions, Target, Transport,
};

use crate::config::NodeRead;
use crate::models::ReadStatus;

/// The reader, if there is anything to read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    handle: Option<ReaderHandle>,
    names: Vec<String>,
    /// Of each node that is read through shared memory, the name of that.
    shared: Vec<Option<PathBuf>>,
    nodes: u32,
    interval: Duration,
}

impl Reads {
    /// Starts to read what the configuration wants read of the nodes with these names.
    pub(crate) fn start(
        reads: &[NodeRead],
        names: Vec<String>,
        options: ReaderOptions,
        table: &Arc<LoadTable>,
    ) -> Result<Self, ReaderError> {
        let target = |(index, read): (usize, &NodeRead)| {
            let transport = match read {
                NodeRead::None => return None,
                NodeRead::Udp { address, keys } => Transport::Udp {
                    address: *address,
                    keys: keys.clone(),
                },
                NodeRead::Shm { path } => Transport::Shm { path: path.clone() },
            };
            let node = NodeId(index as u32);
            Some(Target {
                node,
                generation: 0,
                transport,
            })
        };
        let shared = reads.iter().map(|read| match read {
            NodeRead::Shm { path } => Some(path.clone()),
            NodeRead::None | NodeRead::Udp { .. } => None,
        });
        let shared = shared.collect();
        let targets: Vec<_> = reads.iter().enumerate().filter_map(target).collect();
        let nodes = targets.len() as u32;
        let handle = match nodes {
            0 => None,
            _ => Some(Reader::spawn(targets, Arc::clone(table), options)?),
        };
        Ok(Self {
            handle,
            names,
            shared,
            nodes,
            interval: options.interval,
        })
    }

    /// Most front-ends that any agent says read it; zero while none says so.
    pub(crate) fn readers(&self) -> u32 {
        self.handle.as_ref().map_or(0, ReaderHandle::readers)
    }

    /// Why a node's load is not known; nothing for a node that is not read.
    pub(crate) fn trouble(&self, node: NodeId) -> Option<String> {
        let status = self.raw(node)?;
        Some(match status.last_error {
            Some(fault) => self.describe(node, fault, &status),
            None => "nothing newer has come".into(),
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
        })
    }

    /// Nodes that are read.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Time between two reads of a node.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// CPU time of the reading thread so far; nothing without one.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let stats = self.handle.as_ref()?.stats();
        Some(stats.cpu_user + stats.cpu_system)
    }

    /// Whether the reader runs at real-time priority, or why not; nothing without a reader.
    pub(crate) fn realtime(&self) -> Option<Result<(), String>> {
        let realtime = self.handle.as_ref()?.realtime();
        Some(realtime.map_err(ToString::to_string))
    }

    /// A fault as a person would say it.
    fn describe(&self, node: NodeId, fault: ReadFault, status: &NodeReadStatus) -> String {
        match fault {
            // It has answered to its key before: a restart of its agent looks like this.
            ReadFault::Timeout if status.key.is_some() => "no answer in time: is the agent running?",
            ReadFault::Timeout => {
                "no answer in time: is the agent running, and is its key this node's, from our master?"
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
                let name = |node: NodeId| self.names.get(node.index()).map_or("", String::as_str);
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
    fn shared_name(&self, node: NodeId) -> Display<'_> {
        let path = self.shared.get(node.index()).and_then(Option::as_deref);
        path.unwrap_or(Path::new("its shared memory")).display()
    }

    fn raw(&self, node: NodeId) -> Option<NodeReadStatus> {
        self.handle.as_ref()?.status(node)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::load::Rung;
    use tidegate_core::time::Timestamp;

    use super::*;

    #[test]
    fn shared_memory_that_is_refused_is_told_with_its_name_and_the_remedy() {
        let reads = Reads {
            shared: vec![None, Some("/dev/shm/n2".into())],
            ..Reads::default()
        };
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
