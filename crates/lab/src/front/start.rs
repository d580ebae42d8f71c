//! Starting a front-end: files written, program started in its place, first answer seen.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::{Cluster, LoadAt, Node, Place, Process, lab};

use super::layout::{Layout, Load, Server, Site};
use super::{
    FrontEnd, FrontError, FrontKind, SiteTargets, apache, envoy, haproxy, nginx, programs, ready,
    tidegate,
};

/// Front-ends that this process has started: each has a folder of its own.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// Where an agent for HAProxy's agent check answers on its node.
const AGENT_CHECK_PORT: u16 = 9921;
/// Who nginx's worker runs as if root starts it: else it gives up root for a user who may not
/// enter the cluster's folder.
const NGINX_USER: &str = "root";
/// Who Apache runs as if root starts it: it refuses to be root.
const APACHE_USER: &str = "nobody";

/// What is said beyond the kind and the sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Front-ends that stand before the same nodes, this one included.
    pub front_ends: u32,
    /// A program and its arguments that the front-end is run by, like valgrind; empty: none.
    pub under: Vec<String>,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            front_ends: 1,
            under: Vec::new(),
        }
    }
}

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
    start_with(place, kind, sites, cluster, &Launch::default())
}

/// The same with more to say.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
    launch: &Launch,
) -> Result<FrontEnd, FrontError> {
    let program = programs::find(kind.program()).map_err(FrontError::Absent)?;
    let folder = Folder::make(cluster.folder())?;
    let layout = layout(place, kind, sites, cluster, launch, folder.path.clone())?;
    let agents = match kind.needs_agent_check() {
        true => agent_checks(cluster)?,
        false => Vec::new(),
    };
    let arguments = write_config(kind, &layout)?;
    let mut command = match launch.under.split_first() {
        None => place.command(&program),
        Some((first, rest)) => {
            let mut command = place.command(first);
            command.args(rest).arg(&program);
            command
        }
    };
    command.args(arguments);
    let mut process = Process::start(kind.label(), &mut command)?;
    let hosts: Vec<_> = sites.iter().map(|site| site.name.clone()).collect();
    let waited =
        place.inside(|| ready::wait(layout.listen, &hosts, || process.ended().is_some()))?;
    if let Err(why) = waited {
        process.kill();
        return Err(FrontError::Silent {
            name: kind.label(),
            address: layout.listen,
            why,
            told: told(&process, &layout.folder),
        });
    }
    Ok(FrontEnd {
        address: layout.listen,
        admin: matches!(kind, FrontKind::Tidegate(_)).then_some(layout.admin),
        name: kind.label(),
        process,
        _agents: agents,
        _folder: folder,
    })
}

/// Writes the configuration; the program's arguments.
fn write_config(kind: &FrontKind, layout: &Layout) -> Result<Vec<String>, FrontError> {
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
        FrontKind::Envoy => {
            let file = write("envoy.yaml", envoy::config(layout))?;
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

/// What the program said, on its streams and in its own log.
fn told(process: &Process, folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("error.log")).unwrap_or_default();
    format!("{}\n{}", process.told(), log.trim())
        .trim()
        .to_owned()
}

fn layout(
    place: &Place,
    kind: &FrontKind,
    sites: &[SiteTargets],
    cluster: &Cluster,
    launch: &Launch,
    folder: PathBuf,
) -> Result<Layout, FrontError> {
    let ports = place.inside(|| [free(place.address()), free(Ipv4Addr::LOCALHOST.into())])?;
    let [listen, admin] = ports.map(|port| port.map_err(FrontError::file(&folder)));
    let site = |site: &SiteTargets| {
        let server = |node: &usize| server(kind, site, cluster, *node);
        let servers = site.nodes.iter().map(server).collect::<Result<_, _>>()?;
        Ok::<_, FrontError>(Site {
            name: site.name.clone(),
            servers,
        })
    };
    Ok(Layout {
        listen: listen?,
        admin: admin?,
        sites: sites.iter().map(site).collect::<Result<_, _>>()?,
        front_ends: launch.front_ends,
        folder,
    })
}

fn server(
    kind: &FrontKind,
    site: &SiteTargets,
    cluster: &Cluster,
    node: usize,
) -> Result<Server, FrontError> {
    let node = &cluster.nodes()[node];
    let load = match kind {
        FrontKind::Tidegate(arm) => match arm.agent {
            None => Load::None,
            Some(agent) => {
                let found = node.agents.iter().find(|it| it.name == agent);
                let found = found.ok_or_else(|| FrontError::NoAgent {
                    name: arm.name.clone(),
                    agent,
                    node: node.name.clone(),
                })?;
                load(&found.load)
            }
        },
        FrontKind::Haproxy(_) | FrontKind::Nginx(_) | FrontKind::Apache | FrontKind::Envoy => {
            Load::None
        }
    };
    let agent_check = SocketAddr::new(node.address.ip(), AGENT_CHECK_PORT);
    Ok(Server {
        name: format!("{}-{}", site.name, node.name),
        address: node.address,
        load,
        agent_check: kind.needs_agent_check().then_some(agent_check),
    })
}

fn load(at: &LoadAt) -> Load {
    match at {
        LoadAt::Udp { address, key_file } => Load::Udp {
            address: *address,
            key_file: key_file.clone(),
        },
        LoadAt::Shm { path } => Load::Shm { path: path.clone() },
    }
}

/// A port that nobody listens on.
fn free(ip: IpAddr) -> std::io::Result<SocketAddr> {
    TcpListener::bind((ip, 0))?.local_addr()
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
