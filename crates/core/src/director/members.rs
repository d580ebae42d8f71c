//! Nodes and sites that come and go: applies a [`ClusterChange`], gives places to new nodes, and lets those go that
//! have left.
//!
//! ```text
//!            add                 remove              no worker can send there, none in flight
//!  (place) ───────> Member ────────────────> Leaving ────────────────────────────────────────> Gone
//!     ^               ^   add, same name        │                                               │
//!     │               └─────────────────────────┘                                               │
//!     └─────────────────────── another node, one generation more ───────────────────────────────┘
//! ```
//!
//! A request in flight means its node by its place. So a place is free only when every worker follows a topology in
//! which the node leaves ([`Director::handle_followed`]), and then none of its requests is left: they end where they
//! began, and are counted there. What was learned of a kept node stays; one with a new address begins as one that answers.
//!
//! Failure case: a worker that follows no more keeps the places of all that leave. Nothing else depends on them.

use std::sync::Arc;

use crate::load::{Group, LoadTable, Ramp};
use crate::topology::routes::{RouteError, Routes};
use crate::topology::{
    AdminState, AgentState, ChangeError, CheckSet, ClusterChange, Edit, GroupWanted, Health,
    HealthConfig, Membership, Node, NodeId, NodeWanted, SiteId, SiteSpec, Topology,
};

use super::check::NodeChecks;
use super::health::NodeHealth;
use super::learn::SiteLearner;
use super::outliers::Outliers;
use super::pace::SitePace;
use super::services::NodeServices;
use super::slow_start::SiteRamps;
use super::soft_limits::NodeSoftLimits;
use super::{Director, Event, control};

/// A site that is served, or was.
#[derive(Debug)]
pub(super) struct KnownSite {
    pub(super) spec: SiteSpec,
    /// As snapshots have it.
    pub(super) health: Arc<HealthConfig>,
    pub(super) removed: bool,
}

impl KnownSite {
    pub(super) fn new(spec: SiteSpec) -> Self {
        Self {
            health: Arc::new(spec.health.clone()),
            spec,
            removed: false,
        }
    }
}

/// A node that leaves, and the first topology that says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaver {
    node: NodeId,
    since: u64,
}

impl Director {
    /// Applies a change as one new topology, or nothing of it.
    pub fn handle_change(
        &mut self,
        change: &ClusterChange,
        table: &LoadTable,
    ) -> Result<(), ChangeError> {
        change.check(&self.topology)?;
        let routes = self.routes_after(change)?;
        for edit in &change.edits {
            self.apply(edit, table);
        }
        if let Some(routes) = routes {
            Arc::make_mut(&mut self.topology).routes = routes.into();
        }
        if !change.is_empty() {
            self.publish();
        }
        Ok(())
    }

    /// Where requests go after a change; none if that stays.
    fn routes_after(&self, change: &ClusterChange) -> Result<Option<Routes>, RouteError> {
        let known = self.known.iter().map(|it| match it.removed {
            true => unserved(&it.spec),
            false => it.spec.clone(),
        });
        let before: Vec<_> = known.collect();
        let mut sites = before.clone();
        for edit in &change.edits {
            match edit {
                Edit::AddSite(spec) | Edit::ChangeSite(spec) => {
                    match sites.iter_mut().find(|it| it.name == spec.name) {
                        Some(site) => *site = spec.clone(),
                        None => sites.push(spec.clone()),
                    }
                }
                Edit::RemoveSite(name) => {
                    if let Some(site) = sites.iter_mut().find(|it| it.name == *name) {
                        *site = unserved(site);
                    }
                }
                Edit::AddNode(_)
                | Edit::ChangeNode(_)
                | Edit::RemoveNode(_)
                | Edit::WithholdNode(_)
                | Edit::ReleaseNode(_)
                | Edit::SetGroups(_)
                | Edit::SetFrontEnds(_) => {}
            }
        }
        (sites != before).then(|| Routes::new(&sites)).transpose()
    }

    /// All workers decide by the topology of this version or by a newer one.
    pub fn handle_followed(&mut self, version: u64) {
        self.followed = self.followed.max(version);
    }

