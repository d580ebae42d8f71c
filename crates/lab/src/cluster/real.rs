//! Namespaces mode: nodes with a network, a control group, a server and agents of their own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_core::load::Rung;
use tidegate_remote::kernel::{Interface, PassThrough, pass_at};

use crate::antagonist::Antagonist;
use crate::awake::cpus;

use super::answer;
use super::group::{Purpose, Tree};
use super::name::{Owner, Stem};
use super::network::{self, Namespace, Network};
use super::plan::{BESIDE_FRONT, CLIENTS, FRONT};
use super::{
    AgentAt, AgentPlan, ClusterError, ClusterPlan, Guard, Host, KeyAt, LoadAt, Node, NodePlan,
    Place, Placed, Process, ending, servers, sweep,
};

/// The place of a switch.
const SWITCH: &str = "switch";
/// Ports of connections that front-ends and load generators make. Servers, agents and front-ends
/// listen below.
const EPHEMERAL: &str = "16384 65535";

/// What was made is swept when this is dropped.
#[derive(Debug)]
pub(super) struct Sweeper(pub(super) Stem);

impl Drop for Sweeper {
    fn drop(&mut self) {
        // What is left is found by `clean`; a drop cannot report it.
        sweep::sweep(&|name| name.starts_with(self.0.text()));
    }
}

/// See the module. Fields are dropped in this order: processes first, what holds them last.
#[derive(Debug)]
pub(super) struct Machines {
    machines: Vec<Machine>,
    front: Place,
    clients: Place,
    /// In a control group like the front's.
    beside_front: Place,
    folder: PathBuf,
    emulated: Vec<String>,
    /// What native XDP needs at the switch's ends of the cables.
    passes: Vec<PassThrough>,
    network: Network,
    sweeper: Sweeper,
}

#[derive(Debug)]
struct Machine {
    plan: NodePlan,
    address: SocketAddr,
    /// Where its server keeps files; all users may read them.
    files: PathBuf,
    /// Where its server's process is named, for its agents: in the cluster's folder, which goes with it.
    pid_file: PathBuf,
    server: Option<Process>,
    agents: Vec<Option<Process>>,
    /// In the node's namespace and group.
    inside: Place,
    /// In the node's namespace, but not in its group; only if there are such agents.
    beside: Option<Place>,
}

/// Makes namespaces and groups.
struct Maker<'a> {
    stem: &'a Stem,
    folder: &'a Path,
    tree: Tree,
}

impl Maker<'_> {
    fn place(
        &self,
        name: &str,
        namespace: Namespace,
        purpose: Purpose,
        cpu: Option<u32>,
        address: Ipv4Addr,
    ) -> Result<Place, ClusterError> {
        let group = {
            let _passage = ending::pass();
            self.tree.make(&self.stem.name(name), purpose)?
        };
        Ok(Place {
            mark: self.stem.name(name),
            namespace: Some(namespace),
            group: Some(Arc::new(group)),
            cpu,
            address: address.into(),
        })
    }

    /// A node in its namespace; nothing runs yet.
    fn machine(
        &self,
        index: usize,
        node: &NodePlan,
        namespace: Namespace,
        (front_cpu, node_cpu): (Option<u32>, Option<u32>),
    ) -> Result<Machine, ClusterError> {
        let address = network::address(index)?;
        let space = namespace.clone();
        let inside = self.place(&node.name, space, Purpose::Node, node_cpu, address)?;
        inside.limit(Some(node.share))?;
        let is_beside = |agent: &AgentPlan| agent.place != Placed::Inside;
        let beside = if node.agents.iter().any(is_beside) {
            let name = format!("{}.beside", node.name);
            Some(self.place(&name, namespace, Purpose::Watch, front_cpu, address)?)
        } else {
            None
        };
        let files = self.stem.name(&format!("{}.www", node.name));
        Ok(Machine {
            plan: node.clone(),
            address: (address, node.server.port()).into(),
            files: self.folder.with_file_name(files),
            pid_file: self.folder.join(format!("{}.pid", node.name)),
            server: None,
            agents: node.agents.iter().map(|_| None).collect(),
            inside,
            beside,
        })
    }
}

