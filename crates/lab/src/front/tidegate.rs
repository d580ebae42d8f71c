//! Tidegate's configuration: one worker, a policy, and how each node's load is read.

use std::fmt::Write;
use std::time::Duration;

use super::layout::{Discovered, Layout, Load, Server, Site, push};

/// One way to run Tidegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TidegateArm {
    /// The arm's name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// The policy's knobs: key and value as TOML.
    pub parameters: Vec<(String, String)>,
    /// Which of the nodes' agents is read; none for policies that need none.
    pub agent: Option<&'static str>,
    /// Instead: daemons on the nodes that are asked over TCP this often.
    pub asks: Option<Duration>,
    /// Instead: an `snmpd` on each node, with our agent behind it, read this often.
    pub snmp: Option<Duration>,
    /// Time between two reads of a node.
    pub poll: Duration,
    /// What is let in, as TOML; none: as it comes.
    pub admission: Option<String>,
    /// Which agent of the nodes that serve nothing is read; none: they are not known to it.
    pub resources: Option<&'static str>,
    /// Classes that an operator throttles before the load begins.
    pub throttles: Vec<Throttled>,
    /// Whether it finds and throttles such classes itself.
    pub automatic: bool,
    /// How nodes move between sites; none: they do not.
    pub moving: Option<Box<Moving>>,
    /// Whether it writes [`ACCESS_LOG`] into its folder.
    pub logs: bool,
}

/// How nodes move between the sites of a front-end, whose answers then name the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Keys of `[reconfigure]` as TOML, one a line.
    pub keys: String,
    /// Least and most nodes of a site.
    pub bounds: (usize, usize),
}

/// What an operator says of a class: `tidegate throttle CLASS --concurrency N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// The class.
    pub class: &'static str,
    /// Most of its requests in flight.
    pub concurrency: u32,
}

impl TidegateArm {
    /// A policy without knobs that reads no load.
    #[must_use]
    pub fn blind(policy: &str) -> Self {
        Self {
            name: policy.into(),
            policy: policy.into(),
            parameters: Vec::new(),
            agent: None,
            asks: None,
            snmp: None,
            poll: POLL,
            admission: None,
            resources: None,
            throttles: Vec::new(),
            automatic: false,
            moving: None,
            logs: false,
        }
    }

    /// A policy that reads an agent at an interval.
    #[must_use]
    pub fn reading(name: &str, policy: &str, agent: &'static str, poll: Duration) -> Self {
        Self {
            name: name.into(),
            agent: Some(agent),
            poll,
            ..Self::blind(policy)
        }
    }

    /// How often it reads: the schemes of the paper as often as they are said to, all others as often as they need by default.
    fn pace(&self) -> String {
        let is_paper = self.policy == "k_least_loaded";
        match self.poll == POLL && !is_paper {
            true => String::new(),
            false => format!(
                "interval = \"{}\"\npace = \"constant\"\n",
                micros(self.poll)
            ),
        }
    }

    /// A policy that reads what daemons on the nodes answer over TCP, each asked at an interval.
    #[must_use]
    pub fn asking(name: &str, policy: &str, interval: Duration) -> Self {
        Self {
            name: name.into(),
            asks: Some(interval),
            ..Self::blind(policy)
        }
    }

    /// A policy that reads a stock `snmpd` of each node, with our agent behind it, at an interval.
    #[must_use]
    pub fn by_snmp(name: &str, policy: &str, interval: Duration) -> Self {
        Self {
            name: name.into(),
            snmp: Some(interval),
            ..Self::blind(policy)
        }
    }

    /// The same with admission control, as TOML.
    #[must_use]
    pub fn admitting(mut self, admission: &str) -> Self {
        self.admission = Some(admission.into());
        self
    }

    /// The same under another name, reading an agent of the nodes that serve nothing.
    #[must_use]
    pub fn watching(mut self, name: &str, agent: &'static str) -> Self {
        self.name = name.into();
        self.resources = Some(agent);
        self
    }

    /// The same with classes that an operator throttles.
    #[must_use]
    pub fn throttling(mut self, throttles: Vec<Throttled>) -> Self {
        self.throttles = throttles;
        self
    }

    /// The same, finding and throttling classes itself.
    #[must_use]
    pub fn automatic(mut self) -> Self {
        self.automatic = true;
        self
    }

    /// The same with an access log.
    #[must_use]
    pub fn logging(mut self) -> Self {
        self.logs = true;
        self
    }

    /// The same with a knob: key and value as TOML.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.parameters.push((key.into(), value.into()));
        self
    }
}

/// The name of its access log, if it writes one: JSON.
pub const ACCESS_LOG: &str = "access.log";
/// Between two looks at a node's record, by default.
const POLL: Duration = Duration::from_millis(1);
/// Shortest time that a read is given.
const READ_TIMEOUT_MIN: Duration = Duration::from_millis(5);

