//! Which nodes serve what, as one immutable snapshot: the director makes it, all threads read it.
//!
//! A node and a site have names, which are what they are, and places in the tables ([`NodeId`], [`SiteId`]). A node's place
//! goes to another one only when nothing means the old one any more; a site's only to a site of the same name.

mod agent;
mod change;
mod check;
pub mod discovered;
mod health;
pub mod routes;
mod soft_limits;

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admission::AdmissionConfig;
pub use agent::{AgentAnswer, AgentDown, AgentHealth, AgentNews, AgentState, AgentWeight};
pub use change::{ChangeError, ClusterChange, Edit, GroupWanted, Named, NodeWanted};
pub use check::{
    BytesCheck, CheckConfig, CheckFailure, CheckMethod, CheckRequest, CheckResult, DnsCheck,
    DnsRecords, FtpLogin, HttpCheck, NfsVersion, SoaWanted,
};
pub use health::HealthConfig;

pub use crate::ids::{CHECKS_MAX, CheckId, CheckSet, GroupId, NodeId, SiteId};
pub use crate::load::Group;
use crate::policy::PolicyConfig;
pub use crate::policy::{Capacity, Share};
use crate::time::Timestamp;
use routes::Routes;
pub use soft_limits::{Crossing, NodeResource, SoftLimits};

/// What the configuration says of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSpec {
    /// Its name.
    pub name: String,
    /// Hosts that it serves: exact, `*.suffix`, or `*` for all others. See [`routes`].
    pub hosts: Vec<String>,
    /// Path prefixes that it serves; empty means all.
    pub paths: Vec<String>,
    /// How its nodes are picked.
    pub policy: PolicyConfig,
    /// What comes in at all.
    pub admission: AdmissionConfig,
    /// How its nodes are looked after.
    pub health: HealthConfig,
}

/// What the configuration says of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Where it serves HTTP.
    pub address: SocketAddr,
    /// The site that it serves at the start.
    pub site: SiteId,
    /// Its share relative to others, for policies that have no better knowledge.
    pub weight: f32,
    /// What it has of each resource, for `slbl`.
    pub capacity: Capacity,
}

/// What the configuration says of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSpec {
    /// Sites; a [`SiteId`] is an index here.
    pub sites: Vec<SiteSpec>,
    /// Nodes; a [`NodeId`] is an index here.
    pub nodes: Vec<NodeSpec>,
    /// What nodes share; a [`GroupId`] is an index here.
    pub groups: Vec<Group>,
    /// Front-ends that serve these nodes without talking to each other, this one included.
    pub front_ends: u32,
}

/// What the operator wants of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminState {
    /// Takes requests.
    #[default]
    Ready,
    /// Takes no new requests; those in flight end by themselves.
    Drain,
    /// Out of service: as drained, and nothing is expected of it.
    Maint,
}

impl AdminState {
    /// Every state with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Ready, "ready"),
        (Self::Drain, "drain"),
        (Self::Maint, "maint"),
    ];

    /// Its name in the command line, the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maint => "maint",
        }
    }
}

/// Whether a node is in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// It is.
    #[default]
    Member,
    /// It was taken out, and may have requests in flight.
    Leaving,
    /// It is gone. Another one may get its place.
    Gone,
}

/// What experience says of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Answers.
    #[default]
    Up,
    /// Taken out for a [`Cause`], until a probe is answered, a check passed, or a resource is less used.
    Ejected,
}

impl Health {
    /// Its name in the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Ejected => "ejected",
        }
    }
}

/// Why a node was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Requests failed in a row, and nothing came back in between: connections could not be
    /// made, or a probe was not answered either.
    Failures,
    /// Requests were under way, and neither they nor a probe were answered.
    Silence,
    /// It answered, and far more of its answers than of the others' were errors or broke off.
    Errors,
    /// A check of its site fails, or has not passed yet; or a service check of its own agent fails.
    Check,
    /// It is about to run out of a resource.
    SoftLimit,
    /// Its own agent says that it is not well, or that it weighs nothing.
    Agent,
}

impl Cause {
    /// Every cause with its name in the API and the metrics.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Failures, "failures"),
        (Self::Silence, "silence"),
        (Self::Errors, "errors"),
        (Self::Check, "check"),
        (Self::SoftLimit, "soft_limit"),
        (Self::Agent, "agent"),
    ];

    /// Its name in the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Silence => "silence",
            Self::Errors => "errors",
            Self::Check => "check",
            Self::SoftLimit => "soft_limit",
            Self::Agent => "agent",
        }
    }
}

/// Why a node is out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// What it has done.
    pub cause: Cause,
    /// When it was ejected.
    pub since: Timestamp,
    /// It is not probed before, if it is out for what probes show.
    pub until: Timestamp,
}

/// A node as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it serves HTTP.
    pub address: SocketAddr,
    /// How many nodes have had its place, itself included.
    pub generation: u32,
    /// Whether it is in the cluster.
    pub membership: Membership,
    /// The site that it serves now.
    pub site: SiteId,
    /// Configured share.
    pub weight: f32,
    /// Configured capacities.
    pub capacity: Capacity,
    /// The operator's word.
    pub admin: AdminState,
    /// Its own agent's.
    pub agent: AgentState,
    /// It is on its way from one site to another: it gets no requests of either.
    pub withheld: bool,
    /// Experience.
    pub health: Health,
    /// Why it is ejected, if it is.
    pub ejection: Option<Ejection>,
    /// By which of its site's checks it is out, whatever else speaks against it.
    pub failing_checks: CheckSet,
    /// By which service checks of its own agent it is out, whatever else speaks against it.
    pub failing_services: CheckSet,
    /// How it came over one of its soft limits, if it is over one. It may be used all the same, where too many are.
    pub soft_limit: Option<Crossing>,
    /// How often it was ejected so far.
    pub ejections: u64,
}

