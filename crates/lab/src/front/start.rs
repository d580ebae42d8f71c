//! Starting a front-end: files written, program started in its place, first answer seen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::{AgentAt, Cluster, LoadAt, Node, Place, Process, lab};

use super::certificate::Certificate;
use super::layout::{Layout, Load, Secure, Server, Site};
use super::{
    FrontEnd, FrontError, FrontKind, HaproxyBalance, SiteTargets, TidegateArm, apache, change,
    envoy, haproxy, nginx, ports, programs, ready, snmp, throttle, tidegate, two_sided,
};

/// Front-ends that this process has started: each has a folder of its own.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// Where an agent for HAProxy's agent check answers on its node.
const AGENT_CHECK_PORT: u16 = 9921;
/// What nginx's worker runs as if root starts it: else it gives up root for a user that may not
/// enter the cluster's folder.
const NGINX_USER: &str = "root";
/// What Apache runs as if root starts it: it refuses to be root.
const APACHE_USER: &str = "nobody";
/// Characters of what a program said that an error repeats.
const TOLD_MAX: usize = 400;

/// Starts a front-end before nodes of the cluster; it proxies when this returns.
///
/// # Errors
/// If its program is absent, or if it does not proxy within ten seconds.
pub fn start(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
) -> Result<FrontEnd, FrontError> {
    start_under(place, kind, sites, cluster, &[])
}

/// The same, run by another program like valgrind.
///
/// # Errors
/// As [`start`].
pub fn start_under(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
    under: &[String],
) -> Result<FrontEnd, FrontError> {
    let starter = Starter {
        under,
        ..Starter::new(place, kind, sites_of(kind, sites, cluster)?, cluster)
    };
    starter.spawn(starter.ports(1)?[0])?.ready(&starter)
}

/// One that will be changed while it runs, before any servers; where a program has a master process for that, with one.
///
/// # Errors
/// As [`start`].
pub fn start_to_change(
    place: &Place,
    kind: &FrontKind,
    sites: Vec<Site>,
    cluster: &Cluster,
) -> Result<FrontEnd, FrontError> {
    let starter = Starter {
        changes: true,
        ..Starter::new(place, kind, sites, cluster)
    };
    starter.spawn(starter.ports(1)?[0])?.ready(&starter)
}

/// What a front-end does beside HTTP/1 in the clear for all.
#[derive(Clone, Debug, Default)]
pub struct Features {
    /// TLS towards clients, with this certificate, on a listener of its own.
    pub certificate: Option<Certificate>,
    /// HTTP/2 towards servers.
    pub servers_http2: bool,
    /// Most requests a second of one source.
    pub per_source: Option<u32>,
}

/// One that does more than HTTP/1 in the clear.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    place: &Place,
    kind: &FrontKind,
    sites: Vec<Site>,
    cluster: &Cluster,
    features: Features,
) -> Result<FrontEnd, FrontError> {
    let starter = Starter {
        features,
        ..Starter::new(place, kind, sites, cluster)
    };
    starter.spawn(starter.ports(1)?[0])?.ready(&starter)
}

/// Several processes of a front-end that do not know of each other, before the same nodes.
///
/// # Errors
/// As [`start`], for any of them.
pub fn start_many(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
    front_ends: u32,
) -> Result<Vec<FrontEnd>, FrontError> {
    let starter = Starter {
        front_ends,
        ..Starter::new(place, kind, sites_of(kind, sites, cluster)?, cluster)
    };
    let ports = starter.ports(front_ends as usize)?;
    let spawned: Vec<_> = ports
        .into_iter()
        .map(|ports| starter.spawn(ports))
        .collect::<Result<_, _>>()?;
    spawned
        .into_iter()
        .map(|spawned| spawned.ready(&starter))
        .collect()
}

/// One of several processes of a front-end, which may be elsewhere.
///
/// # Errors
/// As [`start`].
pub fn start_one_of(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
    front_ends: u32,
) -> Result<FrontEnd, FrontError> {
    let starter = Starter {
        front_ends,
        ..Starter::new(place, kind, sites_of(kind, sites, cluster)?, cluster)
    };
    starter.spawn(starter.ports(1)?[0])?.ready(&starter)
}

