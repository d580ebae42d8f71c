//! What a director has learned that is worth keeping for the next process: plain values, by names.
//!
//! ```text
//! Director ── learned(now) ──> LearnedCluster ── a successor, or a file ──> recall(.., elapsed, now) ──> Director
//! ```
//!
//! | of | what | belongs to |
//! |---|---|---|
//! | a node | sums of its responses, base times and errors, its share, its limit of requests, its slow start | its name, address and site |
//! | | that it is ejected, why, and how long it is waited for; that a check of it fails | its name and address |
//! | a site | what requests take that wait for no other, and all of them while it is not loaded | its name |
//! | a node's agent | what it has said | the node's name and address |
//! | operators | whether a node is to get requests | its name |
//!
//! Sums do not fade while there is no director: nothing has been seen that says otherwise. Durations are ages, since
//! clocks of processes differ.
//!
//! Inputs: what another director said, maybe of another version, maybe damaged: each part is checked, and one that makes
//! no sense is left out. To be recalled before the first tick. Failure case: a node that has become another machine at its old
//! address has the past of the one before, which fades as for any node that changes.

use std::net::SocketAddr;
use std::time::Duration;

use super::learn::LearnedCosts;
use super::{Director, control};
use crate::admission::LearnedAdmission;
use crate::load::LoadTable;
use crate::time::Timestamp;
use crate::topology::{AdminState, AgentAnswer, AgentState, Cause, Node, NodeId, SiteId};

/// Longest age, and longest wait, that is believed.
const AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long it is waited for nodes that are not there at the start.
const EXPECTED_FOR: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedCluster {
    /// Sites that are served.
    pub sites: Vec<LearnedSite>,
    /// Nodes that are members.
    pub nodes: Vec<LearnedNode>,
    /// Nodes that operators have taken out, by name.
    pub taken_out: Vec<(String, AdminState)>,
}

/// Of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedSite {
    /// Its name.
    pub name: String,
    /// What admission has learned of its answers; none if it does not learn.
    pub admission: Option<LearnedAdmission>,
}

/// Of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedNode {
    /// Its name.
    pub name: String,
    /// Where it serves.
    pub address: SocketAddr,
    /// The name of the site that it serves.
    pub site: String,
    /// What its requests cost.
    pub costs: Option<LearnedCosts>,
    /// Most requests in flight there of all front-ends together, as admission has it.
    pub limit: Option<f64>,
    /// How far its slow start is, 0 to 1; none if there is none.
    pub ramp: Option<f64>,
    /// Why it gets no requests.
    pub ejected: Option<LearnedEjection>,
    /// When it was tried again after it had answered with errors.
    pub trial: Option<LearnedTrial>,
    /// Since when a check of it fails.
    pub check_failing: Option<Duration>,
    /// What its agent has said.
    pub agent: Option<LearnedAgent>,
}

/// What a node's agent has said.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedAgent {
    /// All of it at once.
    pub answer: AgentAnswer,
    /// How long the node has been out by it.
    pub out_for: Duration,
    /// Where it answers.
    pub from: Option<SocketAddr>,
}

/// Of a node that gets no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedEjection {
    /// What it has done.
    pub cause: Cause,
    /// How long ago.
    pub age: Duration,
    /// The wait for the next probe, and what is left of it.
    pub wait: Duration,
    /// See there.
    pub left: Duration,
}

/// Of a node that was ejected for errors and has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedTrial {
    /// How long it had been waited for.
    pub wait: Duration,
    /// How long ago it returned.
    pub age: Duration,
}

/// What has come of what was learned before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// Nodes of which something is known.
    pub nodes: usize,
    /// Those of them that are out.
    pub ejected: usize,
}

/// A node that is not there yet, as one that another source than the configuration announces.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    node: Option<LearnedNode>,
    /// What an operator wants of it.
    admin: AdminState,
    elapsed: Duration,
    at: Timestamp,
}

impl Expected {
    /// Nothing is known of it.
    fn new(elapsed: Duration, at: Timestamp) -> Self {
        Self {
            node: None,
            admin: AdminState::Ready,
            elapsed,
            at,
        }
    }
}

impl Director {
    /// What is known by now.
    pub fn learned(&self, now: Timestamp) -> LearnedCluster {
        let sites = self.topology.served();
        let site = |(id, name): (SiteId, &str)| LearnedSite {
            name: name.into(),
            admission: self.controls[id.index()].as_ref().map(|it| it.learned()),
        };
        let nodes = self.topology.members();
        let taken_out = self.topology.members();
        let taken_out = taken_out.filter(|(_, node)| node.admin != AdminState::Ready);
        LearnedCluster {
            sites: sites.map(|(id, known)| site((id, &known.name))).collect(),
            nodes: nodes
                .map(|(id, node)| self.learned_of(id, node, now))
                .collect(),
            taken_out: taken_out
                .map(|(_, node)| (node.name.clone(), node.admin))
                .collect(),
        }
    }

