//! The agent's record over RDMA, beside UDP: which memory is served, and when front-ends read it.
//!
//! | rung | what a READ finds | made by |
//! |---|---|---|
//! | `kernel_record` | the map of the kernel's timer | the kernel: no process runs for it |
//! | all others | the agent's region | the sampler, at the shortest interval while a queue pair is in use |
//!
//! **Words** stay with UDP, unless they are to be served over RDMA and the device has atomics. Then the device alone
//! changes them (`tidegate_remote::rdma`), and the kernel's programs, whose words are their own, answer no datagrams.
//!
//! READs leave no trace at the node. So front-ends say each 500 ms that they read, and the sampler goes by that.
//!
//! Failure case: no device, or one that cannot do it. The agent says why and serves UDP alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tidegate_remote::rdma::{RdmaDemand, RdmaDevice, RdmaNode, RdmaNodeOptions, RdmaRefusals};
use tidegate_remote::{RegionError, RegionMemory};

use crate::config::AgentConfig;
use crate::kernel::Kernel;

/// What has become of it.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// What connects front-ends; none where nothing is served.
    pub(crate) node: Option<RdmaNode>,
    /// Whether front-ends read, and why offers are refused, both of that.
    pub(crate) demand: Option<RdmaDemand>,
    pub(crate) refusals: Option<RdmaRefusals>,
    /// How it stands, if it is wanted: a sentence.
    pub(crate) said: Option<String>,
    /// The same, where it is wanted and cannot be.
    pub(crate) fault: Option<String>,
}

/// Whether a card can serve the words, if it is to: known before the kernel is asked for anything.
pub(crate) fn words(config: &AgentConfig, listen: SocketAddr) -> Option<Result<(), String>> {
    if config.rdma.is_none() || !config.rdma_words {
        return None;
    }
    Some(match RdmaDevice::open(address(listen)) {
        Ok(device) if device.has_atomics() => Ok(()),
        Ok(device) => Err(format!("{} has no atomics", device.name())),
        Err(why) => Err(why.to_string()),
    })
}

/// Which of a host's devices: the one at the address that it is asked at; nothing where that is any.
pub fn address(listen: SocketAddr) -> Option<IpAddr> {
    Some(listen.ip()).filter(|ip| !ip.is_unspecified())
}

/// Serves the record over RDMA, if that is wanted, and the words where a card can.
pub(crate) fn serve(
    config: &AgentConfig,
    listen: SocketAddr,
    kernel: &Kernel,
    memory: &Arc<RegionMemory>,
    words: Option<Result<(), String>>,
) -> Served {
    let Some(queue_pairs_max) = config.rdma else {
        return Served::default();
    };
    let mut options = RdmaNodeOptions {
        address: address(listen),
        queue_pairs_max,
        words: words == Some(Ok(())),
        realtime: config.wants_realtime(),
        ..RdmaNodeOptions::default()
    };
    let mut lacking = words.and_then(Result::err);
    let mut node = make(kernel, memory, &options);
    if options.words
        && let Err(why) = &node
    {
        lacking = Some(why.to_string());
        options.words = false;
        node = make(kernel, memory, &options);
    }
    let (said, fault) = describe(&node, options.words, lacking.as_deref());
    let node = node.ok();
    Served {
        demand: node.as_ref().map(RdmaNode::demand),
        refusals: node.as_ref().map(RdmaNode::refusals),
        node,
        said: Some(said),
        fault,
    }
}

fn make(
    kernel: &Kernel,
    memory: &RegionMemory,
    options: &RdmaNodeOptions,
) -> Result<RdmaNode, RegionError> {
    match kernel {
        Kernel::Publishes(publisher) => match publisher.record_map() {
            Ok(map) => RdmaNode::with_records(map, memory, options),
            Err(error) => Err(RegionError::Io {
                what: "share the kernel's record",
                error: std::io::Error::other(error),
            }),
        },
        Kernel::Answers(_) | Kernel::Nothing => RdmaNode::new(memory, options),
    }
}

/// In words; and what is wanted and cannot be.
fn describe(
    served: &Result<RdmaNode, RegionError>,
    words: bool,
    lacking: Option<&str>,
) -> (String, Option<String>) {
    let node = match served {
        Ok(node) => node,
        Err(why) => {
            let said = format!("Nothing is served over RDMA: {why}.");
            let fault = format!("{said} It serves UDP alone.");
            return (said, Some(fault));
        }
    };
    let said = format!(
        "Front-ends with its key may read it{} over RDMA: {} at {}{}.",
        match words {
            true => " and change its words",
            false => "",
        },
        node.device().name(),
        node.device().address(),
        match node.device().is_in_software() {
            true => ", which the kernel's CPUs stand in for",
            false => "",
        }
    );
    let lacking = lacking.map(|why| format!("Its words are not served over RDMA: {why}."));
    match &lacking {
        Some(lacking) => (format!("{said} {lacking}"), Some(lacking.clone())),
        None => (said, None),
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
        config.rdma_words = true;
        let unwanted = serve(&config, listen, &Kernel::Nothing, &memory, None);
        assert!(unwanted.said.is_none() && unwanted.fault.is_none());
        assert_eq!(words(&config, listen), None);
        config.rdma = Some(256);
        let lacking = words(&config, listen);
        let why = lacking.clone().unwrap().unwrap_err();
        assert!(why.starts_with("no RDMA device: "), "{why}");
        let served = serve(&config, listen, &Kernel::Nothing, &memory, lacking);
        assert!(served.node.is_none());
        let said = served.said.unwrap();
        let expected = "Nothing is served over RDMA: no RDMA device: ";
        assert!(said.starts_with(expected), "{said}");
        assert_eq!(served.fault, Some(format!("{said} It serves UDP alone.")));
    }
}
