//! Sources of nodes: their tables, and what each is to the front-end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::topology::Capacity;
use tidegate_core::topology::discovered::DiscoveryLimits;
use tidegate_discover::SourceConfig;
use tidegate_remote::udp::Key;
use tidegate_remote::udp::key_file::Master;
use toml::de::DeValue;

use super::apis::{ConsulFile, KubernetesFile};
use super::file::{AGENT_PORT, CapacityFile, WEIGHT_MAX, WEIGHT_MIN, defaults};
use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, names, quoted, table, wrong_type};
use super::{NodeRead, UseRdma};

/// Time between two looks at a file, if nothing else is said.
pub(super) const FILE_REFRESH: Duration = Duration::from_secs(1);
/// The same for other sources: the longest.
pub(super) const REFRESH: Duration = Duration::from_secs(30);
/// How long an answer may take, if nothing else is said.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
const REFRESH_MIN: Duration = Duration::from_millis(100);
const REFRESH_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
const HOLD_MAX: Duration = Duration::from_secs(24 * 3600);
const NODES_MAX: u32 = 10_000;
/// Where resolvers are asked.
const DNS_PORT: u16 = 53;
/// Most sources.
pub(super) const SOURCES_MAX: usize = 1000;

table! {
    /// Where a site's nodes come from while the front-end runs, besides `[[node]]` ([discovery.md](discovery.md)): exactly one of
    /// `file`, `dns`, `kubernetes` and `consul`. A source that fails or answers nothing keeps its last good nodes.
    pub(crate) struct DiscoverFile {
        /// Its name: letters, digits, `.`, `-` and `_`. It stands in events, and before the addresses of nodes without a
        /// name.
        name: String;
        /// The site that its nodes serve.
        site: String;
        /// A file with nodes, as TOML or JSON, or in Prometheus' `file_sd` format. Relative to this file.
        file: Option<PathBuf> = None;
        /// A name in DNS: of A and AAAA records where `port` is given, of SRV records where it is not.
        dns: Option<String> = None;
        /// A service in Kubernetes.
        kubernetes: Option<KubernetesFile> = None;
        /// A service in Consul.
        consul: Option<ConsulFile> = None;
        /// dns: the port of all its addresses.
        port: Option<u32> = None, in Some(1)..=Some(65_535);
        /// Time between two questions. Not set: `1s` for a file. A name in DNS is asked for when its TTL is over, after this
        /// time at the latest; not set: `30s`. Kubernetes and Consul say by themselves what has changed.
        refresh: Option<Duration> = None, in Some(REFRESH_MIN)..=Some(REFRESH_MAX);
        /// How long an answer may take.
        timeout: Duration = TIMEOUT, in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// Weights of its nodes are multiplied by this; those without one have 1.
        weight: f32 = 1.0, in WEIGHT_MIN..=WEIGHT_MAX;
        /// What each of its nodes has of each resource, relative to the other nodes: `slbl` weighs what is free by it.
        capacity: CapacityFile = defaults();
        /// Share of its nodes that may go at once, one at least. What else an answer lacks goes when answers have
        /// lacked it for `hold`.
        max_drop: f64 = DiscoveryLimits::MAX_DROP, in 0.0..=1.0;
        /// For how long nodes beyond `max_drop` must be absent. A node that goes twice within about that time waits before it
        /// comes back.
        hold: Duration = DiscoveryLimits::HOLD, in Duration::ZERO..=HOLD_MAX;
        /// Most nodes; an answer with more is a failure.
        nodes: u32 = DiscoveryLimits::NODES_MAX as u32, in 1..=NODES_MAX;
        /// How the load of its nodes is read.
        load: DiscoverLoadFile = defaults();
    }
}

table! {
    /// How the load of a source's nodes is read.
    pub(crate) struct DiscoverLoadFile {
        /// `auto` is `rdma` where a key is given here or in `[load]`, which is `udp` on a host without an RDMA device and of nodes
        /// that serve nothing over RDMA; else `none`.
        transport: DiscoverTransportName = DiscoverTransportName::Auto;
        /// udp, rdma: the port of the agents, on their nodes' addresses.
        port: u32 = u32::from(AGENT_PORT), in 1..=65_535;
        /// udp, rdma: file with masters, or with the key of `key_name`, other than those of `[load]`. Relative to this file.
        key_file: Option<PathBuf> = None;
        /// udp, rdma: the name in the key that all its agents have. Not set: each has the key of its node's name.
        key_name: Option<String> = None;
    }
}

