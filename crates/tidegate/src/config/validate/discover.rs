//! Sources of nodes: `[[discover]]`, and nodes whose address is a host name.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::topology::discovered::DiscoveryLimits;
use tidegate_discover::{
    ConsulConfig, DnsConfig, FileConfig, KubernetesConfig, Naming, PortChoice, RecordKind,
    ServerUrl, SourceConfig, SourceKind,
};
use tidegate_remote::udp::key_file::{KeyFile, Master, is_name};

use super::super::address::{NodeAddress, is_host};
use super::super::apis::{ConsulFile, KubernetesFile};
use super::super::discover::{
    DiscoverFile, DiscoverLoadFile, DiscoverTransportName, FILE_REFRESH, NodeSource, PlannedKeys,
    REFRESH, ReadPlan, SOURCES_MAX, TIMEOUT, hosted_source,
};
use super::super::file::{AGENT_PORT, ConfigFile, NodeFile};
use super::super::problem::Problem;
use super::super::setting::{At, unknown_name};
use super::super::{NodeRead, UseRdma};
use super::Checker;
use super::read::derived;

impl Checker<'_> {
    /// The sources of nodes, those for single nodes first.
    pub(super) fn sources(
        &mut self,
        file: &ConfigFile,
        shared: Option<&[Master]>,
    ) -> Option<Vec<NodeSource>> {
        let names: Vec<_> = file.discover.iter().map(|it| &it.name).collect();
        self.names("source", &names);
        let hosted: Vec<_> = file.hosted().collect();
        let sources = hosted.len() + file.discover.len();
        if sources > SOURCES_MAX {
            let message = format!("more than {SOURCES_MAX} sources and host names to look up");
            self.problem(file.discover.place(), message, "too many");
        }
        let hosted = hosted.into_iter();
        let hosted: Vec<_> = hosted.map(|it| self.hosted(it, file, shared)).collect();
        let sources = file.discover.iter();
        let sources: Vec<_> = sources.map(|it| self.source(it, file, shared)).collect();
        hosted.into_iter().chain(sources).collect()
    }

    fn source(
        &mut self,
        source: &At<DiscoverFile>,
        file: &ConfigFile,
        shared: Option<&[Master]>,
    ) -> Option<NodeSource> {
        let site = &source.site;
        let known = file.site.iter().any(|it| it.name.value == site.value);
        if !known {
            let names = file.site.iter().map(|it| it.name.value.as_str());
            let problem = unknown_name(site.place(), "site", &site.value, names);
            self.problems.push(problem);
        }
        let read = self.read_plan(source, file, shared);
        let config = SourceConfig {
            name: source.name.value.clone(),
            kind: self.kind(source, file)?,
            naming: Naming::Prefix(source.name.value.clone()),
            weight: source.weight.value,
            limits: DiscoveryLimits {
                max_drop: source.max_drop.value,
                hold: source.hold.value,
                nodes_max: source.nodes.value as usize,
            },
        };
        Some(NodeSource {
            config,
            site: site.value.clone(),
            capacity: source.capacity.value.capacity(),
            read: read?,
        })
    }

    /// What is asked: one thing.
    fn kind(&mut self, source: &At<DiscoverFile>, file: &ConfigFile) -> Option<SourceKind> {
        let kinds = [
            ("file", source.file.at.clone()),
            ("dns", source.dns.at.clone()),
            ("kubernetes", source.kubernetes.at.clone()),
            ("consul", source.consul.at.clone()),
        ];
        let mut set = kinds.iter().filter_map(|(_, at)| at.clone());
        let (first, second) = (set.next(), set.next());
        let name = &source.name.value;
        match (first, second) {
            (None, _) => {
                let message = format!("source `{name}` has nothing to ask");
                let problem = Problem::new(
                    source.name.place(),
                    message,
                    "needs `file`, `dns`, `kubernetes` or `consul`",
                );
                self.problems.push(problem);
                return None;
            }
            (Some(first), Some(second)) => {
                let message = format!("source `{name}` is two things");
                let problem = Problem::new(second, message, "and this")
                    .context(first, "this")
                    .help("make a [[discover]] of each");
                self.problems.push(problem);
                return None;
            }
            (Some(_), None) => {}
        }
        self.means_nothing(source);
        let timeout = source.timeout.value;
        if let Some(path) = &source.file.value {
            return self.watched_file(source, path, timeout);
        }
        if let Some(service) = &source.kubernetes.value {
            return self.kubernetes(service, timeout);
        }
        if let Some(service) = &source.consul.value {
            return self.consul(service, timeout);
        }
        let host = source.dns.value.clone()?;
        if !is_host(&host) {
            let message = format!("bad name `{host}`");
            let problem = Problem::new(source.dns.place(), message, "no name in DNS");
            let help = "like \"web.internal\", with `port`, or \"_http._tcp.web.internal\"";
            self.problems.push(problem.help(help));
            return None;
        }
        let port = source.port.value.and_then(|port| u16::try_from(port).ok());
        let records = port.map_or(RecordKind::Service, |port| RecordKind::Address { port });
        Some(SourceKind::Dns(DnsConfig {
            name: host,
            records,
            servers: servers(file),
            interval: source.refresh.value.unwrap_or(REFRESH),
            timeout,
        }))
    }

    fn watched_file(
        &mut self,
        source: &DiscoverFile,
        path: &Path,
        timeout: Duration,
    ) -> Option<SourceKind> {
        let is = |end: &str| path.extension().is_some_and(|it| it == end);
        if !is("toml") && !is("json") {
            let message = format!("`{}` has no known format", path.display());
            let label = "ends in neither `.toml` nor `.json`";
            self.problem(source.file.place(), message, label);
            return None;
        }
        Some(SourceKind::File(FileConfig {
            path: self.path(path),
            interval: source.refresh.value.unwrap_or(FILE_REFRESH),
            timeout,
        }))
    }

    /// A token would go to another machine for all to see.
    fn betrays(&mut self, server: &ServerUrl, at: Range<usize>) -> bool {
        let betrays = server.is_plain_elsewhere();
        if betrays {
            let message = "a token is sent over https only, or to this machine".to_owned();
            self.problem(at, message, "needs https");
        }
        betrays
    }

    /// Keys that are for other kinds of sources.
    fn means_nothing(&mut self, source: &DiscoverFile) {
        let is_api = source.kubernetes.is_some() || source.consul.is_some();
        if let (Some(at), None) = (&source.port.at, &source.dns.value) {
            let message = match is_api {
                true => "the port is a matter of the service, in its own table",
                false => "a file gives each node its port",
            };
            self.problem(at.clone(), message.to_owned(), "means nothing here");
        }
        if let (Some(at), true) = (&source.refresh.at, is_api) {
            let message = "the API says by itself what has changed".to_owned();
            self.problem(at.clone(), message, "means nothing here");
        }
    }

    fn kubernetes(&mut self, file: &KubernetesFile, timeout: Duration) -> Option<SourceKind> {
        // Labels of names in DNS, as Kubernetes has them.
        let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        for name in [&file.namespace, &file.service] {
            let fits = (1..=63).contains(&name.len()) && name.bytes().all(label);
            if !fits {
                let message = format!("bad name `{}`", name.value);
                let label = "small letters, digits and `-`, 63 at most";
                self.problem(name.place(), message, label);
                return None;
            }
        }
        if let Some(server) = &file.server.value
            && self.betrays(server, file.server.place())
        {
            return None;
        }
        let port = file.port.value.as_ref().map(|port| port.0.clone());
        Some(SourceKind::Kubernetes(KubernetesConfig {
            server: file.server.value.clone(),
            token_file: self.path(&file.token_file),
            ca_file: self.path(&file.ca_file),
            namespace: file.namespace.value.clone(),
            service: file.service.value.clone(),
            port: port.unwrap_or(PortChoice::Only),
            timeout,
        }))
    }

    fn consul(&mut self, file: &ConsulFile, timeout: Duration) -> Option<SourceKind> {
        if file.service.is_empty() {
            self.problem(file.service.place(), "no service", "is empty");
            return None;
        }
        if file.server.is_tls() && file.ca_file.is_none() {
            let message = "https needs a file with the server's CA".to_owned();
            self.problem(file.server.place(), message, "needs `ca_file`");
            return None;
        }
        if file.token_file.is_some() && self.betrays(&file.server, file.server.place()) {
            return None;
        }
        let path = |path: &At<Option<PathBuf>>| path.value.as_deref().map(|it| self.path(it));
        Some(SourceKind::Consul(ConsulConfig {
            server: file.server.value.clone(),
            service: file.service.value.clone(),
            tag: file.tag.value.clone(),
            datacenter: file.datacenter.value.clone(),
            token_file: path(&file.token_file),
            ca_file: path(&file.ca_file),
            timeout,
        }))
    }

    fn read_plan(
        &mut self,
        source: &At<DiscoverFile>,
        file: &ConfigFile,
        shared: Option<&[Master]>,
    ) -> Option<ReadPlan> {
        let load = &source.load.value;
        let has_key = load.key_file.is_some() || file.load.key_file.is_some();
        let is_read = match load.transport.value {
            DiscoverTransportName::None => false,
            DiscoverTransportName::Auto => has_key,
            DiscoverTransportName::Udp | DiscoverTransportName::Rdma => {
                if !has_key {
                    let name = &source.name.value;
                    let over = load.transport.value.label().to_uppercase();
                    let message = format!("no key to read the nodes of `{name}` over {over}");
                    let problem = Problem::new(load.transport.place(), message, "needs a key");
                    self.problems
                        .push(problem.help("set `key_file` in [load], or here"));
                    return None;
                }
                true
            }
        };
        if !is_read {
            return Some(ReadPlan::NONE);
        }
        Some(ReadPlan::Agent {
            port: u16::try_from(load.port.value).unwrap_or(AGENT_PORT),
            keys: self.planned_keys(load, shared)?,
            rdma: match load.transport.value {
                DiscoverTransportName::Rdma => UseRdma::Wanted,
                DiscoverTransportName::Auto => UseRdma::IfAny,
                DiscoverTransportName::Udp | DiscoverTransportName::None => UseRdma::Never,
            },
        })
    }

    fn planned_keys(
        &mut self,
        load: &DiscoverLoadFile,
        shared: Option<&[Master]>,
    ) -> Option<PlannedKeys> {
        let name = &load.key_name;
        if let Some(at) = name.at.clone()
            && !name.value.as_deref().is_some_and(is_name)
        {
            self.problem(at, "bad name of a key", "no node's name");
            return None;
        }
        let own = load.key_file.value.as_ref();
        let own = own.map(|path| self.keys(path, load.key_file.place(), Ok));
        let masters = match own {
            None => shared?.to_vec(),
            Some(None) => return None,
            Some(Some(KeyFile::Masters(masters))) => masters,
            Some(Some(KeyFile::Nodes(nodes))) => {
                let wanted = name.value.as_deref();
                if let Some(other) = nodes.iter().find(|it| Some(it.node.as_str()) != wanted) {
                    let message = format!("this is the key of node `{}`", other.node);
                    let problem = Problem::new(load.key_file.place(), message, "here");
                    let help = format!(
                        "if all nodes of the source have it, set `key_name = \"{}\"`",
                        other.node
                    );
                    self.problems.push(problem.help(help));
                    return None;
                }
                let keys = nodes.into_iter().map(|it| it.key);
                return Some(PlannedKeys::Same(keys.collect()));
            }
        };
        Some(match &name.value {
            None => PlannedKeys::Derived(masters),
            Some(name) => {
                let keys = derived(&masters, name).into_iter();
                PlannedKeys::Same(keys.map(|it| it.key).collect())
            }
        })
    }

    /// A node whose address is a host name: one node, at one of the name's addresses.
    fn hosted(
        &mut self,
        node: &At<NodeFile>,
        file: &ConfigFile,
        shared: Option<&[Master]>,
    ) -> Option<NodeSource> {
        let NodeAddress::Host { host, port } = &node.address.value else {
            return None;
        };
        self.site_of(node, &file.site)?;
        // Its agent is where it is, unless the file says where.
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let read = self.read_at(node, nowhere, shared, file.load.key_file.is_some())?;
        let read = match read {
            NodeRead::Udp { keys, rdma, .. } if node.load.address.value.is_none() => {
                ReadPlan::Agent {
                    port: AGENT_PORT,
                    keys: PlannedKeys::Same(keys),
                    rdma,
                }
            }
            NodeRead::Udp { .. }
            | NodeRead::None
            | NodeRead::Shm { .. }
            | NodeRead::Reported(_)
            | NodeRead::Responses { .. } => ReadPlan::Fixed(read),
        };
        let name = &node.name.value;
        let kind = SourceKind::Dns(DnsConfig {
            name: host.clone(),
            records: RecordKind::Address { port: *port },
            servers: servers(file),
            interval: REFRESH,
            timeout: TIMEOUT,
        });
        Some(NodeSource {
            config: SourceConfig {
                name: hosted_source(name),
                kind,
                naming: Naming::Single(name.clone()),
                weight: node.weight.value,
                limits: DiscoveryLimits::default(),
            },
            site: node.site.value.clone()?,
            capacity: node.capacity.value.capacity(),
            read,
        })
    }
}

fn servers(file: &ConfigFile) -> Vec<SocketAddr> {
    file.dns.servers.iter().map(|it| it.value.0).collect()
}
