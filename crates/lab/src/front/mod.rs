//! Front-ends under test: Tidegate and its peers, each configured as its own users would.
//!
//! Each has one worker, keeps its connections to servers, writes no access log and checks its
//! servers as it does by default or as its manual's example does; the file of each peer says
//! which. A front-end is ready when a request through it is answered by a server; it is killed
//! with everything that it started when it is dropped.
//!
//! What it does not know: which load will come, and which one wins.

mod agent_check;
mod apache;
mod certificate;
mod change;
mod envoy;
mod haproxy;
mod layout;
mod nginx;
mod ports;
mod programs;
mod ready;
mod snmp;
mod start;
mod throttle;
mod tidegate;
mod two_sided;
mod usage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Cluster, ClusterError, Mode, Place, Process};

pub use agent_check::{AgentCheckArgs, run as agent_check};
pub use certificate::Certificate;
pub use change::move_node;
pub use envoy::EnvoyFilter;
pub use haproxy::HaproxyBalance;
pub use layout::{Discovered, Layout, Load, Secure, Server, Site};
pub use nginx::NginxBalance;
pub use ready::answers;
pub use start::{
    Features, helpers, server, start, start_many, start_one_of, start_to_change, start_under,
    start_with,
};
pub use throttle::report;
pub use tidegate::{ACCESS_LOG, Moving, Throttled, TidegateArm};

/// What is read of an answer of Tidegate's interface.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Longest wait for a front-end to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is put before the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontKind {
    /// This project's.
    Tidegate(TidegateArm),
    /// HAProxy.
    Haproxy(HaproxyBalance),
    /// nginx.
    Nginx(NginxBalance),
    /// Apache with `mod_proxy_balancer`, by busyness.
    Apache,
    /// Envoy, by least request.
    Envoy(EnvoyFilter),
}

impl FrontKind {
    /// The arm's name.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Tidegate(arm) => arm.name.clone(),
            Self::Haproxy(balance) => balance.label().into(),
            Self::Nginx(balance) => balance.label().into(),
            Self::Apache => "apache bybusyness".into(),
            Self::Envoy(filter) => filter.label().into(),
        }
    }

    fn program(&self) -> &'static str {
        match self {
            Self::Tidegate(_) => "tidegate",
            Self::Haproxy(_) => "haproxy",
            Self::Nginx(_) => "nginx",
            Self::Apache => "apache2",
            Self::Envoy(_) => "envoy",
        }
    }

    fn needs_agent_check(&self) -> bool {
        *self == Self::Haproxy(HaproxyBalance::AgentCheck)
    }
}

/// A site and the nodes that serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTargets {
    /// Its name, which is also its host.
    pub name: String,
    /// Its nodes, as numbers within the cluster.
    pub nodes: Vec<usize>,
}

/// Why there is no front-end.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// It is not on this machine.
    #[error("{0}")]
    Absent(String),
    /// It was started and does not proxy.
    #[error("{name} does not proxy on {address}: {why}{}", said(told))]
    Silent {
        /// The arm.
        name: String,
        /// Where it should listen.
        address: SocketAddr,
        /// The last attempt.
        why: String,
        /// What the program said.
        told: String,
    },
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The arm wants an agent that a node does not have.
    #[error("{name} reads the agent {agent}, which node {node} does not have")]
    NoAgent {
        /// The arm.
        name: String,
        /// The agent.
        agent: &'static str,
        /// The node.
        node: String,
    },
    /// It was to change while it runs, and did not.
    #[error("{name} does not change: {why}")]
    Unchanged {
        /// The arm.
        name: String,
        /// What it answers, or why it cannot be asked.
        why: String,
    },
    /// It was asked about itself, and has not answered.
    #[error("{name} does not say what it has: {why}")]
    Unknown {
        /// The arm.
        name: String,
        /// What it answers, or why it cannot be asked.
        why: String,
    },
    /// The place.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl FrontError {
    /// For `map_err`.
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }
}

fn said(told: &str) -> String {
    match told.trim() {
        "" => String::new(),
        told => format!("; it said: {told}"),
    }
}

/// A running front-end.
#[derive(Debug)]
pub struct FrontEnd {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Tidegate's admin interface.
    pub admin: Option<SocketAddr>,
    name: String,
    kind: FrontKind,
    layout: Layout,
    process: Process,
    _folder: start::Folder,
}