/// Where a front-end, its own interface and its listener with TLS listen.
type Ports = [SocketAddr; 3];

/// What the processes of an arm have in common.
struct Starter<'a> {
    place: &'a Place,
    kind: &'a FrontKind,
    sites: Vec<Site>,
    cluster: &'a Cluster,
    under: &'a [String],
    front_ends: u32,
    /// Whether it is changed while it runs.
    changes: bool,
    features: Features,
}

/// A process that was started and may not proxy yet.
struct Spawned {
    process: Process,
    layout: Layout,
    folder: Folder,
}

impl<'a> Starter<'a> {
    /// Of one process.
    fn new(place: &'a Place, kind: &'a FrontKind, sites: Vec<Site>, cluster: &'a Cluster) -> Self {
        Self {
            place,
            kind,
            sites,
            cluster,
            under: &[],
            front_ends: 1,
            changes: false,
            features: Features::default(),
        }
    }

    /// Ports without a listener, each once.
    fn ports(&self, front_ends: usize) -> Result<Vec<Ports>, FrontError> {
        let three = |_| {
            Ok([
                ports::free(self.place.address())?,
                ports::free(Ipv4Addr::LOCALHOST)?,
                ports::free(self.place.address())?,
            ])
        };
        let all = || (0..front_ends).map(three).collect::<io::Result<Vec<_>>>();
        let failed = FrontError::file(Path::new("a port of the front"));
        // All are held until all are known.
        let held = self.place.inside(all)?.map_err(failed)?;
        let addresses = |[listen, admin, secure]: &[TcpListener; 3]| {
            Ok([
                listen.local_addr()?,
                admin.local_addr()?,
                secure.local_addr()?,
            ])
        };
        let failed = FrontError::file(Path::new("a port of the front"));
        held.iter()
            .map(addresses)
            .collect::<io::Result<_>>()
            .map_err(failed)
    }

    fn spawn(&self, ports: Ports) -> Result<Spawned, FrontError> {
        let program = programs::find(self.kind.program()).map_err(FrontError::Absent)?;
        let folder = Folder::make(self.cluster.folder())?;
        let layout = self.layout(ports, folder.path.clone())?;
        let mut arguments = write_config(self.kind, &layout)?;
        if self.changes {
            arguments.extend(change::master(self.kind));
        }
        let mut command = match self.under.split_first() {
            None => self.place.command(&program),
            Some((first, rest)) => {
                let mut command = self.place.command(first);
                command.args(rest).arg(&program);
                command
            }
        };
        command.args(arguments);
        let process = Process::start(self.kind.label(), &mut command)?;
        Ok(Spawned {
            process,
            layout,
            folder,
        })
    }

    fn layout(
        &self,
        [listen, admin, secure]: Ports,
        folder: PathBuf,
    ) -> Result<Layout, FrontError> {
        let certificate = self.features.certificate.clone();
        Ok(Layout {
            secure: certificate.map(|certificate| Secure {
                listen: secure,
                certificate,
            }),
            servers_http2: self.features.servers_http2,
            per_source: self.features.per_source,
            listen,
            admin,
            sites: self.sites.clone(),
            resources: resources(self.kind, self.cluster)?,
            front_ends: self.front_ends,
            folder,
        })
    }
}