/// The file.
pub(super) fn config(layout: &Layout, arm: &TidegateArm) -> String {
    let per_source = layout
        .per_source
        .map(|rate| format!("per_source = {{ requests_per_second = {rate} }}\n"));
    let mut text = format!(
        "[admin]
address = \"{}\"

[[listener]]
address = \"{}\"

[limits]
workers = 1
{}
[cluster]
front_ends = {}

[load]
{}timeout = \"{}\"
",
        layout.admin,
        layout.listen,
        per_source.unwrap_or_default(),
        layout.front_ends,
        arm.pace(),
        micros(READ_TIMEOUT_MIN),
    );
    if let Some(secure) = &layout.secure {
        let (chain, key) = (&secure.certificate.chain, &secure.certificate.key);
        push(
            &mut text,
            format_args!(
                "\n[[listener]]\naddress = \"{}\"\ntls = {{ certificate = \"{}\", key = \"{}\" }}",
                secure.listen,
                chain.display(),
                key.display()
            ),
        );
    }
    if arm.automatic {
        push(&mut text, format_args!("\n[culprits]\nautomatic = true"));
    }
    if arm.logs {
        let file = layout.folder.join(ACCESS_LOG);
        push(
            &mut text,
            format_args!("\n[log]\naccess = \"json\"\nfile = \"{}\"", file.display()),
        );
    }
    if let Some(moving) = &arm.moving {
        let keys = &moving.keys;
        push(
            &mut text,
            format_args!(
                "\n[reconfigure]\nenabled = true\n{keys}\n\n[forwarded]\nnode_header = true"
            ),
        );
    }
    for it in &layout.sites {
        site(&mut text, layout, arm, it);
    }
    for resource in &layout.resources {
        node(&mut text, resource, "role = \"resource\"");
    }
    text
}

/// A site with its nodes.
fn site(text: &mut String, layout: &Layout, arm: &TidegateArm, site: &Site) {
    let host = if layout.single() { "*" } else { &site.name };
    let (name, policy) = (&site.name, policy(arm));
    push(
        text,
        format_args!("\n[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\npolicy = {policy}"),
    );
    let admission = arm.admission.as_deref();
    let admission = admission.unwrap_or("{ mode = \"off\" }");
    push(text, format_args!("admission = {admission}"));
    if layout.servers_http2 {
        push(text, format_args!("node_protocol = \"h2\""));
    }
    if let Some(moving) = &arm.moving {
        let (least, most) = moving.bounds;
        push(
            text,
            format_args!("nodes = {{ min = {least}, max = {most} }}"),
        );
    }
    for server in &site.servers {
        node(text, server, &format!("site = \"{name}\""));
    }
    if let Some(discovered) = &site.discovered {
        discover(text, name, discovered);
    }
}

/// A node that is there for something.
fn node(text: &mut String, server: &Server, what_for: &str) {
    push(
        text,
        format_args!(
            "\n[[node]]\nname = \"{}\"\naddress = \"{}\"\n{what_for}\nload = {}",
            server.name,
            server.address,
            load(&server.load)
        ),
    );
}

/// More nodes of a site. A source that is looked at is so each second; the others say what has changed.
fn discover(text: &mut String, site: &str, discovered: &Discovered) {
    let service = Discovered::SERVICE;
    let source = match discovered {
        Discovered::File(path) => format!("refresh = \"1s\"\nfile = \"{}\"", path.display()),
        Discovered::Dns { port, .. } => {
            let name = Discovered::NAME;
            format!("refresh = \"1s\"\ndns = \"{name}\"\nport = {port}")
        }
        Discovered::Kubernetes { server, token } => format!(
            "kubernetes = {{ namespace = \"lab\", service = \"{service}\", server = \"http://{server}\", token_file = \"{}\" }}",
            token.display()
        ),
        Discovered::Consul { server } => {
            format!("consul = {{ service = \"{service}\", server = \"http://{server}\" }}")
        }
    };
    push(
        text,
        format_args!("\n[[discover]]\nname = \"{site}\"\nsite = \"{site}\"\n{source}"),
    );
    if let Discovered::Dns { server, .. } = discovered {
        push(text, format_args!("\n[dns]\nservers = [\"{server}\"]"));
    }
}

fn policy(arm: &TidegateArm) -> String {
    let mut table = format!("{{ name = \"{}\"", arm.policy);
    for (key, value) in &arm.parameters {
        // Writing into a string cannot fail.
        write!(table, ", {key} = {value}").unwrap_or_default();
    }
    table + " }"
}

fn load(load: &Load) -> String {
    match load {
        Load::None => "{ transport = \"none\" }".into(),
        Load::Udp { address, key } => format!(
            "{{ transport = \"udp\", address = \"{address}\", key_file = \"{}\", key_name = \"{}\" }}",
            key.file.display(),
            key.node
        ),
        Load::Shm { path } => format!("{{ transport = \"shm\", path = \"{}\" }}", path.display()),
        Load::Snmp {
            address,
            community,
            period,
        } => format!(
            "{{ transport = \"snmp\", address = \"{address}\", community_file = \"{}\", period = \"{}\" }}",
            community.display(),
            micros(*period)
        ),
    }
}

