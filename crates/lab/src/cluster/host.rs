//! A host apart from the others, for a front-end: its network is cut off when its cable is pulled.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::name::Stem;
use super::network::{self, Network};
use super::{ClusterError, Place};

/// Hosts that this process has made: names and addresses are not used again.
static SERIAL: AtomicUsize = AtomicUsize::new(0);

/// See the module. It goes with its cluster.
#[derive(Debug)]
pub struct Host {
    place: Place,
    network: Network,
    number: usize,
}

impl Host {
    /// Makes one on the bridge, behind so many nodes, with the front's control group and CPU.
    pub(super) fn make(
        stem: &Stem,
        network: &Network,
        nodes: usize,
        front: &Place,
    ) -> Result<Self, ClusterError> {
        let number = nodes + SERIAL.fetch_add(1, Ordering::Relaxed);
        let namespace = network.node(stem, number, &format!("host{number}"))?;
        Ok(Self {
            place: Place {
                namespace: Some(namespace),
                address: network::address(number)?.into(),
                ..front.clone()
            },
            network: network.clone(),
            number,
        })
    }

    /// Where its processes run.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Pulls its cable, or plugs it in.
    ///
    /// # Errors
    /// If `ip` does not.
    pub fn plug(&self, is_in: bool) -> Result<(), ClusterError> {
        self.network.plug(self.number, is_in)
    }
}