/// The version of the program, or why there is none.
pub fn available(kind: &FrontKind) -> Result<String, String> {
    let program = programs::find(kind.program())?;
    match kind {
        FrontKind::Apache => {
            programs::apache_modules()?;
            programs::version(&program, "-v")
        }
        FrontKind::Haproxy(_) | FrontKind::Nginx(_) => programs::version(&program, "-v"),
        FrontKind::Tidegate(arm) => {
            throttle::possible(&program, arm)?;
            programs::version(&program, "--version")
        }
        FrontKind::Envoy(_) => programs::version(&program, "--version"),
    }
}

/// The file of another program that an experiment needs and its version, or why there is none.
///
/// # Errors
/// A sentence that says how to get it.
pub fn installed(program: &str) -> Result<(PathBuf, String), String> {
    let file = programs::find(program)?;
    let version = programs::version(&file, "--version")?;
    Ok((file, version))
}

/// Whether it can stand before this cluster, or why not.
///
/// # Errors
/// If the nodes lack what it needs.
pub fn fits(kind: &FrontKind, cluster: &Cluster) -> Result<(), ClusterError> {
    match (kind, cluster.mode()) {
        (FrontKind::Tidegate(arm), Mode::Loopback) if arm.asks.is_some() => {
            Err(ClusterError::Loopback("a daemon in a node's quota"))
        }
        _ => Ok(()),
    }
}

/// Tidegate ends by itself, and writes what it keeps; others are killed.
impl Drop for FrontEnd {
    fn drop(&mut self) {
        if matches!(self.kind, FrontKind::Tidegate(_)) {
            self.process.end(PATIENCE);
        }
    }
}

impl FrontEnd {
    /// The arm's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process number, for tools that look at it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Where clients connect by TLS, if it was started so.
    #[must_use]
    pub fn secure(&self) -> Option<SocketAddr> {
        self.layout.secure.as_ref().map(|secure| secure.listen)
    }

    /// Memory that all its processes have resident, added up, in bytes.
    #[must_use]
    pub fn resident(&self) -> u64 {
        usage::group_resident(self.process.id())
    }

    /// The numbers of all its processes.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        usage::group(self.process.id())
    }

    /// The end of what it has said.
    #[must_use]
    pub fn told(&self) -> String {
        self.process.told()
    }

    /// Why it is no longer there, if it ended by itself.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.process.ended()?;
        Some(format!(
            "{} ended with {status}{}",
            self.name,
            said(&self.process.told())
        ))
    }

    /// How many nodes of this site Tidegate sends requests to, by its metrics; none of a front-end without them. `place` is
    /// where it runs.
    ///
    /// # Errors
    /// If it does not answer, or knows no such site.
    pub fn candidates(&self, place: &Place, site: &str) -> Result<Option<f64>, FrontError> {
        let Some(admin) = self.admin else {
            return Ok(None);
        };
        let name = format!("tidegate_site_candidates{{site=\"{site}\"}}");
        let count = place.inside(|| ready::metric(admin, &name))?;
        let unknown = |error: std::io::Error| FrontError::Unknown {
            name: self.name.clone(),
            why: error.to_string(),
        };
        count.map(Some).map_err(unknown)
    }

    /// What Tidegate's interface answers to `GET` of this path, as JSON. `place` is where it runs.
    ///
    /// # Errors
    /// If it has none, does not answer, or says no.
    pub fn answer(&self, place: &Place, path: &str) -> Result<Value, FrontError> {
        let unknown = |why: String| FrontError::Unknown {
            name: self.name.clone(),
            why,
        };
        let admin = self
            .admin
            .ok_or_else(|| unknown("it has no interface".into()))?;
        let answer = place.inside(|| ready::get(admin, path, ANSWER_BYTES_MAX))?;
        let answer = answer.map_err(|error| unknown(error.to_string()))?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        match head.split(' ').nth(1) {
            Some("200") => {
                serde_json::from_str(body).map_err(|error| unknown(format!("{path}: {error}")))
            }
            _ => Err(unknown(format!("{path}: {head} {}", body.trim()))),
        }
    }

    /// Kills it, as a machine that fails would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// CPU time of all its threads that still run.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        usage::group_cpu_time(self.process.id())
    }

    /// Time that these threads wanted a CPU and had none, added up.
    #[must_use]
    pub fn waited(&self) -> Duration {
        usage::group_waited(self.process.id())
    }
}
