//! From a file whose keys and types are right to a [`Config`]: what the values mean together.

mod admin;
mod discover;
pub(super) mod listeners;
mod mirror;
mod moves;
mod node_tls;
mod read;
mod unreached;
mod without_effect;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidegate_core::admission::{
    AdmissionConfig, AdmissionKind, StaticLimits, StaticScope, WithoutRecords,
};
use tidegate_core::load::Rung;
use tidegate_core::topology::discovered::can_serve;
use tidegate_core::topology::routes::{RouteError, Routes};
use tidegate_core::topology::{ClusterSpec, NodeSpec, SiteId, SiteSpec};
use tidegate_core::units::format_duration;
use tidegate_node::{AgentConfig, MovesConfig, PACKET_RUNGS, RUNGS};
use tidegate_proxy::{ForwardedConfig, Ports, SiteConfig, TraceSampling};
use tidegate_remote::udp::Network;
use tidegate_remote::udp::key_file::{KeyFile, Master, NAME_MAX, NodeKey, is_name};
use tidegate_reported::Secret;

use super::acme::Issuing;
use super::agent_moves::{self, AgentMovesFile};
use super::agent_reports::reports;
use super::check;
use super::culprits::class_names;
use super::discover::{PlannedKeys, ReadPlan};
use super::file::{
    AGENT_PORT, AdmissionFile, AgentFile, ConfigFile, ForwardedFile, ListenerFile, LoadFile,
    NodeFile, RoleName, ScopeName, SiteFile, TraceparentName, WithoutRecordsName,
};
use super::problem::{Problem, Problems};
use super::reconfigure::{reconfigure, warm_up};
use super::setting::{At, unknown_name};
use super::tls::ProtocolName;
use super::values::Auto;
use super::{
    Config, FrontEnd, NodeRead, Resource, Secrets, Source, UseRdma, culprits, notes, parse_rung,
    parse_scope, site, throttle,
};
use crate::token::Token;
use mirror::is_mirrored;
use without_effect::has_listener;

/// Threads that serve requests.
const WORKERS_MAX: u32 = 1024;

/// Reads of one node that are under way at a time, as the reader keeps them.
const READS_UNDER_WAY_MAX: u32 = 16;

/// What the checks share.
pub(super) struct Checker<'p> {
    folder: PathBuf,
    keys: BTreeMap<PathBuf, Result<KeyFile, String>>,
    tokens: BTreeMap<PathBuf, Token>,
    texts: BTreeMap<PathBuf, Secret>,
    /// What was read of these files before.
    before: Secrets,
    /// Files of which that goes on.
    unread: Vec<PathBuf>,
    issuing: Issuing,
    /// What is sound and perhaps not meant.
    pub(super) notes: Vec<String>,
    pub(super) problems: &'p mut Problems,
}

/// Checks a file; all that is wrong is among the problems.
pub(super) fn validate(
    file: ConfigFile,
    folder: &Path,
    before: Secrets,
    problems: &mut Problems,
) -> Option<Config> {
    let mut checker = Checker {
        folder: folder.into(),
        keys: BTreeMap::new(),
        tokens: BTreeMap::new(),
        texts: BTreeMap::new(),
        before,
        unread: Vec::new(),
        issuing: Issuing::default(),
        notes: Vec::new(),
        problems,
    };
    let admin = checker.admin(&file);
    let agent = file.agent.value.as_ref();
    let reports = agent.map(|agent| reports(agent, checker.problems));
    let services =
        agent.map(|agent| check::service_checks(agent, &checker.folder, checker.problems));
    let agent = agent.map(|agent| checker.agent(agent));
    let serves = !file.listener.is_empty()
        || !file.site.is_empty()
        || !file.node.is_empty()
        || !file.discover.is_empty();
    let front_end = if serves || agent.is_none() {
        Some(checker.front_end(&file))
    } else {
        None
    };
    let front_end = front_end.map_or(Some(None), |front_end| front_end.map(Some))?;
    let wanted = file.load.interval.value;
    let more = front_end.as_ref().map(|it| notes::notes(it, wanted));
    let Checker {
        keys,
        tokens,
        texts,
        unread,
        mut notes,
        ..
    } = checker;
    notes.extend(more.unwrap_or_default());
    let read = keys.into_iter();
    let secrets = Secrets {
        keys: read
            .filter_map(|(path, keys)| Some((path, keys.ok()?)))
            .collect(),
        tokens,
        texts,
        unread,
    };
    Some(Config {
        secrets,
        admin: admin?,
        front_end,
        notes,
        agent: agent.map_or(Some(None), |agent| agent.map(Some))?,
        reports: reports.unwrap_or_default(),
        service_checks: services.unwrap_or_default(),
        file,
        source: Source::default(),
    })
}