impl Machines {
    pub(super) fn start(plan: &ClusterPlan) -> Result<Self, ClusterError> {
        let stem = Owner::this()?.next();
        let sweeper = Sweeper(stem.clone());
        let mut emulated = Vec::new();
        let front_cpu = pin(plan.front_cpu, "front-ends", &mut emulated);
        let node_cpu = pin(plan.node_cpu, "nodes", &mut emulated);
        let tree = Tree::find().map_err(ClusterError::Missing)?;
        let folder = folder(&stem)?;
        let maker = Maker {
            stem: &stem,
            folder: &folder,
            tree,
        };
        for node in &plan.nodes {
            KeyAt::of(&node.name, &folder).make()?;
        }
        let mut agents = plan.nodes.iter().flat_map(|it| &it.agents);
        let native = agents.any(wants_native);
        let network = {
            let _passage = ending::pass();
            match native {
                true => Network::switched(&stem)?,
                false => Network::flat(&stem)?,
            }
        };
        let before = |name, purpose| {
            let namespace = network.front.clone();
            maker.place(name, namespace, purpose, front_cpu, network::FRONT)
        };
        let mut machines = Self {
            machines: Vec::new(),
            front: before(FRONT, Purpose::Node)?,
            clients: before(CLIENTS, Purpose::Watch)?,
            beside_front: before(BESIDE_FRONT, Purpose::Node)?,
            folder: folder.clone(),
            emulated,
            passes: Vec::new(),
            network: network.clone(),
            sweeper,
        };
        machines.widen_ports()?;
        for (index, node) in plan.nodes.iter().enumerate() {
            let namespace = {
                let _passage = ending::pass();
                network.node(&stem, index, &node.name)?
            };
            let machine = maker.machine(index, node, namespace, (front_cpu, node_cpu))?;
            if !machine.inside.limit_memory(node.memory)? && index == 0 {
                let said = "The nodes' memory is not limited: no memory controller is mounted.";
                machines.emulated.push(said.into());
            }
            machines.machines.push(machine);
        }
        if native {
            let bridge = network.bridge.clone();
            let switch = maker.place(SWITCH, bridge, Purpose::Watch, front_cpu, network::FRONT)?;
            machines.passes = pass_at_all(&switch)?;
        }
        for index in 0..machines.machines.len() {
            machines.revive(index)?;
        }
        Ok(machines)
    }

    /// Room for many connections that were just closed, as load generators leave them.
    fn widen_ports(&self) -> Result<(), ClusterError> {
        let settings = [("ip_local_port_range", EPHEMERAL), ("tcp_tw_reuse", "1")];
        self.front.inside(|| {
            settings.iter().try_for_each(|(name, value)| {
                let path = format!("/proc/sys/net/ipv4/{name}");
                fs::write(&path, value).map_err(ClusterError::file("write", path))
            })
        })?
    }

    pub(super) fn emulated(&self) -> Vec<String> {
        self.emulated.clone()
    }

    pub(super) fn front(&self) -> &Place {
        &self.front
    }

    pub(super) fn clients(&self) -> &Place {
        &self.clients
    }

    pub(super) fn aside(&self, name: &str, cpu: u32) -> Result<Place, ClusterError> {
        let _passage = ending::pass();
        let name = self.sweeper.0.name(name);
        let tree = Tree::find().map_err(ClusterError::Missing)?;
        let group = tree.make(&name, Purpose::Node)?;
        Ok(Place {
            mark: name,
            group: Some(Arc::new(group)),
            cpu: pin(cpu, "front-ends", &mut Vec::new()),
            ..self.front.clone()
        })
    }

    /// See [`super::Cluster::beside_front`].
    pub(super) fn beside_front(&self, kind: &Antagonist) -> Result<Guard, ClusterError> {
        Guard::start(&self.beside_front, kind, ("the front", None))
    }

    pub(super) fn host(&self) -> Result<Host, ClusterError> {
        let _passage = ending::pass();
        let nodes = self.machines.len();
        Host::make(&self.sweeper.0, &self.network, nodes, &self.front)
    }

    pub(super) fn nodes(&self) -> Vec<Node> {
        let node = |machine: &Machine| Node {
            name: machine.plan.name.clone(),
            address: machine.address,
            agents: machine.agents_at(&self.folder),
            share: machine.plan.share,
            server: machine.plan.server,
            place: machine.inside.clone(),
        };
        self.machines.iter().map(node).collect()
    }

