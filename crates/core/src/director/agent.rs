//! What nodes' agents say: takes nodes out, drains and bounds them, and brings them back. What that means stands in
//! `topology::agent`.

use super::{Director, Event};
use crate::load::LoadTable;
use crate::time::Timestamp;
use crate::topology::{AdminState, AgentNews, AgentState, Membership, NodeId};

impl Director {
    /// A node's agent says this. `generation` is that of the node whose agent it is.
    pub fn handle_agent(
        &mut self,
        node: NodeId,
        generation: u32,
        news: &AgentNews,
        table: &LoadTable,
        now: Timestamp,
    ) {
        let known = self.topology.nodes.get(node.index());
        let known = known
            .filter(|known| known.generation == generation && known.membership != Membership::Gone);
        if let Some(known) = known {
            let agent = known.agent.with(news);
            self.set_agent(node, &agent, table, now);
        }
    }

    /// All that a node's agent has said comes to this.
    pub(super) fn set_agent(
        &mut self,
        node: NodeId,
        agent: &AgentState,
        table: &LoadTable,
        now: Timestamp,
    ) {
        if self.topology.node(node).agent == *agent {
            return;
        }
        let before = std::mem::replace(&mut self.node_mut(node).agent, agent.clone());
        table.set_most(node, agent.most);
        self.changed = true;
        if before.state != agent.state {
            self.event(Event::AgentState(node, agent.state));
        }
        match (before.ejection(), agent.ejection()) {
            (None, Some(_)) => self.set_health(node, Event::AgentDown(node), now),
            (Some(_), None) => self.set_health(node, Event::AgentUp(node), now),
            (None, None) | (Some(_), Some(_)) => self.judge(node),
        }
        if before.state != agent.state && agent.state == AdminState::Ready {
            self.start_slowly(node);
        }
    }
}
