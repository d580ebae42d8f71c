//! What nodes' agents say of them (`agent_check`): fields for programs, sentences for people, metrics.

use tidegate_core::load::LoadTable;
use tidegate_core::topology::{AdminState, AgentWeight, Node, NodeId, Topology};

use super::plane::{Look, Plane};
use crate::exposition::{Kind, Text};
use crate::models::{AgentStatus, NodeStatus};

/// What a node's agent says, if it is asked.
pub(super) fn status(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
) -> Option<AgentStatus> {
    let heard = plane.reads.agent(id)?;
    let node = topology.node(id);
    let agent = &node.agent;
    let down = agent.down.as_ref();
    let reason = down.filter(|down| !down.reason.is_empty());
    let weight = agent.weight.map(|_| decimal(node.effective_weight()));
    Some(AgentStatus {
        state: agent.state.label().into(),
        health: down.map_or("up", |down| down.word).into(),
        reason: reason.map(|down| down.reason.to_string()),
        weight,
        weight_word: agent.weight.map(word),
        maxconn: agent.most,
        seconds_ago: heard.answered_at.map(|at| look.now.since(at).as_secs_f64()),
        ignored_words: heard.ignored,
        ignored_word: heard.ignored_word,
    })
}

/// A weight in an agent's word.
fn word(weight: AgentWeight) -> String {
    match weight {
        AgentWeight::Share(share) => format!("{:.0}%", share * 100.0),
        AgentWeight::Absolute(weight) => format!("weight:{weight:.0}"),
    }
}

/// A weight as a person would write it.
fn decimal(weight: f32) -> f64 {
    (f64::from(weight) * 1e6).round() / 1e6
}

/// That a node's agent has it out of service, if it has.
pub(super) fn state_reason(node: &Node) -> Option<String> {
    let what = match node.agent.state {
        AdminState::Ready => return None,
        AdminState::Drain => "it gets no new requests: its own agent drains it",
        AdminState::Maint => "it gets no requests: its own agent took it out of service",
    };
    Some(format!("{what}, and brings it back by `ready`"))
}

/// What comes of its agent's words.
pub(super) fn reasons(
    table: &LoadTable,
    topology: &Topology,
    id: NodeId,
    status: &NodeStatus,
) -> Vec<String> {
    let Some(agent) = &status.agent else {
        return Vec::new();
    };
    let ago = agent.seconds_ago.unwrap_or_default();
    let mut reasons = Vec::new();
    if let (Some(weight), Some(word)) = (agent.weight, &agent.weight_word) {
        let configured = decimal(topology.node(id).weight);
        reasons.push(format!(
            "it weighs {weight} by its agent (`{word}`, {ago:.1} s ago), and {configured} by the configuration"
        ));
    }
    if let Some(most) = table.most(id) {
        reasons.push(format!(
            "at most {most} requests of this front-end may be in flight there by its agent (`maxconn:{most}`, {ago:.1} s ago)"
        ));
    }
    if let Some(word) = &agent.ignored_word {
        let count = agent.ignored_words;
        reasons.push(format!(
            "its agent has said {count} words that are not understood, `{word}` the last time"
        ));
    }
    reasons
}

/// Of nodes with agents that are asked.
pub(super) fn metrics(plane: &Plane, topology: &Topology, text: &mut Text) {
    let members = topology.members();
    let asked = members.filter_map(|(id, node)| Some((node, plane.reads.agent(id)?)));
    let asked: Vec<_> = asked.collect();
    let help = "What the node weighs by its configuration and by what its agent says.";
    let mut family = text.family("tidegate_node_agent_weight", Kind::Gauge, help);
    for (node, _) in &asked {
        let labels = labels(topology, node);
        family.sample(&labels, decimal(node.effective_weight()));
    }
    let help = "Whether the node's agent has it out, drained or out of service.";
    let mut family = text.family("tidegate_node_agent_out", Kind::Gauge, help);
    for (node, _) in &asked {
        let agent = &node.agent;
        let is_out = agent.ejection().is_some() || agent.state != AdminState::Ready;
        let labels = labels(topology, node);
        family.sample(&labels, if is_out { 1.0 } else { 0.0 });
    }
    let help = "Words of the node's agent that were not understood.";
    let name = "tidegate_node_agent_ignored_words";
    let mut family = text.family(name, Kind::Counter, help);
    for (node, heard) in &asked {
        let labels = labels(topology, node);
        family.count(&labels, heard.ignored);
    }
}

fn labels<'t>(topology: &'t Topology, node: &'t Node) -> [(&'static str, &'t str); 2] {
    let site = topology.site(node.site);
    [("site", &site.name), ("node", &node.name)]
}