    fn machine_mut(&mut self, node: usize) -> Result<&mut Machine, ClusterError> {
        self.machines.get_mut(node).ok_or_else(|| no_node(node))
    }

    pub(super) fn kill(&mut self, node: usize) -> Result<(), ClusterError> {
        for process in self.machine_mut(node)?.own() {
            process.take();
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, node: usize) -> Result<(), ClusterError> {
        self.signal(node, Signal::STOP)
    }

    pub(super) fn resume(&mut self, node: usize) -> Result<(), ClusterError> {
        self.signal(node, Signal::CONT)
    }

    fn signal(&mut self, node: usize, signal: Signal) -> Result<(), ClusterError> {
        for process in self.machine_mut(node)?.own().flatten() {
            process.signal(signal);
        }
        Ok(())
    }

    /// Starts what of the node does not run, and waits until it answers.
    pub(super) fn revive(&mut self, node: usize) -> Result<(), ClusterError> {
        let (front, folder) = (self.front.clone(), self.folder.clone());
        let mut databases = self.machines.iter().filter(|it| !it.plan.server.is_web());
        let database = databases.next().map(|it| it.address);
        let machine = self.machine_mut(node)?;
        machine.start_server(&front, database)?;
        machine.start_agents(&front, &folder)
    }

    /// Packets for the node are taken in by the nodes' CPU, as by a host of its own.
    pub(super) fn receive_on_nodes_cpu(&self, node: usize) -> Result<(), ClusterError> {
        let machine = self.machines.get(node).ok_or_else(|| no_node(node))?;
        let (Some(namespace), Some(cpu)) = (&machine.inside.namespace, machine.inside.cpu) else {
            return Err(ClusterError::Missing(
                "the nodes have no CPU of their own".into(),
            ));
        };
        self.network.receive_on(namespace, cpu)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn cpu_time(&self, node: usize) -> Duration {
        let machine = self.machines.get(node);
        machine.map_or(Duration::ZERO, |machine| machine.inside.cpu_time())
    }

    pub(super) fn beside_cpu_time(&self, node: usize) -> Duration {
        let beside = self.machines.get(node).and_then(|it| it.beside.as_ref());
        beside.map_or(Duration::ZERO, Place::cpu_time)
    }
}

impl Machine {
    /// The server and the agents that share its fate.
    fn own(&mut self) -> impl Iterator<Item = &mut Option<Process>> {
        let plans = self.plan.agents.iter();
        let agents = self.agents.iter_mut().zip(plans);
        let inside = agents.filter(|(_, plan)| plan.place == Placed::Inside);
        std::iter::once(&mut self.server).chain(inside.map(|(process, _)| process))
    }

    /// Records of agents are read from memory of this host: a read is then one-sided, like one
    /// by RDMA, and costs the front's CPU a hundredth of a datagram. The kernel is asked over the
    /// network.
    fn agents_at(&self, folder: &Path) -> Vec<AgentAt> {
        let at = |plan: &AgentPlan| AgentAt {
            name: plan.name,
            load: match asks_network(plan) {
                false => LoadAt::Shm {
                    path: self.region(plan, folder),
                },
                true => LoadAt::Udp {
                    address: (self.address.ip(), plan.port).into(),
                    key: KeyAt::of(&self.plan.name, folder),
                },
            },
        };
        self.plan.agents.iter().map(at).collect()
    }

    /// The file that an agent publishes in.
    fn region(&self, agent: &AgentPlan, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}", self.plan.name, agent.name))
    }

    fn start_server(
        &mut self,
        front: &Place,
        database: Option<SocketAddr>,
    ) -> Result<(), ClusterError> {
        if self.server.is_some() {
            return Ok(());
        }
        let (plan, place) = (&self.plan, &self.inside);
        if !plan.server.is_web() {
            // Filling a database is no part of what is measured.
            place.limit(None)?;
        }
        let mut command = servers::command(plan, self.address, database, place, &self.files)?;
        let name = format!("the server of {}", plan.name);
        let mut process = Process::start(name, &mut command)?;
        servers::ready(
            plan,
            self.address,
            (front, place),
            &self.files,
            &mut process,
        )?;
        if !plan.server.is_web() {
            place.limit(Some(plan.share))?;
        }
        if plan.files.is_some() {
            let path = &self.pid_file;
            let pid = format!("{}\n", process.id());
            fs::write(path, pid).map_err(ClusterError::file("write", path))?;
        }
        self.server = Some(process);
        Ok(())
    }

    fn start_agents(&mut self, front: &Place, folder: &Path) -> Result<(), ClusterError> {
        let key = KeyAt::of(&self.plan.name, folder);
        let watched = self.pid_file.clone();
        let regions: Vec<_> = self
            .plan
            .agents
            .iter()
            .map(|plan| self.region(plan, folder))
            .collect();
        let agents = self.plan.agents.iter().zip(&mut self.agents);
        for ((plan, running), region) in agents.zip(regions) {
            if running.is_some() {
                continue;
            }
            let address = SocketAddr::new(self.address.ip(), plan.port);
            let on_nodes_cpu;
            let place = match (plan.place, &self.beside) {
                (Placed::Inside, _) | (_, None) => &self.inside,
                (Placed::Beside | Placed::Kernel, Some(beside)) => beside,
                (Placed::Unlimited, Some(beside)) => {
                    let cpu = self.inside.cpu;
                    on_nodes_cpu = Place {
                        cpu,
                        ..beside.clone()
                    };
                    &on_nodes_cpu
                }
            };
            let mut command = place.command(super::tidegate()?);
            command
                .arg("agent")
                .arg("--listen")
                .arg(format!("{address}"));
            command.arg("--key-file").arg(&key.file);
            if !asks_network(plan) {
                command.arg("--shm").arg(region);
            }
            command.args(plan.rungs.iter().flat_map(|rung| ["--rung", rung]));
            if wants_native(plan) {
                command.arg("--veth-native");
            }
            command
                .arg("--interval")
                .arg(format!("{}us", plan.interval.as_micros()));
            command.args(
                self.inside
                    .scope()
                    .iter()
                    .flat_map(|scope| ["--scope", scope]),
            );
            if self.plan.files.is_some() {
                command.arg("--watch").arg(&watched);
            }
            if let Some(port) = plan.agent_check {
                let at = SocketAddr::new(address.ip(), port);
                command.arg("--agent-check").arg(at.to_string());
            }
            if plan.place == Placed::Inside {
                command.arg("--no-realtime");
            }
            let name = format!("agent {} of {}", plan.name, self.plan.name);
            let mut process = Process::start(name, &mut command)?;
            answer::of_agent(front, address, &key, plan.rungs, &mut process)?;
            *running = Some(process);
        }
        Ok(())
    }
}

/// Whether front-ends ask it over the network: what the kernel makes is not in a file.
fn asks_network(agent: &AgentPlan) -> bool {
    let user = |rung: &&str| ["agent_realtime", "agent"].contains(rung);
    !agent.rungs.iter().all(user)
}

/// Whether the other ends of the nodes' cables must have programs too.
fn wants_native(agent: &AgentPlan) -> bool {
    agent.rungs.contains(&Rung::XdpNative.label())
}

/// Programs at the switch's ports, without which native answers are lost.
fn pass_at_all(switch: &Place) -> Result<Vec<PassThrough>, ClusterError> {
    let pass = || -> std::io::Result<Vec<PassThrough>> {
        // A bridge takes none, and needs none.
        let interfaces = Interface::all()?;
        let passes = interfaces.iter().filter_map(|it| pass_at(&it.name).ok());
        Ok(passes.collect())
    };
    let listed = switch.inside(pass)?;
    listed.map_err(|error| ClusterError::Missing(format!("the network interfaces: {error}")))
}

fn no_node(node: usize) -> ClusterError {
    ClusterError::Plan(format!("there is no node {node}"))
}

/// A temporary folder for this user alone.
pub(super) fn folder(stem: &Stem) -> Result<PathBuf, ClusterError> {
    let _passage = ending::pass();
    let parents = sweep::folders();
    let parent = parents
        .first()
        .ok_or_else(|| ClusterError::Missing("there is no folder for temporary files".into()))?;
    let path = parent.join(stem.name("files"));
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(&path)
        .map_err(ClusterError::file("make", &path))?;
    Ok(path)
}

/// The CPU if it is there; else a sentence that says so.
fn pin(cpu: u32, who: &str, said: &mut Vec<String>) -> Option<u32> {
    if cpus().contains(&(cpu as usize)) {
        return Some(cpu);
    }
    said.push(format!(
        "CPU {cpu} is not there: {who} run on whichever CPU is free"
    ));
    None
}