impl Spawned {
    /// Waits for the first proxied answer.
    fn ready(mut self, starter: &Starter<'_>) -> Result<FrontEnd, FrontError> {
        let hosts: Vec<_> = starter.sites.iter().map(|site| site.name.clone()).collect();
        let listen = self.layout.listen;
        let ended = || self.process.ended().is_some();
        let limit = match starter.under {
            [] => ready::START_MAX,
            _simulated => ready::SIMULATED_START_MAX,
        };
        let waited = starter
            .place
            .inside(|| ready::wait(listen, &hosts, limit, ended))?;
        let waited = match (starter.kind, waited) {
            (FrontKind::Tidegate(_), Ok(())) => {
                let (admin, count) = (self.layout.admin, starter.front_ends);
                starter
                    .place
                    .inside(|| ready::alone(admin, count, ready::TOLD, limit))?
            }
            (_, waited) => waited,
        };
        let name = starter.kind.label();
        let waited = waited.and_then(|()| match starter.kind {
            FrontKind::Tidegate(arm) => throttle::order(starter.place, self.layout.admin, arm),
            FrontKind::Haproxy(_)
            | FrontKind::Nginx(_)
            | FrontKind::Apache
            | FrontKind::Envoy(_) => Ok(()),
        });
        if let Err(why) = waited {
            self.process.kill();
            return Err(FrontError::Silent {
                name,
                address: listen,
                why,
                told: told(&self.process, &self.layout.folder),
            });
        }
        let tidegate = matches!(starter.kind, FrontKind::Tidegate(_));
        Ok(FrontEnd {
            address: listen,
            admin: tidegate.then_some(self.layout.admin),
            name,
            kind: starter.kind.clone(),
            layout: self.layout,
            process: self.process,
            _folder: self.folder,
        })
    }
}

/// What an arm needs beside the cluster's own agents: those of HAProxy's agent check, or the daemons
/// that are asked over TCP. They are to live as long as the arm.
///
/// # Errors
/// If they cannot be started.
pub fn helpers(kind: &FrontKind, cluster: &Cluster) -> Result<Vec<Process>, FrontError> {
    match kind {
        FrontKind::Haproxy(HaproxyBalance::AgentCheck) => agent_checks(cluster),
        FrontKind::Tidegate(TidegateArm {
            asks: Some(interval),
            ..
        }) => two_sided::start(cluster, *interval),
        FrontKind::Tidegate(TidegateArm { snmp: Some(_), .. }) => snmp::start(cluster),
        FrontKind::Tidegate(_)
        | FrontKind::Haproxy(_)
        | FrontKind::Nginx(_)
        | FrontKind::Apache
        | FrontKind::Envoy(_) => Ok(Vec::new()),
    }
}

/// Writes the configuration; the program's arguments.
pub(super) fn write_config(kind: &FrontKind, layout: &Layout) -> Result<Vec<String>, FrontError> {
    let root = rustix::process::geteuid().is_root();
    let user = |user| root.then_some(user);
    let write = |name: &str, text: String| {
        let path = layout.folder.join(name);
        std::fs::write(&path, text).map_err(FrontError::file(&path))?;
        Ok::<_, FrontError>(path.display().to_string())
    };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Ok(match kind {
        FrontKind::Tidegate(arm) => {
            let file = write("tidegate.toml", tidegate::config(layout, arm))?;
            words(&["run", "-c", &file])
        }
        FrontKind::Haproxy(balance) => {
            let file = write("haproxy.cfg", haproxy::config(layout, *balance))?;
            words(&["-q", "-db", "-f", &file])
        }
        FrontKind::Nginx(balance) => {
            let file = write(
                "nginx.conf",
                nginx::config(layout, *balance, user(NGINX_USER)),
            )?;
            // Else it first opens a log where the distribution wants it.
            let log = layout.folder.join("error.log").display().to_string();
            words(&["-e", &log, "-c", &file])
        }
        FrontKind::Apache => {
            let modules = programs::apache_modules().map_err(FrontError::Absent)?;
            let file = write(
                "apache.conf",
                apache::config(layout, &modules, user(APACHE_USER)),
            )?;
            words(&["-DFOREGROUND", "-f", &file])
        }
        FrontKind::Envoy(filter) => {
            let file = write("envoy.yaml", envoy::config(layout, *filter))?;
            words(&[
                "-c",
                &file,
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "error",
            ])
        }
    })
}

/// What the program said last, on its streams and in its own log.
fn told(process: &Process, folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("error.log")).unwrap_or_default();
    let told = format!("{}\n{}", process.told(), log.trim());
    let told = told.trim();
    let cut = told.char_indices().rev().nth(TOLD_MAX);
    cut.map_or_else(
        || told.to_owned(),
        |(at, _)| format!("[...]{}", &told[at..]),
    )
}

