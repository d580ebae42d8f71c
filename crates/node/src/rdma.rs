//! The agent's record over RDMA, beside UDP: which memory is served, and when front-ends read it.
//!
//! | rung | what a READ finds | made by |
//! |---|---|---|
//! | `kernel_record` | the map of the kernel's timer | the kernel: no process runs for it |
//! | all others | the agent's region | the sampler, at the shortest interval while a queue pair is in use |
//!
//! READs leave no trace at the node. So front-ends say each 500 ms that they read, and the sampler goes by that.
//!
//! Failure case: no device, or one that cannot do it. The agent says why and serves UDP alone.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_remote::rdma::{RdmaNode, RdmaNodeOptions};
use tidegate_remote::{RegionError, RegionMemory};

use crate::config::AgentConfig;
use crate::kernel::Kernel;

/// What has become of it.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// What connects front-ends; none where nothing is served.
    pub(crate) node: Option<RdmaNode>,
    /// How it stands, if it is wanted: a sentence.
    pub(crate) said: Option<String>,
    /// The same, where it is wanted and cannot be.
    pub(crate) fault: Option<String>,
}

/// Serves the record over RDMA, if that is wanted.
pub(crate) fn serve(
    config: &AgentConfig,
    listen: SocketAddr,
    kernel: &Kernel,
    memory: &Arc<RegionMemory>,
) -> Served {
    let Some(queue_pairs_max) = config.rdma else {
        return Served::default();
    };
    let options = RdmaNodeOptions {
        // Which of a host's devices: the one at the address that it is asked at.
        address: Some(listen.ip()).filter(|ip| !ip.is_unspecified()),
        queue_pairs_max,
        words: false,
    };
    let node = match kernel {
        Kernel::Publishes(publisher) => match publisher.record_map() {
            Ok(map) => RdmaNode::with_records(map, memory, &options),
            Err(error) => Err(RegionError::Io {
                what: "share the kernel's record",
                error: std::io::Error::other(error),
            }),
        },
        Kernel::Answers(_) | Kernel::Nothing => RdmaNode::new(memory, &options),
    };
    let said = Some(describe(&node));
    match node {
        Ok(node) => Served {
            node: Some(node),
            said,
            fault: None,
        },
        Err(_) => Served {
            node: None,
            fault: said.clone(),
            said,
        },
    }
}

/// In words.
fn describe(served: &Result<RdmaNode, RegionError>) -> String {
    match served {
        Ok(node) => format!(
            "Front-ends with its key may read it over RDMA: {} at {}{}.",
            node.device().name(),
            node.device().address(),
            match node.device().is_in_software() {
                true => ", which the kernel's CPUs stand in for",
                false => "",
            }
        ),
        Err(why) => format!("Nothing is served over RDMA: {why}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_device_it_is_said_why_and_nothing_is_served() {
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        // No interface has this address, so no device either.
        let listen = ([192, 0, 2, 1], 9901).into();
        let mut config = AgentConfig::new(Vec::new());
        let unwanted = serve(&config, listen, &Kernel::Nothing, &memory);
        assert!(unwanted.said.is_none() && unwanted.fault.is_none());
        config.rdma = Some(256);
        let served = serve(&config, listen, &Kernel::Nothing, &memory);
        assert!(served.node.is_none());
        let said = served.said.unwrap();
        let expected = "Nothing is served over RDMA: no RDMA device: ";
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(served.fault, Some(said));
    }
}
