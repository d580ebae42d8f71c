//! A cluster on one machine: nodes that have their own network, CPU share, server and agents.
//!
//! ```text
//!  CPU 0                                CPU 1
//!  front namespace                      node namespace, one per node
//!  front-ends, load generators ──veth── server ┐
//!  agents that stand beside             agents ├─ one control group: the node's quota
//!                                       antagonists ┘
//! ```
//!
//! **Namespaces mode** (root) is real: packets through the kernel, a scheduler with quotas,
//! agents that read the kernel's files. Eight nodes of a tenth of a CPU share one honestly.
//! **Loopback mode** needs nothing and emulates what it cannot set apart:
//! [`Cluster::emulated`] says what, and results must repeat it.
//!
//! Everything is undone when the cluster is dropped, on SIGINT, SIGTERM and SIGHUP, and after
//! SIGKILL by [`clean`], which finds all by its name.
//!
//! What it does not know: requests, front-ends, experiments.

mod answer;
mod ending;
mod error;
mod group;
mod guard;
mod host;
mod keys;
mod loopback;
mod mode;
mod name;
mod network;
mod place;
mod plan;
mod process;
mod real;
mod run;
mod servers;
mod sweep;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::ClusterError;
pub use group::PERIOD_US;
pub use guard::Guard;
pub use host::Host;
pub use keys::KeyAt;
pub use name::Owner;
pub use place::Place;
pub use plan::{AgentPlan, ClusterPlan, Mode, NodePlan, Placed, ServerKind};
pub use process::Process;
pub use run::{lab, tidegate};
pub use sweep::{Swept, clean};
pub use tidegate_emulator::{CachePlan, NODE_MEMORY};

use crate::antagonist::Antagonist;
use crate::auction::files;

/// A running cluster; gone when dropped.
#[derive(Debug)]
pub struct Cluster {
    mode: Mode,
    emulated: Vec<String>,
    nodes: Vec<Node>,
    machines: Machines,
}

#[derive(Debug)]
enum Machines {
    Real(real::Machines),
    Emulated(loopback::Machines),
}

/// One node as others see it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where its server answers.
    pub address: SocketAddr,
    /// What tells its load.
    pub agents: Vec<AgentAt>,
    /// Its share of one CPU.
    pub share: f64,
    /// What serves there.
    pub server: ServerKind,
    place: Place,
}

impl Node {
    /// Where its server runs: what is started here takes from the node's share.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Asks its database something; what it answers, a line per row. That takes from the node's share.
    ///
    /// # Errors
    /// If it has none, or the database refuses.
    pub fn ask_database(&self, query: &str) -> Result<String, ClusterError> {
        match self.server.is_web() {
            true => Err(ClusterError::Plan(format!("{} is no database", self.name))),
            false => servers::ask(&self.place, self.address, files::USER, query),
        }
    }
}

/// One agent as front-ends see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAt {
    /// Its name in the plan.
    pub name: &'static str,
    /// How it is read.
    pub load: LoadAt,
}

/// How a node's load is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadAt {
    /// From an agent, over UDP.
    Udp {
        /// Where it answers.
        address: SocketAddr,
        /// Its key.
        key: KeyAt,
    },
    /// From shared memory.
    Shm {
        /// The region's file.
        path: PathBuf,
    },
}

impl Cluster {
    /// Starts it. Every server and agent has answered when this returns.
    ///
    /// Its processes die with the thread that calls this: keep it until the cluster is dropped.
    pub fn start(plan: &ClusterPlan) -> Result<Self, ClusterError> {
        plan.check()?;
        ending::arm()?;
        let (mode, why) = mode::choose(plan.mode)?;
        let machines = match mode {
            Mode::Namespaces => Machines::Real(real::Machines::start(plan)?),
            Mode::Loopback => {
                let why = why.unwrap_or_default();
                Machines::Emulated(loopback::Machines::start(plan, &why)?)
            }
        };
        let (emulated, nodes) = match &machines {
            Machines::Real(real) => (real.emulated(), real.nodes()),
            Machines::Emulated(emulated) => (emulated.emulated(), emulated.nodes()),
        };
        Ok(Self {
            mode,
            emulated,
            nodes,
            machines,
        })
    }

    /// How nodes are kept apart.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What is not as on real machines, one sentence each, for the report.
    pub fn emulated(&self) -> Vec<String> {
        self.emulated.clone()
    }

    /// Where load generators run: the front's network and CPU, outside version 1's cpu hierarchy as
    /// agents beside nodes are, so that they may ask for real-time priority. Clients are other
    /// machines in truth.
    pub fn clients(&self) -> &Place {
        match &self.machines {
            Machines::Real(real) => real.clients(),
            Machines::Emulated(emulated) => emulated.front(),
        }
    }

    /// Where front-ends run.
    pub fn front(&self) -> &Place {
        match &self.machines {
            Machines::Real(real) => real.front(),
            Machines::Emulated(emulated) => emulated.front(),
        }
    }