impl Checker<'_> {
    pub(super) fn problem(
        &mut self,
        at: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) {
        self.problems.push(Problem::new(at, message, label));
    }

    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    fn agent(&mut self, file: &AgentFile) -> Option<AgentConfig> {
        let keys = self.keys(&file.key_file.value, file.key_file.place(), KeyFile::nodes);
        let scope = parse_scope(&file.scope.value);
        if let Err(reason) = scope {
            let at = file.scope.place();
            self.problem(at, format!("bad scope `{}`", file.scope.value), reason);
        }
        for watched in &file.watch.value {
            if watched.is_empty() {
                self.problem(watched.place(), "a process without a name", "empty");
            }
        }
        if file.rdma_words.value && !file.rdma.value {
            let message = "`rdma_words` needs `rdma = true`";
            let label = "nothing is served over RDMA here";
            self.problem(file.rdma_words.place(), message.to_owned(), label);
        }
        let rungs = self.rungs(&file.rungs.value);
        if file.rdma_words.value
            && let Some(rungs) = &rungs
            && rungs.iter().all(|it| PACKET_RUNGS.contains(it))
        {
            let message = "`rdma_words` leaves none of these rungs";
            let label = "the kernel answers on them and keeps words of its own: add `kernel_record` or `agent`";
            self.problem(file.rungs.place(), message.to_owned(), label);
        }
        let moves = file.moves.value.as_ref();
        let moves = moves.map(|it| self.agent_moves(it, keys.as_deref()));
        Some(AgentConfig {
            moves,
            listen: file.listen.value,
            interval: file.interval.value,
            shm: file.shm.value.as_ref().map(|path| self.path(path)),
            scope: scope.ok()?,
            watch: file.watch.iter().map(|name| name.value.clone()).collect(),
            realtime: file.realtime.value,
            realtime_share: file.realtime_share.value,
            rungs: rungs?,
            allow: self.networks(&file.allow.value)?,
            rdma: file
                .rdma
                .value
                .then_some(file.rdma_queue_pairs.value as usize),
            rdma_words: file.rdma_words.value,
            ..AgentConfig::new(keys?)
        })
    }

    fn agent_moves(&mut self, file: &AgentMovesFile, keys: Option<&[NodeKey]>) -> MovesConfig {
        let names: Vec<_> = file.site.iter().map(|it| &it.name).collect();
        self.names("site", &names);
        let node = keys.and_then(|keys| keys.first());
        let node = node.map_or("", |key| key.node.as_str());
        agent_moves::moves(file, &self.folder, node, self.problems)
    }

    fn rungs(&mut self, names: &[At<String>]) -> Option<Vec<Rung>> {
        let mut rungs = Vec::new();
        for name in names {
            match parse_rung(&name.value) {
                Some(rung) => rungs.push(rung),
                None => {
                    let known = RUNGS.iter().map(|rung| rung.label());
                    let problem = unknown_name(name.place(), "rung", &name.value, known);
                    self.problems.push(problem);
                }
            }
        }
        match names.is_empty() {
            true => Some(RUNGS.to_vec()),
            false => (rungs.len() == names.len()).then_some(rungs),
        }
    }

    fn networks(&mut self, names: &[At<String>]) -> Option<Vec<Network>> {
        let mut networks = Vec::new();
        for name in names {
            match name.value.parse() {
                Ok(network) => networks.push(network),
                Err(error) => self.problem(name.place(), format!("{error}"), "here"),
            }
        }
        (networks.len() == names.len()).then_some(networks)
    }

    fn workers(&mut self, workers: &At<Auto<u32>>) {
        if let Auto::Set(count) = workers.value
            && !(1..=WORKERS_MAX).contains(&count)
        {
            let message = format!("`workers` must be \"auto\" or from 1 to {WORKERS_MAX}");
            self.problem(workers.place(), message, "out of range");
        }
    }

    fn front_end(&mut self, file: &ConfigFile) -> Option<FrontEnd> {
        self.presence(file);
        let listeners = self.listeners(file);
        let acme = self.acme(file);
        self.tcp_sites(&file.listener, &file.site);
        self.without_effect(file);
        self.unreached(file);
        self.mirrors(file);
        let sites = self.sites(file);
        // A broken shared key is reported once, not for every node.
        let key_file = &file.load.key_file;
        let path = key_file.value.as_ref();
        let shared = path.and_then(|path| self.keys(path, key_file.place(), KeyFile::masters));
        let nodes = self.nodes(file, shared.as_deref());
        let resources = self.resources(file, shared.as_deref());
        let sources = self.sources(file, shared.as_deref());
        self.every_site_has_a_node(file);
        self.load(&file.load);
        self.workers(&file.limits.workers);
        let forwarded = self.forwarded(&file.forwarded);
        let log = self.log(&file.log);
        let (traces, webhook) = (self.traces(&file.traces), self.events(file));
        let site_configs = self.site_configs(file);
        let groups = self.groups(file);
        let throttles = throttle::throttles(file, self.problems);
        let culprits = culprits::culprits(file, &self.folder, self.problems);
        let engine = nodes.as_ref().and_then(|(specs, reads)| {
            let names = specs.iter().map(|it| it.name.as_str());
            self.moves_engine(file, &names.zip(reads).collect(), shared.as_deref())
        });
        let sites = sites?;
        let (nodes, reads) = nodes?;
        // All that it can find wrong was looked for above, with places.
        if let Err(error) = Routes::new(&sites) {
            if self.problems.is_empty() {
                self.problem(file.site.place(), error.to_string(), "in these sites");
            }
            return None;
        }
        Some(FrontEnd {
            listeners: listeners?,
            acme,
            cluster: ClusterSpec {
                sites,
                nodes,
                groups,
                front_ends: file.cluster.front_ends.value,
            },
            interval: notes::interval(&reads, file.load.interval.value),
            pace: notes::pace(file),
            reads,
            resources: resources?,
            sources: sources?,
            usual_read: usual_read(shared),
            seed: None,
            timeout: file.load.timeout.value,
            realtime: file.load.realtime.value,
            limits: file.limits.value.clone(),
            timeouts: file.timeouts.value.clone(),
            forwarded: forwarded?,
            node_header: file.forwarded.node_header.value,
            sites: site_configs?,
            log: log?,
            traces: traces?,
            webhook: webhook?,
            throttles,
            culprits,
            reconfigure: reconfigure(file, engine, self.problems),
            class_names: class_names(file),
            overrides_file: (file.admin.overrides_file.as_ref()).map(|path| self.path(path)),
            ports: Ports::default(),
            open_files: None,
        })
    }

    fn site_configs(&mut self, file: &ConfigFile) -> Option<Vec<SiteConfig>> {
        let config = |site: &At<SiteFile>| {
            let node_tls = self.node_tls(file, site);
            let kind = admission(&site.admission).kind;
            let nodes = file.node.iter();
            let nodes = nodes.filter(|node| node.serves(&site.name.value)).count();
            let secrets = self.sticky_secrets(site)?;
            let config = site::config(site, kind, nodes, secrets, &self.folder, self.problems);
            Some(SiteConfig {
                node_tls: node_tls?,
                node_http2: site.node_protocol.value == ProtocolName::Http2,
                is_tcp: has_listener(file, site),
                ..config?
            })
        };
        let sites: Vec<_> = file.site.iter().map(config).collect();
        sites.into_iter().collect()
    }

    /// Networks that clients or balancers connect from.
    fn client_networks(&mut self, networks: &[At<String>]) -> Option<Vec<tidegate_proxy::Network>> {
        let parse = |range: &At<String>| match range.value.parse() {
            Ok(network) => Some(network),
            Err(error) => {
                let error: tidegate_proxy::NetworkError = error;
                self.problem(range.place(), error.to_string(), "here");
                None
            }
        };
        let networks: Vec<_> = networks.iter().map(parse).collect();
        networks.into_iter().collect()
    }

    fn forwarded(&mut self, file: &ForwardedFile) -> Option<ForwardedConfig> {
        let via = &file.via.value;
        let bad = |byte: u8| !byte.is_ascii_alphanumeric() && !b"._-:".contains(&byte);
        if via
            .as_ref()
            .is_some_and(|via| via.is_empty() || via.bytes().any(bad))
        {
            let label = "letters, digits, `.`, `-`, `_` and `:`";
            self.problem(file.via.place(), "bad name for `via`", label);
        }
        let trusted = self.client_networks(&file.trusted);
        let name = |name: &At<String>| match name.value.parse() {
            Ok(parsed) if tidegate_proxy::ends_unless_kept(&parsed) => Some(parsed),
            Ok(_) => {
                let text = format!("`{}` is never dropped", name.value);
                self.problem(name.place(), text, "passed on without being kept");
                None
            }
            Err(_) => {
                let text = format!("`{}` is no name of a field", name.value);
                self.problem(name.place(), text, "here");
                None
            }
        };
        let keep: Vec<_> = file.keep.iter().map(name).collect();
        Some(ForwardedConfig {
            x_forwarded: file.x_forwarded.value,
            forwarded: file.forwarded.value,
            traceparent: match file.traceparent.value {
                TraceparentName::Pass => None,
                TraceparentName::Make => Some(TraceSampling::of(file.trace_sampled.value)),
            },
            trusted: trusted?,
            keep: keep.into_iter().collect::<Option<_>>()?,
            underscores: file.underscores.value,
            via: via.clone(),
        })
    }

    fn presence(&mut self, file: &ConfigFile) {
        let lists = [
            ("listener", file.listener.is_empty(), "a place to listen"),
            ("site", file.site.is_empty(), "a site"),
            (
                "node",
                file.node.is_empty() && file.discover.is_empty(),
                "a node, or a [[discover]] that finds some",
            ),
        ];
        for (name, empty, what) in lists {
            if empty {
                self.problems.push(
                    Problem::new(0..0, format!("there is no [[{name}]]"), "in this file").help(
                        format!("a front-end needs {what}; an agent needs [agent] alone"),
                    ),
                );
            }
        }
    }

    fn sites(&mut self, file: &ConfigFile) -> Option<Vec<SiteSpec>> {
        let sites = &file.site.value;
        let names: Vec<_> = sites.iter().map(|site| &site.name).collect();
        self.names("site", &names);
        let mut served = BTreeMap::new();
        for site in sites {
            let gets = has_listener(file, site) || is_mirrored(file, site);
            self.routes(site, gets, &mut served);
            self.limits(site);
        }
        let mut spec = |site: &At<SiteFile>| SiteSpec {
            name: site.name.value.clone(),
            hosts: site.hosts.iter().map(|host| host.value.clone()).collect(),
            paths: site.paths.iter().map(|path| path.value.clone()).collect(),
            policy: site.policy.value.0,
            admission: admission(&site.admission),
            health: check::health(
                site,
                warm_up(&file.reconfigure, site.policy.value.0.kind),
                &self.folder,
                self.problems,
            ),
        };
        Some(sites.iter().map(&mut spec).collect())
    }

    /// Shares are shares, and a mode has the limits that it is nothing without.
    fn limits(&mut self, site: &SiteFile) {
        let admission = &site.admission.value;
        for (share, name) in [(&admission.cpu, "cpu"), (&admission.memory, "memory")] {
            if share
                .value
                .is_some_and(|share| !(0.0..=1.0).contains(&share))
            {
                let message = format!("`{name}` must be from 0 to 1");
                self.problem(share.place(), message, "a share of the whole");
            }
        }
        let none = admission.connections.value.is_none()
            && admission.cpu.value.is_none()
            && admission.memory.value.is_none()
            && admission.network.value.is_none();
        let mode = admission.mode.value;
        if mode == AdmissionKind::Static && none {
            let message = "the static mode has no limit".to_owned();
            let label = "give it `connections`, `cpu`, `memory` or `network`";
            self.problem(admission.mode.place(), message, label);
        }
        match admission.connections.value {
            None if mode.needs_connections() => {
                let message = format!("the mode `{}` has no `connections`", mode.label());
                let label = "say how many a server may have of this front-end";
                self.problem(admission.mode.place(), message, label);
            }
            Some(0) if mode.needs_connections() => {
                let message = "`connections` must be 1 at least".to_owned();
                self.problem(admission.connections.place(), message, "lets nothing in");
            }
            Some(_) | None => {}
        }
    }

    /// Names are well formed and no two are the same.
    pub(super) fn names(&mut self, what: &str, names: &[&At<String>]) {
        let mut seen: BTreeMap<&str, &At<String>> = BTreeMap::new();
        for name in names {
            // It stands in URLs, labels, log lines and key files.
            if !is_name(name) {
                self.problems.push(
                    Problem::new(
                        name.place(),
                        format!("bad {what} name `{}`", name.value),
                        "not a name",
                    )
                    .help(format!("1 to {NAME_MAX} letters, digits, `.`, `-` and `_`")),
                );
            }
            if let Some(first) = seen.insert(&name.value, name) {
                let message = format!("two {what}s are called `{}`", name.value);
                self.problems.push(
                    Problem::new(name.place(), message, "again here")
                        .context(first.place(), "first here"),
                );
            }
        }
    }

    /// Hosts and paths are well formed and no two sites share a pair of them. One that has a listener of its own may have none.
    fn routes(
        &mut self,
        site: &SiteFile,
        has_listener: bool,
        served: &mut BTreeMap<(String, String), (Range<usize>, String)>,
    ) {
        if site.hosts.is_empty() && !has_listener {
            let message = format!("site `{}` has no hosts", site.name.value);
            let label = "use [\"*\"] for all others, or name it as the `tcp_site` of a listener";
            self.problem(site.hosts.place(), message, label);
        }
        let all = [At::default_of(String::from("/"))];
        let paths = match site.paths.value.as_slice() {
            [] => &all[..],
            paths => paths,
        };
        for host in &site.hosts.value {
            if !self.route(site, host, "/", host.place()) {
                continue;
            }
            for path in paths {
                if !self.route(site, host, path, path.place()) {
                    continue;
                }
                // As `Routes` sees them: letter case and a final slash mean nothing.
                let plain = |text: &str, end| text.strip_suffix(end).unwrap_or(text).to_owned();
                let pair = (plain(&host.to_ascii_lowercase(), '.'), plain(path, '/'));
                // A site without `hosts` is where its name is.
                let place = |it: &At<String>| it.at.clone().unwrap_or(site.name.place());
                let owner = (place(host), site.name.value.clone());
                if let Some((first, name)) = served.insert(pair, owner) {
                    let message = match (host.value.as_str(), paths.len()) {
                        ("*", 1) => format!(
                            "two sites serve all other hosts: `{name}` and `{}`",
                            site.name.value
                        ),
                        (host, _) => format!("two sites serve {host}{}", path.value),
                    };
                    let problem = Problem::new(place(host), message, "again here");
                    let problem = problem.context(first, format!("first by `{name}`"));
                    self.problems.push(match host.at {
                        Some(_) => problem,
                        None => problem.help(
                            "a site without `hosts` serves all that no other one does: say which are whose, like \
                             `hosts = [\"shop.example\"]`, or give one of them other `paths`",
                        ),
                    });
                }
            }
        }
    }

    /// Whether a pair of host and path is well formed, as `Routes` sees it.
    fn route(&mut self, site: &SiteFile, host: &str, path: &str, at: Range<usize>) -> bool {
        let alone = SiteSpec {
            name: site.name.value.clone(),
            hosts: vec![host.into()],
            paths: vec![path.into()],
            policy: site.policy.value.0,
            admission: AdmissionConfig::default(),
            health: Default::default(),
        };
        match Routes::new(&[alone]) {
            Ok(_) => true,
            Err(error) => {
                let (message, why) = match error {
                    RouteError::Host { host, why, .. } => (format!("bad host `{host}`"), why),
                    RouteError::Path { path, why, .. } => (format!("bad path `{path}`"), why),
                    RouteError::Twice { .. } | RouteError::TooMany => (error.to_string(), "here"),
                };
                self.problem(at, message, why);
                false
            }
        }
    }

    fn nodes(
        &mut self,
        file: &ConfigFile,
        shared: Option<&[Master]>,
    ) -> Option<(Vec<NodeSpec>, Vec<NodeRead>)> {
        let names: Vec<_> = file.node.iter().map(|node| &node.name).collect();
        self.names("node", &names);
        let is_server = |it: &&At<NodeFile>| it.role.value == RoleName::Server;
        for node in file.node.iter().filter(is_server) {
            if node.address.port() == 0 {
                let message = format!("node `{}` has port 0", node.name.value);
                self.problem(node.address.place(), message, "nobody serves there");
            } else if let Some(address) = node.address.fixed().filter(|it| !can_serve(*it)) {
                let message = format!("node `{}` cannot be at {}", node.name.value, address.ip());
                let label = "the address of one machine is expected";
                self.problem(node.address.place(), message, label);
            }
        }
        let shared_set = file.load.key_file.is_some();
        let nodes: Vec<_> = file
            .servers()
            .map(|node| {
                let address = node.address.fixed()?;
                self.no_loop(node, &file.listener);
                let site = self.site_of(node, &file.site);
                let read = self.read_at(node, address, shared, shared_set);
                Some((self.node(node, address, site?), read?))
            })
            .collect();
        nodes
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .map(|nodes| nodes.into_iter().unzip())
    }

    /// A node must not be ourselves: a request would go round until nothing is left.
    fn no_loop(&mut self, node: &NodeFile, listeners: &[At<ListenerFile>]) {
        let address = &node.address;
        let own = listeners
            .iter()
            .find(|own| Some(own.address.value) == address.fixed());
        if let Some(own) = own {
            let message = format!("node `{}` is our own listener", node.name.value);
            self.problems.push(
                Problem::new(address.place(), message, "requests would go round")
                    .context(own.address.place(), "this listener"),
            );
        }
    }

    fn node(&self, node: &NodeFile, address: SocketAddr, site: SiteId) -> NodeSpec {
        NodeSpec {
            name: node.name.value.clone(),
            address,
            site,
            weight: node.weight.value,
            capacity: node.capacity.value.capacity(),
        }
    }

    /// Nodes that serve nothing and are there to be read.
    fn resources(&mut self, file: &ConfigFile, shared: Option<&[Master]>) -> Option<Vec<Resource>> {
        let shared_set = file.load.key_file.is_some();
        let nodes = file.node.value.iter();
        let nodes = nodes.filter(|node| node.role.value == RoleName::Resource);
        let resources: Vec<_> = nodes
            .map(|node| {
                let name = &node.name.value;
                if node.site.is_some() {
                    let message = format!("`{name}` is a resource, which serves no site");
                    self.problem(node.site.place(), message, "means nothing here");
                }
                let Some(address) = node.address.fixed() else {
                    let message = format!("the resource `{name}` has a host name");
                    self.problem(node.address.place(), message, "a resource needs an address");
                    return None;
                };
                let read = self.read_at(node, address, shared, shared_set)?;
                if read == NodeRead::None {
                    let message = format!("nobody reads the resource `{name}`");
                    let label = "a resource is there to be read: it needs `load`";
                    self.problem(node.role.place(), message, label);
                } else if !read.suits_resources() {
                    let message = format!("the load of the resource `{name}` cannot come so");
                    let label = "this tells no load without requests";
                    self.problem(node.load.transport.place(), message, label);
                }
                Some(Resource {
                    name: name.clone(),
                    address,
                    read,
                })
            })
            .collect();
        resources.into_iter().collect()
    }

    pub(super) fn site_of(
        &mut self,
        node: &At<NodeFile>,
        sites: &[At<SiteFile>],
    ) -> Option<SiteId> {
        let Some(name) = &node.site.value else {
            let label = "a server serves a site; a node that serves none is a resource";
            self.problem(node.place(), "`site` is missing", label);
            return None;
        };
        let found = sites.iter().position(|site| site.name.value == *name);
        if found.is_none() {
            let names = sites.iter().map(|site| site.name.value.as_str());
            let problem = unknown_name(node.site.place(), "site", name, names);
            self.problems.push(problem);
        }
        found.map(|index| SiteId(index as u32))
    }

    fn load(&mut self, load: &LoadFile) {
        let (interval, timeout) = (&load.interval, &load.timeout);
        let least = interval.value.unwrap_or(notes::INTERVAL);
        if timeout.value <= least * READS_UNDER_WAY_MAX {
            return;
        }
        let most = format_duration(least * READS_UNDER_WAY_MAX);
        let message = format!("`timeout` must be at most {READS_UNDER_WAY_MAX} times `interval`");
        let place = match timeout.at.is_some() {
            true => timeout.place(),
            false => interval.place(),
        };
        self.problem(place, message, format!("so at most \"{most}\""));
    }

    fn every_site_has_a_node(&mut self, file: &ConfigFile) {
        for site in &file.site.value {
            let name = &site.name;
            let found = file.discover.iter().any(|it| it.site.value == name.value);
            if !found && !file.node.iter().any(|node| node.serves(&name.value)) {
                let message = format!("site `{}` has no nodes", name.value);
                let label = "no [[node]] and no [[discover]] has this site";
                self.problem(name.place(), message, label);
            }
        }
    }
}