    fn apply(&mut self, edit: &Edit, table: &LoadTable) {
        match edit {
            Edit::AddSite(spec) | Edit::ChangeSite(spec) => self.set_site(spec, table),
            Edit::RemoveSite(name) => {
                if let Some(index) = self.known_site(name) {
                    self.known[index].removed = true;
                }
            }
            Edit::AddNode(wanted) => self.add_node(wanted, table),
            Edit::ChangeNode(wanted) => {
                if let Some(node) = self.topology.node_named(&wanted.name) {
                    self.change_node(node, wanted, table);
                }
            }
            Edit::RemoveNode(name) => {
                if let Some(node) = self.topology.node_named(name) {
                    self.node_mut(node).membership = Membership::Leaving;
                    let since = self.topology.version + 1;
                    self.leaving.push(Leaver { node, since });
                }
            }
            Edit::WithholdNode(name) => self.withhold(name, table),
            Edit::ReleaseNode(name) => self.release(name),
            Edit::SetGroups(wanted) => self.set_groups(wanted, table),
            Edit::SetFrontEnds(front_ends) => {
                self.front_ends_configured = *front_ends;
                self.front_ends = self.front_ends.max(*front_ends).max(1);
            }
        }
    }

    /// A site keeps its place, also while it is removed.
    fn set_site(&mut self, spec: &SiteSpec, table: &LoadTable) {
        let Some(index) = self.known_site(&spec.name) else {
            table.reserve(self.topology.nodes.len(), self.known.len() + 1);
            self.sites.push(SiteLearner::default());
            self.paces.push(SitePace::default());
            self.outliers.push(Outliers::default());
            self.controls.push(control(spec.admission));
            self.ramps.push(SiteRamps::default());
            self.known.push(KnownSite::new(spec.clone()));
            return;
        };
        let known = &mut self.known[index];
        if known.spec.admission != spec.admission {
            self.controls[index] = control(spec.admission);
            for node in &self.topology.sites[index].nodes {
                table.lift_limits(*node);
            }
        }
        let before = std::mem::take(&mut known.spec.health.checks);
        *known = KnownSite::new(spec.clone());
        let after = &spec.health.checks;
        if before != *after {
            for node in self.topology.sites[index].nodes.clone() {
                self.checks[node.index()].on_settings(&before, after);
                self.judge(node);
            }
        }
    }

    fn known_site(&self, name: &str) -> Option<usize> {
        self.known.iter().position(|it| it.spec.name == name)
    }

    fn add_node(&mut self, wanted: &NodeWanted, table: &LoadTable) {
        if let Some(node) = self.topology.node_named(&wanted.name) {
            // It is leaving, and stays.
            self.node_mut(node).membership = Membership::Member;
            self.node_mut(node).withheld = false;
            self.leaving.retain(|it| it.node != node);
            self.change_node(node, wanted, table);
            table.set_ramp(node, Ramp::default());
            return self.begins(node);
        }
        let Some(site) = self.known_site(&wanted.site) else {
            return;
        };
        let nodes = &mut Arc::make_mut(&mut self.topology).nodes;
        let free = nodes
            .iter()
            .position(|it| it.membership == Membership::Gone);
        let place = free.unwrap_or(nodes.len());
        let generation = free.map_or(0, |place| nodes[place].generation + 1);
        let node = Node {
            generation,
            ..new_node(wanted, SiteId(site as u32))
        };
        table.reserve(place + 1, self.known.len());
        table.clear(NodeId(place as u32));
        match free {
            Some(place) => {
                nodes[place] = node;
                self.health[place] = NodeHealth::default();
                self.forget_records(NodeId(place as u32));
            }
            None => {
                nodes.push(node);
                self.health.push(NodeHealth::default());
                self.checks.push(NodeChecks::default());
                self.soft_limits.push(NodeSoftLimits::default());
                self.services.push(NodeServices::default());
            }
        }
        self.begins(NodeId(place as u32));
        self.recall_joining(NodeId(place as u32), table);
    }

    /// Another node, or another machine: nothing is known of what its records say.
    fn forget_records(&mut self, node: NodeId) {
        self.soft_limits[node.index()] = NodeSoftLimits::default();
        self.services[node.index()] = NodeServices::default();
    }

    /// A node joins its site: it is checked before it has requests where others have them, and starts slowly.
    fn begins(&mut self, id: NodeId) {
        let site = self.topology.node(id).site;
        let before = self.topology.sites.get(site.index());
        let served = before.is_some_and(|site| {
            let mut others = site.candidates.iter().filter(|it| **it != id);
            !site.fail_open && others.next().is_some()
        });
        let configs = &self.known[site.index()].spec.health.checks;
        self.checks[id.index()] = match served {
            true => NodeChecks::joining(configs, self.ticked_at),
            false => NodeChecks::new(configs),
        };
        self.judge(id);
        self.start_slowly(id);
    }