fn micros(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::layout::sample;
    use super::*;

    #[test]
    fn a_resource_is_read_and_serves_nothing() {
        let mut layout = sample::single();
        layout.resources.push(Server {
            name: "db".into(),
            address: SocketAddr::from(([10, 77, 0, 10], 5432)),
            load: Load::Shm {
                path: "/dev/shm/db".into(),
            },
            agent_check: None,
        });
        let arm = TidegateArm::blind("least_request").watching("stock", "beside");
        let text = config(&layout, &arm);
        assert!(!text.contains("culprits"), "{text}");
        let node = "\n[[node]]\nname = \"db\"\naddress = \"10.77.0.10:5432\"\nrole = \"resource\"\n\
                    load = { transport = \"shm\", path = \"/dev/shm/db\" }\n";
        assert!(text.ends_with(node), "{text}");
        let text = config(&layout, &arm.automatic());
        assert!(
            text.contains("\n[culprits]\nautomatic = true\n\n[[site]]\n"),
            "{text}"
        );
    }

    #[test]
    fn a_listener_with_tls_and_nodes_that_speak_http2() {
        let text = config(&sample::secure(), &TidegateArm::blind("round_robin"));
        let listener = "\n[[listener]]\naddress = \"10.77.0.1:8443\"\n\
            tls = { certificate = \"/run/lab/site.pem\", key = \"/run/lab/site.key\" }\n\n[[site]]\n";
        assert!(text.contains(listener), "{text}");
        let limits = "workers = 1\nper_source = { requests_per_second = 200 }\n";
        assert!(text.contains(limits), "{text}");
        let site = "admission = { mode = \"off\" }\nnode_protocol = \"h2\"\n";
        assert!(text.contains(site), "{text}");
    }

    #[test]
    fn a_site_has_the_nodes_of_a_source() {
        let server = SocketAddr::from(([10, 77, 0, 1], 5300));
        let text = |discovered| {
            let mut layout = sample::single();
            layout.sites[0].servers.clear();
            layout.sites[0].discovered = Some(discovered);
            let text = config(&layout, &TidegateArm::blind("auto"));
            let (_, end) = text
                .split_once("\n[[discover]]\nname = \"shop\"\nsite = \"shop\"\n")
                .unwrap();
            end.to_owned()
        };
        let dns = text(Discovered::Dns { server, port: 8000 });
        assert_eq!(
            dns,
            "refresh = \"1s\"\ndns = \"shop.lab\"\nport = 8000\n\n[dns]\nservers = [\"10.77.0.1:5300\"]\n"
        );
        let token = "/run/lab/token".into();
        let kubernetes = text(Discovered::Kubernetes { server, token });
        assert_eq!(
            kubernetes,
            "kubernetes = { namespace = \"lab\", service = \"shop\", server = \"http://10.77.0.1:5300\", \
             token_file = \"/run/lab/token\" }\n"
        );
        let consul = text(Discovered::Consul { server });
        assert_eq!(
            consul,
            "consul = { service = \"shop\", server = \"http://10.77.0.1:5300\" }\n"
        );
    }

    #[test]
    fn nodes_move_within_bounds_if_the_arm_says_so() {
        let mut arm = TidegateArm::blind("auto");
        arm.moving = Some(Box::new(Moving {
            keys: "moves_max = 1000".into(),
            bounds: (1, 6),
        }));
        let text = config(&sample::layout(), &arm);
        for part in [
            "\n[reconfigure]\nenabled = true\nmoves_max = 1000\n",
            "\n[forwarded]\nnode_header = true\n",
            "admission = { mode = \"off\" }\nnodes = { min = 1, max = 6 }\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn two_sites_with_all_ways_to_read_load() {
        let arm = TidegateArm::reading("klm", "k_least_loaded", "beside", Duration::from_millis(1));
        let arm = arm.with("index", "\"klm\"").with("k", "4");
        assert_eq!(
            config(&sample::layout(), &arm),
            "[admin]
address = \"127.0.0.1:9900\"

[[listener]]
address = \"10.77.0.1:8080\"

[limits]
workers = 1

[cluster]
front_ends = 2

[load]
interval = \"1000us\"
pace = \"constant\"
timeout = \"5000us\"

[[site]]
name = \"shop\"
hosts = [\"shop\"]
policy = { name = \"k_least_loaded\", index = \"klm\", k = 4 }
admission = { mode = \"off\" }

[[node]]
name = \"shop-n1\"
address = \"10.77.0.11:8000\"
site = \"shop\"
load = { transport = \"udp\", address = \"10.77.0.11:9901\", key_file = \"/run/lab/n1.key\", key_name = \"n1\" }

[[node]]
name = \"shop-n2\"
address = \"10.77.0.12:8000\"
site = \"shop\"
load = { transport = \"shm\", path = \"/dev/shm/n2\" }

[[site]]
name = \"blog\"
hosts = [\"blog\"]
policy = { name = \"k_least_loaded\", index = \"klm\", k = 4 }
admission = { mode = \"off\" }

[[node]]
name = \"blog-n1\"
address = \"10.77.0.11:8000\"
site = \"blog\"
load = { transport = \"none\" }
"
        );
    }
}