names! {
    /// Ways to read the load of nodes that are discovered.
    pub(crate) enum DiscoverTransportName as "transport" {
        /// The best that is configured.
        Auto = "auto",
        /// Asking the nodes' agents over UDP.
        Udp = "udp",
        /// Reading the agents' memory by RDMA, and asking them over UDP while that cannot be ([rdma.md](rdma.md)).
        Rdma = "rdma",
        /// Not at all.
        None = "none",
    }
}

table! {
    /// How host names are looked up: those of `[[discover]] dns`, and those in the `address` of a `[[node]]`.
    pub(crate) struct DnsFile {
        /// Resolvers to ask, like `10.0.0.2` (port 53) or `10.0.0.2:5353`. Empty: those of `/etc/resolv.conf`, and
        /// `/etc/hosts` before them.
        servers: Vec<At<Resolver>> = Vec::new();
    }
}

/// Where names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolver(pub(crate) SocketAddr);

impl Resolver {
    /// Reads `10.0.0.2`, `10.0.0.2:53`, `::1` or `[::1]:53`.
    fn parse(text: &str) -> Option<Self> {
        let ip = text.parse::<IpAddr>().ok();
        let address = ip.map(|ip| SocketAddr::new(ip, DNS_PORT));
        address.or_else(|| text.parse().ok()).map(Self)
    }
}

impl Setting for Resolver {
    fn kind() -> String {
        "an address, with or without a port".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::String(text) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        let parsed = Self::parse(text).filter(|it| it.0.port() != 0);
        if parsed.is_none() {
            let message = format!("bad address `{text}`");
            problems.push(
                Problem::new(raw.span(), message, "no resolver can be there").help(
                    "an IP address, and a port if it is another than 53, like \"10.0.0.2\" or \"[::1]:5353\"",
                ),
            );
        }
        parsed
    }

    fn encode(&self) -> Encoded {
        quoted(&self.0.to_string())
    }
}

/// A source of nodes, as the front-end has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeSource {
    /// What is asked, and how far it is believed.
    pub(crate) config: SourceConfig,
    /// The name of its nodes' site.
    pub(crate) site: String,
    /// What each has of each resource, relative to others.
    pub(crate) capacity: Capacity,
    /// How their load is read.
    pub(crate) read: ReadPlan,
}

/// How the load of nodes is read whose address is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReadPlan {
    /// Always so.
    Fixed(NodeRead),
    /// From an agent at the node's own address.
    Agent {
        /// Its port.
        port: u16,
        /// With which keys.
        keys: PlannedKeys,
        /// Whether its memory is read instead where that can be.
        rdma: UseRdma,
    },
}

/// The keys of nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlannedKeys {
    /// All have these.
    Same(Vec<Key>),
    /// Each has those of its name.
    Derived(Vec<Master>),
}

impl ReadPlan {
    /// Not at all.
    pub(crate) const NONE: Self = Self::Fixed(NodeRead::None);

    /// How the load of this node is read.
    pub(crate) fn of(&self, name: &str, ip: IpAddr) -> NodeRead {
        match self {
            Self::Fixed(read) => read.clone(),
            Self::Agent { port, keys, rdma } => NodeRead::Udp {
                rdma: *rdma,
                address: SocketAddr::new(ip, *port),
                keys: match keys {
                    PlannedKeys::Same(keys) => keys.clone(),
                    PlannedKeys::Derived(masters) => {
                        masters.iter().map(|it| it.derive(name).key).collect()
                    }
                },
            },
        }
    }
}

/// What the source of a node is called whose address is a host name: no source of the file has a blank in its name.
pub(crate) fn hosted_source(node: &str) -> String {
    format!("node {node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_is_asked_at_port_53_unless_another_is_given() {
        for (text, address) in [
            ("10.0.0.2", "10.0.0.2:53"),
            ("10.0.0.2:5353", "10.0.0.2:5353"),
            ("::1", "[::1]:53"),
            ("[::1]:5353", "[::1]:5353"),
        ] {
            let resolver = Resolver::parse(text).unwrap();
            assert_eq!(resolver.0.to_string(), address, "{text}");
        }
        for wrong in ["", "dns.internal", "10.0.0.2:", "[::1]", "10.0.0.2:53x"] {
            assert_eq!(Resolver::parse(wrong), None, "{wrong}");
        }
    }
}