    fn learned_of(&self, id: NodeId, node: &Node, now: Timestamp) -> LearnedNode {
        let (site, health) = (node.site.index(), &self.health[id.index()]);
        let control = self.controls[site].as_ref();
        // One that is no candidate begins anew when it is.
        let serves = self.topology.site(node.site).candidates.contains(&id);
        let costs = self.sites[site].learned(id).filter(|_| serves);
        LearnedNode {
            name: node.name.clone(),
            address: node.address,
            site: self.known[site].spec.name.clone(),
            costs,
            limit: control.and_then(|it| it.limit(id)),
            ramp: self.ramps[site].progress(id),
            ejected: health.learned_ejection(now),
            trial: health.learned_trial(now),
            check_failing: self.checks[id.index()].failing_for(now),
            agent: node.agent.says_anything().then(|| LearnedAgent {
                answer: node.agent.as_answer(),
                from: node.agent.from,
                out_for: now.since(node.agent.ejection().map_or(now, |it| it.since)),
            }),
        }
    }

    /// Goes on from what another director knew so long ago. To be called before the first tick.
    pub fn recall(
        &mut self,
        learned: &LearnedCluster,
        elapsed: Duration,
        table: &LoadTable,
        now: Timestamp,
    ) -> Recalled {
        let mut recalled = Recalled::default();
        for site in &learned.sites {
            let Some(id) = self.topology.site_named(&site.name) else {
                continue;
            };
            let config = self.known[id.index()].spec.admission;
            if let Some(admission) = &site.admission
                && let Some(mut fresh) = control(config)
            {
                fresh.recall(admission);
                self.controls[id.index()] = Some(fresh);
            }
        }
        for known in &learned.nodes {
            let Some(id) = self.topology.node_named(&known.name) else {
                self.expect(&known.name, elapsed, now).node = Some(known.clone());
                continue;
            };
            if self.recall_node(id, known, elapsed, table, now) {
                recalled.nodes += 1;
                recalled.ejected += usize::from(self.topology.node(id).ejection.is_some());
            }
        }
        for (name, admin) in &learned.taken_out {
            match self.topology.node_named(name) {
                Some(id) => self.handle_override(id, *admin),
                None => self.expect(name, elapsed, now).admin = *admin,
            }
        }
        self.publish();
        recalled
    }

    fn expect(&mut self, name: &str, elapsed: Duration, now: Timestamp) -> &mut Expected {
        let expected = self.expected.entry(name.into());
        expected.or_insert_with(|| Expected::new(elapsed, now))
    }

    /// A node joins that was not there at the start; it goes on from what was known of it, if that is not long ago.
    pub(super) fn recall_joining(&mut self, id: NodeId, table: &LoadTable) {
        let now = self.ticked_at;
        self.expected
            .retain(|_, it| now.since(it.at) < EXPECTED_FOR);
        let name = &self.topology.node(id).name;
        let Some(expected) = self.expected.remove(name) else {
            return;
        };
        self.handle_override(id, expected.admin);
        let Some(node) = expected.node else {
            return;
        };
        let elapsed = expected.elapsed + now.since(expected.at);
        let known = self.recall_node(id, &node, elapsed, table, now);
        if known && node.ramp.is_none() && node.costs.is_some() {
            // It is no new one, and was warm.
            let site = self.topology.node(id).site;
            self.ramps[site.index()].end(id);
        }
    }

    /// False if it is at another address.
    fn recall_node(
        &mut self,
        id: NodeId,
        known: &LearnedNode,
        elapsed: Duration,
        table: &LoadTable,
        now: Timestamp,
    ) -> bool {
        if self.topology.node(id).address != known.address {
            return false;
        }
        self.recall_health(id, known, elapsed, now);
        self.recall_costs(id, known, table);
        if let Some(agent) = &known.agent {
            let out_for = agent.out_for.saturating_add(elapsed).min(AGE_MAX);
            let mut state = AgentState {
                from: agent.from,
                ..AgentState::default()
            };
            state.on_answer(&agent.answer, now - out_for);
            self.set_agent(id, &state, table, now);
        }
        self.judge(id);
        true
    }

    /// Whether requests and checks have it out.
    fn recall_health(
        &mut self,
        id: NodeId,
        known: &LearnedNode,
        elapsed: Duration,
        now: Timestamp,
    ) {
        let ago = |age: Duration| now - age.saturating_add(elapsed).min(AGE_MAX);
        let health = &mut self.health[id.index()];
        health.recall(known.ejected.as_ref(), known.trial.as_ref(), ago, now);
        if let Some(age) = known.check_failing {
            self.checks[id.index()].recall(ago(age), now);
        }
    }

    /// What it has learned at its site.
    fn recall_costs(&mut self, id: NodeId, known: &LearnedNode, table: &LoadTable) {
        let site = self.topology.node(id).site;
        let spec = &self.known[site.index()].spec;
        if spec.name != known.site {
            return;
        }
        let members = self.topology.members();
        let members = members.filter(|(_, node)| node.site == site);
        let members: Vec<_> = members.map(|(id, _)| id).collect();
        if let Some(costs) = &known.costs {
            self.sites[site.index()].recall(&members, id, costs, table);
        }
        let control = self.controls[site.index()].as_mut();
        if let Some((control, limit)) = control.zip(known.limit) {
            control.recall_limit(id, limit, table);
        }
        let health = &spec.health;
        let length = match health.slow_start.is_zero() {
            // Only one that has moved here can have begun.
            true => health.warm_up,
            false => health.slow_start,
        };
        let progress = known.ramp.filter(|_| !length.is_zero());
        if let Some(progress) = progress.filter(|it| (0.0..1.0).contains(it)) {
            self.ramps[site.index()].resume(id, length, progress);
        }
    }
}

#[cfg(test)]
mod tests;