/// A site as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// How its nodes are picked.
    pub policy: PolicyConfig,
    /// What comes in at all.
    pub admission: AdmissionConfig,
    /// All of its nodes.
    pub nodes: Vec<NodeId>,
    /// Those that requests may go to now, in ascending order.
    pub candidates: Vec<NodeId>,
    /// No node is up, so ejected ones are candidates: those that answer, if only with errors, or where there
    /// is none of them either, all that are ready.
    pub fail_open: bool,
    /// Candidates that start slowly: they have a part of their share, which grows.
    pub ramping: Vec<NodeId>,
    /// How its nodes are looked after.
    pub health: Arc<HealthConfig>,
    /// It is served no more.
    pub removed: bool,
}

/// The snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Grows by one with each snapshot.
    pub version: u64,
    /// Sites by [`SiteId`].
    pub sites: Vec<Site>,
    /// Nodes by [`NodeId`].
    pub nodes: Vec<Node>,
    /// Groups by [`GroupId`].
    pub groups: Arc<[Group]>,
    /// Which site a host and a path belong to.
    pub routes: Arc<Routes>,
}

impl Node {
    /// Whether it is out by checks: its site's, or those of its own agent.
    pub fn fails_check(&self) -> bool {
        !self.failing_checks.is_empty() || !self.failing_services.is_empty()
    }

    /// Whether requests may go to it, if it is up.
    pub fn is_ready(&self) -> bool {
        let said = [self.admin, self.agent.state];
        said == [AdminState::Ready; 2] && !self.withheld
    }

    /// Whether nothing is expected of it: the operator or its agent has it out of service.
    pub fn is_in_maint(&self) -> bool {
        [self.admin, self.agent.state].contains(&AdminState::Maint)
    }

    /// Its share by its configuration and its agent.
    pub fn effective_weight(&self) -> f32 {
        self.agent.weight_of(self.weight)
    }

    /// Whether it answers nothing at all, not even probes.
    pub fn is_unresponsive(&self) -> bool {
        let cause = self.ejection.map(|ejection| ejection.cause);
        matches!(cause, Some(Cause::Failures | Cause::Silence))
    }
}

impl Topology {
    /// Whether a request of the site that waits for the node's answer is better sent to another one: the
    /// node answers nothing, and one that was not tried is up.
    pub fn is_stranded(&self, site: SiteId, node: NodeId, tried: &[NodeId]) -> bool {
        let node_at = |node: NodeId| self.nodes.get(node.index());
        let is_up = |node: &NodeId| node_at(*node).is_some_and(|node| node.health == Health::Up);
        let site = self.sites.get(site.index());
        node_at(node).is_some_and(Node::is_unresponsive)
            && site.is_some_and(|site| {
                let others = site.candidates.iter();
                let mut untried = others.filter(|it| **it != node && !tried.contains(it));
                untried.any(is_up)
            })
    }

    /// The site.
    pub fn site(&self, site: SiteId) -> &Site {
        &self.sites[site.index()]
    }

    /// The node.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    /// Shares by configuration and agents, by [`NodeId`].
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        self.nodes.iter().map(|node| Share {
            weight: node.effective_weight(),
            capacity: node.capacity,
        })
    }

    /// The group that a site is in, and its place among the members.
    pub fn group_of(&self, site: SiteId) -> Option<(GroupId, usize)> {
        self.groups.iter().enumerate().find_map(|(index, group)| {
            let place = group.members.iter().position(|it| it.0 == site)?;
            Some((GroupId(index as u32), place))
        })
    }

    /// All nodes of the cluster.
    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        nodes.filter(|(_, node)| node.membership == Membership::Member)
    }

    /// The same and those that leave it.
    pub fn present(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let nodes = (0..).map(NodeId).zip(&self.nodes);
        nodes.filter(|(_, node)| node.membership != Membership::Gone)
    }

    /// Nodes of a site that are ready and up, as they are now.
    pub fn up(&self, site: SiteId) -> Vec<NodeId> {
        let serves =
            |node: &Node| node.site == site && node.is_ready() && node.health == Health::Up;
        let members = self.members().filter(|(_, node)| serves(node));
        members.map(|(id, _)| id).collect()
    }

    /// All sites that are served.
    pub fn served(&self) -> impl Iterator<Item = (SiteId, &Site)> {
        let sites = (0..).map(SiteId).zip(&self.sites);
        sites.filter(|(_, site)| !site.removed)
    }

    /// The node of that name; one that leaves has it only where no other has.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        let mut present = self.present().filter(|(_, node)| node.name == name);
        let first = present.next()?;
        let is_member = |it: &(NodeId, &Node)| it.1.membership == Membership::Member;
        let member = present.find(is_member).filter(|_| !is_member(&first));
        Some(member.unwrap_or(first).0)
    }

    /// The site of that name.
    pub fn site_named(&self, name: &str) -> Option<SiteId> {
        let mut sites = self.served();
        Some(sites.find(|(_, site)| site.name == name)?.0)
    }
}
