//! What a cluster shall be: plain data.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_emulator::{CachePlan, NODE_MEMORY};

use super::ClusterError;
use super::network::NODES_MAX;

/// How nodes are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Network namespaces and CPU quotas: real servers that really compute. Needs root.
    Namespaces,
    /// Servers on 127.0.0.1 whose CPU is computed, not used.
    Loopback,
}

impl Mode {
    /// Its name, as in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Loopback => "loopback",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterPlan {
    /// The mode; the best one that works if none is given.
    pub mode: Option<Mode>,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// The CPU of front-ends and load generators.
    pub front_cpu: u32,
    /// The CPU that all nodes share.
    pub node_cpu: u32,
}

impl ClusterPlan {
    /// These nodes on the second CPU, everything else on the first.
    pub fn new(nodes: Vec<NodePlan>) -> Self {
        Self {
            mode: None,
            nodes,
            front_cpu: 0,
            node_cpu: 1,
        }
    }

    pub(super) fn check(&self) -> Result<(), ClusterError> {
        let wrong = |text: String| Err(ClusterError::Plan(text));
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return wrong(format!(
                "{} nodes; 1 to {NODES_MAX} are possible",
                self.nodes.len()
            ));
        }
        let mut names = BTreeSet::new();
        for node in &self.nodes {
            let plain = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
            if node.name.is_empty() || node.name.len() > NAME_MAX || !node.name.bytes().all(plain) {
                return wrong(format!(
                    "`{}` is no name: 1 to {NAME_MAX} letters, digits and hyphens",
                    node.name
                ));
            }
            if !names.insert(&node.name) || TAKEN.contains(&node.name.as_str()) {
                return wrong(format!("the name {} is taken", node.name));
            }
            if !(1..=WORKERS_MAX).contains(&node.workers) {
                return wrong(format!(
                    "{} workers; 1 to {WORKERS_MAX} are possible",
                    node.workers
                ));
            }
        }
        Ok(())
    }
}

/// Where web servers listen.
const WEB_PORT: u16 = 8080;
/// Where databases listen.
const DATABASE_PORT: u16 = 5432;
/// The front's name; no node may have it.
pub(super) const FRONT: &str = "front";
/// The load generators' name; no node may have it either.
pub(super) const CLIENTS: &str = "clients";
/// The name of what shares the front-ends' CPU; nor this one.
pub(super) const BESIDE_FRONT: &str = "beside-front";
const TAKEN: [&str; 3] = [FRONT, CLIENTS, BESIDE_FRONT];
/// Longest name of a node.
const NAME_MAX: usize = 32;
/// Most workers of a server.
const WORKERS_MAX: u32 = 512;

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// Its name.
    pub name: String,
    /// Its share of one CPU.
    pub share: f64,
    /// What serves.
    pub server: ServerKind,
    /// What tells its load.
    pub agents: Vec<AgentPlan>,
    /// Requests that it works on at once, as the processes of a prefork server.
    pub workers: u32,
    /// Bytes that it may use, where the machine can limit it.
    pub memory: u64,
    /// File descriptors that its server may have open, if it is the test server; none: as many as the system allows. Its
    /// agents then watch them.
    pub files: Option<u64>,
    /// Which files are cheap.
    pub cache: CachePlan,
    /// For what is drawn at random on this node.
    pub seed: u64,
}

impl NodePlan {
    /// A node with the test server, without agents.
    pub fn new(name: impl Into<String>, share: f64) -> Self {
        Self {
            name: name.into(),
            share,
            server: ServerKind::Test,
            agents: Vec::new(),
            workers: 16,
            memory: NODE_MEMORY,
            files: None,
            cache: CachePlan::default(),
            seed: 1,
        }
    }
}

/// What serves on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The lab's own server, which does a known amount of work per request.
    Test,
    /// nginx, with files of all sizes.
    Nginx,
    /// Apache with PHP in its processes.
    ApachePhp,
    /// nginx and PHP-FPM with the pages of the auction site; it asks the cluster's database.
    Auction,
    /// PostgreSQL with the tables of the auction site: no web server.
    Database,
}

impl ServerKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "the test server",
            Self::Nginx => "nginx",
            Self::ApachePhp => "Apache with PHP",
            Self::Auction => "nginx with PHP-FPM",
            Self::Database => "PostgreSQL",
        }
    }

    /// Whether it answers requests, and front-ends send some there.
    #[must_use]
    pub fn is_web(self) -> bool {
        match self {
            Self::Test | Self::Nginx | Self::ApachePhp | Self::Auction => true,
            Self::Database => false,
        }
    }

    /// Where it listens.
    pub(super) fn port(self) -> u16 {
        match self.is_web() {
            true => WEB_PORT,
            false => DATABASE_PORT,
        }
    }
}

/// One agent of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPlan {
    /// Its name; an arm of an experiment says which one it reads.
    pub name: &'static str,
    /// Time between two samples.
    pub interval: Duration,
    /// Where it runs.
    pub place: Placed,
    /// Its UDP port.
    pub port: u16,
    /// The rungs that it may try, by their labels.
    pub rungs: &'static [&'static str],
    /// Where it answers HAProxy's agent check, if it does.
    pub agent_check: Option<u16>,
}

/// Where an agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// In the node's control group and quota, at ordinary priority: the user-level monitoring
    /// of KLM-2005. When the node is busy, so is its agent.
    Inside,
    /// Outside the quota, on the front's CPU, at real-time priority where permitted: the
    /// nearest to a read by the kernel or the network card that a user-level agent comes.
    Beside,
    /// In the kernel: a program at the node's network interface answers over UDP with what it
    /// counts in the node's control group, and an agent beside the quota adds what only a
    /// process sees. Where the kernel takes no program, that agent answers.
    Kernel,
    /// Outside the quota, but on the nodes' CPU: nothing but its priority helps it.
    Unlimited,
}

impl Placed {
    /// The rungs that such an agent may try.
    #[must_use]
    pub const fn rungs(self) -> &'static [&'static str] {
        match self {
            Self::Inside => &["agent"],
            Self::Beside | Self::Unlimited => &["agent_realtime", "agent"],
            Self::Kernel => &[
                "xdp_generic",
                "tc",
                "kernel_record",
                "agent_realtime",
                "agent",
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_that_cannot_be_are_refused_with_a_reason() {
        let node = |name: &str| NodePlan::new(name, 0.1);
        let check = |nodes| ClusterPlan::new(nodes).check();
        check(vec![node("a"), node("b-1")]).unwrap();
        for (nodes, why) in [
            (vec![], "0 nodes"),
            (vec![node("a"), node("a")], "taken"),
            (vec![node("front")], "taken"),
            (vec![node("clients")], "taken"),
            (vec![node("a/b")], "no name"),
            (vec![node("")], "no name"),
            (
                vec![NodePlan {
                    workers: 0,
                    ..node("a")
                }],
                "workers",
            ),
            (vec![node("a"); NODES_MAX + 1], "nodes"),
        ] {
            let error = check(nodes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
