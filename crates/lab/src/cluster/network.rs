//! Network namespaces: one for the front, with a bridge in it, and one for each node.
//!
//! ```text
//!  front namespace                          node namespace
//!  br0 10.77.0.1/24 ──── v0 ─── veth ─── eth0 10.77.0.10/24
//!        └────────────── v1 ─── veth ─── eth0 10.77.0.11/24 …
//! ```
//!
//! Nothing of it is in the machine's own namespace, so no address can clash with a real one and
//! no packet leaves the machine. Each step is checked before the next one: an interface that
//! did not come up is found here and not as a request that fails later.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::ClusterError;
use super::name::Stem;
use super::run::ip;

/// Where `ip netns` keeps namespaces.
pub(crate) const NAMESPACES: &str = "/run/netns";
/// Most nodes of a cluster: what the network has room for.
pub(crate) const NODES_MAX: usize = 200;
/// The front's interface and a node's.
const BRIDGE: &str = "br0";
const INTERFACE: &str = "eth0";
/// The first node's last octet.
const FIRST_NODE: u8 = 10;

/// Where the front-ends are.
pub(crate) const FRONT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// A node's address.
pub(crate) fn address(node: usize) -> Result<Ipv4Addr, ClusterError> {
    if node >= NODES_MAX {
        return Err(ClusterError::Plan(format!("more than {NODES_MAX} nodes")));
    }
    // Not more than the last octet has room for, as was just seen.
    Ok(Ipv4Addr::new(10, 77, 0, FIRST_NODE + node as u8))
}

/// A network namespace by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Its name, by which `ip` knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(NAMESPACES).join(&self.name)
    }

    fn make(stem: &Stem, what: &str) -> Result<Self, ClusterError> {
        let name = stem.name(what);
        ip(&name, &["netns", "add", &name])?;
        let made = Self { name };
        if !made.path().exists() {
            return Err(ClusterError::Missing(format!(
                "`ip netns add` did not make {}",
                made.path().display()
            )));
        }
        made.ip(&["link", "set", "lo", "up"])?;
        Ok(made)
    }

    fn ip(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        ip(&self.name, &[&["-n", &self.name], arguments].concat())
    }

    /// Gives the interface its address and starts it, and sees whether that is so.
    fn start(&self, interface: &str, address: Ipv4Addr) -> Result<(), ClusterError> {
        let cidr = format!("{address}/24");
        self.ip(&["addr", "add", &cidr, "dev", interface])?;
        self.ip(&["link", "set", interface, "up"])?;
        let told = self.ip(&["-o", "-4", "addr", "show", "dev", interface, "up"])?;
        if told.split_ascii_whitespace().any(|word| word == cidr) {
            Ok(())
        } else {
            Err(ClusterError::Missing(format!(
                "{interface} of {} is not up with {cidr}: `{}`",
                self.name,
                told.trim()
            )))
        }
    }
}

/// The front's namespace with its bridge.
pub(crate) fn front(stem: &Stem) -> Result<Namespace, ClusterError> {
    let front = Namespace::make(stem, "front")?;
    front.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    front.start(BRIDGE, FRONT)?;
    Ok(front)
}

/// A node's namespace, on the front's bridge.
pub(crate) fn node(
    stem: &Stem,
    front: &Namespace,
    node: usize,
    name: &str,
) -> Result<Namespace, ClusterError> {
    let made = Namespace::make(stem, name)?;
    let port = format!("v{node}");
    front.ip(&[
        "link", "add", &port, "type", "veth", "peer", "name", INTERFACE, "netns", &made.name,
    ])?;
    front.ip(&["link", "set", &port, "master", BRIDGE, "up"])?;
    made.start(INTERFACE, address(node)?)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_own_address() {
        assert_eq!(address(0).unwrap(), Ipv4Addr::new(10, 77, 0, 10));
        assert_eq!(
            address(NODES_MAX - 1).unwrap(),
            Ipv4Addr::new(10, 77, 0, 209)
        );
        assert!(address(NODES_MAX).is_err());
    }
}
