//! Network namespaces: one for the front, with a bridge in it, and one for each node.
//!
//! ```text
//!  front namespace                          node namespace
//!  br0 10.77.0.1/24 ──── v0 ─── veth ─── eth0 10.77.0.10/24
//!        └────────────── v1 ─── veth ─── eth0 10.77.0.11/24 …
//! ```
//!
//! Native XDP at a node runs on the CPU of the sender that hands the packet to its cable, which would be the
//! front's. Where nodes want it the bridge is in a namespace of its own, a switch: packets come to it
//! by a cable (`uplink`), whose receive steering moves them to the nodes' CPU before they go on.
//!
//! ```text
//!  front namespace               switch namespace                node namespace
//!  eth0 10.77.0.1/24 ─── veth ─── uplink ─ br0 ─ v0 ─── veth ─── eth0 10.77.0.10/24
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
/// The switch's port to the front.
const UPLINK: &str = "uplink";
/// The first node's last octet.
const FIRST_NODE: u8 = 10;

/// Where the front-ends are.
pub(crate) const FRONT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The bridge's port to a node.
fn port(node: usize) -> String {
    format!("v{node}")
}

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

    /// A cable from a port of the bridge here to another namespace.
    fn cable(&self, port: &str, to: &Self) -> Result<(), ClusterError> {
        self.ip(&[
            "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", &to.name,
        ])?;
        self.ip(&["link", "set", port, "master", BRIDGE, "up"])
            .map(drop)
    }

    /// What comes in at these interfaces is worked on by this CPU.
    fn steer(&self, interfaces: &str, cpu: u32) -> Result<(), ClusterError> {
        let mask = 1_u64 << cpu;
        let script = format!(
            "for queue in /sys/class/net/{interfaces}/queues/rx-*/rps_cpus; do echo {mask:x} > $queue || exit 1; done"
        );
        // This tool shows the namespace's own interfaces below /sys.
        let arguments = ["netns", "exec", &self.name, "sh", "-c", &script];
        ip(&self.name, &arguments).map(drop)
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

/// The front's namespace, and the one that the bridge is in.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) front: Namespace,
    pub(crate) bridge: Namespace,
}

impl Network {
    /// The bridge at the front.
    pub(crate) fn flat(stem: &Stem) -> Result<Self, ClusterError> {
        let front = Namespace::make(stem, "front")?;
        front.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        front.start(BRIDGE, FRONT)?;
        let bridge = front.clone();
        Ok(Self { front, bridge })
    }

    /// A switch between front and nodes.
    pub(crate) fn switched(stem: &Stem) -> Result<Self, ClusterError> {
        let front = Namespace::make(stem, "front")?;
        let bridge = Namespace::make(stem, "switch")?;
        bridge.ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        bridge.ip(&["link", "set", BRIDGE, "up"])?;
        bridge.cable(UPLINK, &front)?;
        front.start(INTERFACE, FRONT)?;
        Ok(Self { front, bridge })
    }

    /// A node's namespace, on the bridge.
    pub(crate) fn node(
        &self,
        stem: &Stem,
        node: usize,
        name: &str,
    ) -> Result<Namespace, ClusterError> {
        let made = Namespace::make(stem, name)?;
        self.bridge.cable(&port(node), &made)?;
        made.start(INTERFACE, address(node)?)?;
        Ok(made)
    }

    /// Pulls the cable of the node of this number, or plugs it in.
    pub(crate) fn plug(&self, node: usize, is_in: bool) -> Result<(), ClusterError> {
        let state = if is_in { "up" } else { "down" };
        self.bridge
            .ip(&["link", "set", &port(node), state])
            .map(drop)
    }

    /// Whether the bridge is a switch of its own.
    pub(crate) fn is_switched(&self) -> bool {
        self.front != self.bridge
    }

    /// Packets for a node are taken in by this CPU, as by a host of its own: at its interface, and
    /// where there is a switch, before that.
    pub(crate) fn receive_on(&self, node: &Namespace, cpu: u32) -> Result<(), ClusterError> {
        node.steer("*", cpu)?;
        match self.is_switched() {
            true => self.bridge.steer(UPLINK, cpu),
            false => Ok(()),
        }
    }
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