    /// Another place beside the front: the same network, a control group and a CPU of its own,
    /// so that what runs there can be limited and accounted for alone. Loopback mode has none.
    pub fn aside(&self, name: &str, cpu: u32) -> Result<Place, ClusterError> {
        match &self.machines {
            Machines::Real(real) => real.aside(name, cpu),
            Machines::Emulated(_) => Err(ClusterError::Loopback("a control group of its own")),
        }
    }

    /// A host apart from the front, on the same network and CPU, whose cable can be pulled. Loopback mode has none.
    pub fn host(&self) -> Result<Host, ClusterError> {
        match &self.machines {
            Machines::Real(real) => real.host(),
            Machines::Emulated(_) => Err(ClusterError::Loopback("a host of its own")),
        }
    }

    /// The nodes in the order of the plan.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A folder for the cluster's temporary files; it goes with the cluster.
    pub fn folder(&self) -> &Path {
        match &self.machines {
            Machines::Real(real) => real.folder(),
            Machines::Emulated(emulated) => emulated.folder(),
        }
    }

    /// Lets an antagonist work on the node until the guard is dropped.
    pub fn antagonist(&self, node: usize, kind: &Antagonist) -> Result<Guard, ClusterError> {
        let at = self.node(node)?;
        match &self.machines {
            Machines::Real(_) => Guard::start(&at.place, kind, (&at.name, Some(at.address))),
            Machines::Emulated(emulated) => Ok(emulated.antagonist(node, kind).into()),
        }
    }

    /// Lets an antagonist work on the front-ends' CPU until the guard is dropped. In a control group of
    /// the same weight as theirs, it gets half of what both want. Loopback mode has no such groups.
    pub fn beside_front(&self, kind: &Antagonist) -> Result<Guard, ClusterError> {
        match &self.machines {
            Machines::Real(real) => real.beside_front(kind),
            Machines::Emulated(_) => Err(ClusterError::Loopback("a share of the front-ends' CPU")),
        }
    }

    /// Kills the node's server and the agents inside it, as a crash would. In loopback mode all
    /// its agents go.
    pub fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        self.node(node)?;
        match &mut self.machines {
            Machines::Real(real) => real.kill(node)?,
            Machines::Emulated(emulated) => emulated.kill(node),
        }
        Ok(())
    }

    /// Stands the node's server and the agents inside it still, as a pause would. In loopback
    /// mode all its agents stand still.
    pub fn stop(&mut self, node: usize) -> Result<(), ClusterError> {
        self.node(node)?;
        match &mut self.machines {
            Machines::Real(real) => real.stop(node)?,
            Machines::Emulated(emulated) => emulated.stop(node),
        }
        Ok(())
    }

    /// Lets a stopped node go on.
    pub fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        self.node(node)?;
        match &mut self.machines {
            Machines::Real(real) => real.resume(node)?,
            Machines::Emulated(emulated) => emulated.resume(node),
        }
        Ok(())
    }

    /// Starts a killed node again; it has answered when this returns.
    pub fn revive(&mut self, node: usize) -> Result<(), ClusterError> {
        self.node(node)?;
        match &mut self.machines {
            Machines::Real(real) => real.revive(node),
            Machines::Emulated(emulated) => emulated.revive(node),
        }
    }

    /// Makes each request that comes to the node from now on cost so many times as much; 1 undoes
    /// it. Only the test server can.
    pub fn slow_down(&self, node: usize, times: u32) -> Result<(), ClusterError> {
        let address = self.node(node)?.address;
        answer::to(self.front(), address, &format!("/slow?times={times}"))
    }

    /// Lets the nodes' CPU take in what comes for the node, as a host of its own would; else the
    /// sender's does.
    pub fn receive_on_nodes_cpu(&self, node: usize) -> Result<(), ClusterError> {
        match &self.machines {
            Machines::Real(real) => real.receive_on_nodes_cpu(node),
            Machines::Emulated(_) => Err(ClusterError::Loopback("a network interface")),
        }
    }

    /// CPU time that the node has used so far, by whatever in it; zero for no node.
    pub fn cpu_time(&self, node: usize) -> Duration {
        match &self.machines {
            Machines::Real(real) => real.cpu_time(node),
            Machines::Emulated(emulated) => emulated.cpu_time(node),
        }
    }

    /// CPU time of the agents that stand beside the node: no part of [`Self::cpu_time`]. In
    /// loopback mode they cost nothing.
    pub fn beside_cpu_time(&self, node: usize) -> Duration {
        match &self.machines {
            Machines::Real(real) => real.beside_cpu_time(node),
            Machines::Emulated(_) => Duration::ZERO,
        }
    }

    fn node(&self, node: usize) -> Result<&Node, ClusterError> {
        let missing = || ClusterError::Plan(format!("there is no node {node}"));
        self.nodes.get(node).ok_or_else(missing)
    }
}