    fn change_node(&mut self, id: NodeId, wanted: &NodeWanted, table: &LoadTable) {
        let Some(site) = self.known_site(&wanted.site) else {
            return;
        };
        let node = self.node_mut(id);
        let moved = node.address != wanted.address;
        let before = node.site;
        node.address = wanted.address;
        node.weight = wanted.weight;
        node.capacity = wanted.capacity;
        node.site = SiteId(site as u32);
        if moved {
            self.health[id.index()] = NodeHealth::default();
            self.forget_records(id);
            table.forgive(id);
        }
        if moved || before.index() != site {
            self.ramps[before.index()].end(id);
            table.set_ramp(id, Ramp::default());
            if before.index() != site {
                self.arriving.insert(id);
            }
            self.begins(id);
        }
    }

    /// A node on its way between sites has no requests, and no share of any.
    fn withhold(&mut self, name: &str, table: &LoadTable) {
        let Some(id) = self.topology.node_named(name) else {
            return;
        };
        self.node_mut(id).withheld = true;
        let site = self.topology.node(id).site;
        self.ramps[site.index()].end(id);
        table.set_ramp(id, Ramp::default());
    }

    /// It is back, or at its new site.
    fn release(&mut self, name: &str) {
        let Some(id) = self.topology.node_named(name) else {
            return;
        };
        if std::mem::take(&mut self.node_mut(id).withheld) {
            self.start_slowly(id);
        }
    }

    pub(super) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut Arc::make_mut(&mut self.topology).nodes[node.index()]
    }

    /// A group keeps its place, also while it is removed: requests in flight count for it.
    fn set_groups(&mut self, wanted: &[GroupWanted], table: &LoadTable) {
        let before = self.topology.groups.iter();
        let kept = before.map(|group| {
            let still = wanted.iter().find(|it| it.name == group.name);
            still.map_or_else(|| empty_group(&group.name), |it| self.group(it))
        });
        let mut groups: Vec<_> = kept.collect();
        let known = groups.len();
        for wanted in wanted {
            if groups[..known].iter().all(|it| it.name != wanted.name) {
                groups.push(self.group(wanted));
            }
        }
        table.set_groups(&groups);
        Arc::make_mut(&mut self.topology).groups = groups.into();
    }

    fn group(&self, wanted: &GroupWanted) -> Group {
        let member = |(site, weight): &(String, f64)| {
            let index = self.known_site(site)?;
            Some((SiteId(index as u32), *weight))
        };
        let members = self.topology.members();
        let named = members.filter(|(_, node)| wanted.nodes.contains(&node.name));
        Group {
            name: wanted.name.clone(),
            limit: wanted.limit,
            members: wanted.members.iter().filter_map(member).collect(),
            nodes: named.map(|(id, _)| id).collect(),
        }
    }

    /// Lets go of those that left, whose last request has ended.
    pub(super) fn let_go(&mut self, table: &LoadTable) {
        let followed = self.followed;
        let is_gone = |it: &Leaver| it.since <= followed && table.in_flight(it.node) == 0;
        let gone: Vec<_> = self.leaving.extract_if(.., |it| is_gone(it)).collect();
        for Leaver { node, .. } in gone {
            self.node_mut(node).membership = Membership::Gone;
            self.node_mut(node).ejection = None;
            self.arriving.remove(&node);
            self.changed = true;
            self.event(Event::Left(node));
        }
    }
}

/// A node as it begins.
pub(super) fn new_node(wanted: &NodeWanted, site: SiteId) -> Node {
    Node {
        name: wanted.name.clone(),
        address: wanted.address,
        generation: 0,
        membership: Membership::Member,
        site,
        weight: wanted.weight,
        capacity: wanted.capacity,
        admin: AdminState::default(),
        agent: AgentState::default(),
        withheld: false,
        health: Health::default(),
        ejection: None,
        failing_checks: CheckSet::default(),
        failing_services: CheckSet::default(),
        soft_limit: None,
        ejections: 0,
    }
}

/// A site that no host leads to.
fn unserved(site: &SiteSpec) -> SiteSpec {
    SiteSpec {
        hosts: Vec::new(),
        ..site.clone()
    }
}

fn empty_group(name: &str) -> Group {
    Group {
        name: name.into(),
        limit: u32::MAX,
        members: Vec::new(),
        nodes: Vec::new(),
    }
}

impl Topology {
    /// Whether requests may go to a node: it is no leaver.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        self.node(node).membership == Membership::Member
    }
}