/// Two listeners that cannot both be there.
pub(super) fn overlapping(before: &At<SocketAddr>, again: &At<SocketAddr>) -> Problem {
    if before.value == again.value {
        let message = format!("two listeners on {}", again.value);
        let problem = Problem::new(again.place(), message, "again here");
        return problem.context(before.place(), "first here");
    }
    let (one, other) = (before.value, again.value);
    let message = format!("the listeners {one} and {other} overlap");
    let label = "expected another port, or one listener for both";
    Problem::new(again.place(), message, label).context(before.place(), "this takes it as well")
}

/// How the load of nodes is read that the file does not name: from their agents, if there is a key for them.
fn usual_read(shared: Option<Vec<Master>>) -> ReadPlan {
    shared.map_or(ReadPlan::NONE, |masters| ReadPlan::Agent {
        rdma: UseRdma::IfAny,
        port: AGENT_PORT,
        keys: PlannedKeys::Derived(masters),
    })
}

fn admission(file: &AdmissionFile) -> AdmissionConfig {
    AdmissionConfig {
        kind: file.mode.value,
        slo: file.slo.value,
        priorities: u8::try_from(file.priorities.value).unwrap_or(u8::MAX),
        without_records: match file.without_records.value {
            WithoutRecordsName::Admit => WithoutRecords::Admit,
            WithoutRecordsName::Limit => WithoutRecords::Limit,
        },
        sessions: file.session.value.is_some(),
        queue: file.queue.value,
        queue_timeout: file.queue_timeout.value,
        limits: StaticLimits {
            connections: file.connections.value,
            cpu: file.cpu.value,
            memory: file.memory.value,
            network: file.network.value.map(|size| size.bytes() as f32),
            scope: match file.scope.value {
                ScopeName::Any => StaticScope::Any,
                ScopeName::All => StaticScope::All,
                ScopeName::Chosen => StaticScope::Chosen,
            },
        },
        dry_run: file.dry_run.value,
    }
}