/// Sites with what a front-end of this kind knows of their nodes.
fn sites_of(
    kind: &FrontKind,
    targets: &[SiteTargets],
    cluster: &Cluster,
) -> Result<Vec<Site>, FrontError> {
    let site = |site: &SiteTargets| {
        let nodes = site.nodes.iter();
        let servers = nodes.map(|node| server(kind, &site.name, cluster, *node));
        let servers = servers.collect::<Result<_, FrontError>>()?;
        Ok(Site::of(&site.name, servers))
    };
    targets.iter().map(site).collect()
}

/// What a front-end of this kind knows of a node that serves this site.
///
/// # Errors
/// If the node has not the agent that the front-end reads.
pub fn server(
    kind: &FrontKind,
    site: &str,
    cluster: &Cluster,
    node: usize,
) -> Result<Server, FrontError> {
    let node = &cluster.nodes()[node];
    let load = match kind {
        FrontKind::Tidegate(arm) => match (arm.asks, arm.snmp, arm.agent) {
            (Some(_), _, _) => Load::Shm {
                path: two_sided::region(cluster.folder(), node),
            },
            (None, Some(period), _) => snmp::load(cluster, node, period),
            (None, None, None) => Load::None,
            (None, None, Some(agent)) => load(&agent_of(node, agent, &arm.name)?.load),
        },
        FrontKind::Haproxy(_) | FrontKind::Nginx(_) | FrontKind::Apache | FrontKind::Envoy(_) => {
            Load::None
        }
    };
    let agent_check = SocketAddr::new(node.address.ip(), AGENT_CHECK_PORT);
    Ok(Server {
        name: format!("{site}-{}", node.name),
        address: node.address,
        load,
        agent_check: kind.needs_agent_check().then_some(agent_check),
    })
}

/// Nodes that serve nothing, for their readers.
fn resources(kind: &FrontKind, cluster: &Cluster) -> Result<Vec<Server>, FrontError> {
    let FrontKind::Tidegate(TidegateArm {
        name,
        resources: Some(agent),
        ..
    }) = kind
    else {
        return Ok(Vec::new());
    };
    let nodes = cluster.nodes().iter();
    let resources = nodes.filter(|node| !node.server.is_web());
    resources
        .map(|node| {
            Ok(Server {
                name: node.name.clone(),
                address: node.address,
                load: load(&agent_of(node, agent, name)?.load),
                agent_check: None,
            })
        })
        .collect()
}

/// The agent of this name, which an arm reads.
fn agent_of<'a>(node: &'a Node, agent: &'static str, arm: &str) -> Result<&'a AgentAt, FrontError> {
    let mut agents = node.agents.iter();
    agents
        .find(|it| it.name == agent)
        .ok_or_else(|| FrontError::NoAgent {
            name: arm.into(),
            agent,
            node: node.name.clone(),
        })
}

fn load(at: &LoadAt) -> Load {
    match at {
        LoadAt::Udp { address, key } => Load::Udp {
            address: *address,
            key: key.clone(),
        },
        LoadAt::Shm { path } => Load::Shm { path: path.clone() },
    }
}

/// One responder on every node.
fn agent_checks(cluster: &Cluster) -> Result<Vec<Process>, FrontError> {
    let lab = lab()?;
    let start = |node: &Node| {
        let listen = SocketAddr::new(node.address.ip(), AGENT_CHECK_PORT).to_string();
        let mut command: Command = node.place().command(&lab);
        command.args([
            "agent-check",
            "--listen",
            &listen,
            "--share",
            &node.share.to_string(),
        ]);
        Ok(Process::start(
            format!("agent check of {}", node.name),
            &mut command,
        )?)
    };
    cluster.nodes().iter().map(start).collect()
}

/// A folder of one front-end, gone with it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make(within: &Path) -> Result<Self, FrontError> {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = within.join(format!("front-{serial}"));
        std::fs::create_dir_all(&path).map_err(FrontError::file(&path))?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind goes with the cluster's own folder.
        std::fs::remove_dir_all(&self.path).unwrap_or_default();
    }
}
