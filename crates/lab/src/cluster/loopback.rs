//! Loopback mode: emulated nodes on 127.0.0.1, without privileges.
//!
//! Front-ends and load generators are real processes of this machine and share all its CPUs
//! with the emulation; nothing limits them and nothing counts what they use.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::name::Owner;
use super::plan::FRONT;
use super::real::{Sweeper, folder};
use super::{
    AgentAt, ClusterError, ClusterPlan, LoadAt, Node, NodePlan, Place, Placed, ServerKind,
};
use crate::antagonist::Antagonist;
use tidegate_emulator::nodes::{self as emulated, Neighbour};

/// See the module.
#[derive(Debug)]
pub(super) struct Machines {
    machines: emulated::Machines,
    plans: Vec<NodePlan>,
    front: Place,
    folder: PathBuf,
    emulated: Vec<String>,
    _sweeper: Sweeper,
}

impl Machines {
    /// `why` there is no namespaces mode.
    pub(super) fn start(plan: &ClusterPlan, why: &str) -> Result<Self, ClusterError> {
        let other = plan
            .nodes
            .iter()
            .find(|node| node.server != ServerKind::Test);
        if let Some(node) = other {
            return Err(ClusterError::Plan(format!(
                "{} is to run {}, which needs namespaces: {why}",
                node.name,
                node.server.name()
            )));
        }
        let stem = Owner::this()?.next();
        let sweeper = Sweeper(stem.clone());
        let folder = folder(&stem)?;
        let nodes: Vec<_> = plan.nodes.iter().map(emulated_plan).collect();
        let machines = emulated::Machines::start(&nodes, &folder)?;
        let front = Place {
            mark: stem.name(FRONT),
            namespace: None,
            group: None,
            cpu: None,
            address: Ipv4Addr::LOCALHOST.into(),
        };
        Ok(Self {
            machines,
            plans: plan.nodes.clone(),
            front,
            folder,
            emulated: sentences(why),
            _sweeper: sweeper,
        })
    }

    pub(super) fn emulated(&self) -> Vec<String> {
        self.emulated.clone()
    }

    pub(super) fn front(&self) -> &Place {
        &self.front
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        let places = self
            .machines
            .addresses()
            .iter()
            .zip(self.machines.regions());
        let node = |(plan, (address, regions)): (&NodePlan, (&SocketAddr, &Vec<PathBuf>))| Node {
            name: plan.name.clone(),
            address: *address,
            agents: agents_at(plan, regions),
            share: plan.share,
            server: plan.server,
            place: self.front.clone(),
        };
        self.plans.iter().zip(places).map(node).collect()
    }

    pub(super) fn antagonist(&self, node: usize, kind: &Antagonist) -> Neighbour {
        self.machines.antagonist(node, kind)
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.machines.kill(node);
    }

    pub(super) fn stop(&mut self, node: usize) {
        self.machines.stop(node);
    }

    pub(super) fn resume(&mut self, node: usize) {
        self.machines.resume(node);
    }

    pub(super) fn revive(&mut self, node: usize) -> Result<(), ClusterError> {
        Ok(self.machines.revive(node)?)
    }

    pub(super) fn cpu_time(&self, node: usize) -> Duration {
        let nodes = self.machines.now();
        nodes.get(node).map_or(Duration::ZERO, |node| node.busy)
    }
}

fn emulated_plan(plan: &NodePlan) -> emulated::NodePlan {
    let agents = plan.agents.iter().map(|agent| emulated::AgentPlan {
        interval: agent.interval,
        inside: agent.place == Placed::Inside,
    });
    emulated::NodePlan {
        name: plan.name.clone(),
        cores: plan.share,
        workers: plan.workers as usize,
        cache: plan.cache,
        agents: agents.collect(),
    }
}

fn agents_at(plan: &NodePlan, regions: &[PathBuf]) -> Vec<AgentAt> {
    let at = |(agent, path): (&super::AgentPlan, &PathBuf)| AgentAt {
        name: agent.name,
        load: LoadAt::Shm { path: path.clone() },
    };
    plan.agents.iter().zip(regions).map(at).collect()
}

fn sentences(why: &str) -> Vec<String> {
    vec![
        format!("Loopback mode, because there is no namespaces mode here: {why}."),
        "The nodes' CPUs are computed: requests and antagonists share them by exact processor sharing, without time slices or throttling.".into(),
        "Load records are read from shared memory; an agent inside a node is one of its tasks, one beside it is never late.".into(),
        "Front-ends, load generators and the emulation share this machine's CPUs without limits.".into(),
    ]
}
