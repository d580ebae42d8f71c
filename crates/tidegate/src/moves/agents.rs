//! What the agents of nodes say: word B, and the list of sites that they go by, L.
//!
//! ```text
//! on its way   and those that wait to be used again: asked at each look
//! others       one at each look, in turn: what an agent says of a node's generation is known before the node is to move
//! L            written where it is not ours, if agents are to run hooks: they wait for it
//! ready        B is of the generation of the node's word: the agent lives and counts; where L is written, it has hooks for our sites
//! ```
//!
//! Failure case: an agent that does not answer says nothing, and its node is not moved.

use tidegate_core::moves::words::{AgentStatus, AgentStep, Assignment, NodeNumber};

use super::engine::Words;

/// Why nodes of such agents are not moved.
const SILENT: &str = "its agent does not follow moves: it needs [agent.moves], with hooks for all sites that have `nodes` if \
                      `hook` is set";
const BEHIND: &str = "its agent does not follow its word yet";
const NO_HOOKS: &str = "its agent has no hooks, and `hook` is set: it needs [[agent.moves.site]] for all sites that have `nodes`";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agents {
    nodes: Vec<Option<AgentStatus>>,
    /// Whose turn it is.
    next: usize,
    /// L, if agents are to run hooks.
    list: Option<u64>,
}

impl Agents {
    /// Of so many nodes, none of which was asked yet.
    pub(super) fn new(nodes: usize, list: Option<u64>) -> Self {
        Self {
            nodes: vec![None; nodes],
            next: 0,
            list,
        }
    }

    /// Asks those whose turn it is, of nodes that answer.
    pub(super) async fn look(
        &mut self,
        words: &Words,
        is_urgent: impl Fn(NodeNumber) -> bool,
        answers: impl Fn(NodeNumber) -> bool,
    ) {
        let count = self.nodes.len();
        if count == 0 {
            return;
        }
        self.next = (self.next + 1) % count;
        for place in 0..count {
            let node = NodeNumber(place as u16);
            if !answers(node) {
                self.nodes[place] = None;
            } else if is_urgent(node) || place == self.next {
                self.nodes[place] = ask(words, node, self.list).await;
            }
        }
    }

    /// What a node's agent said last.
    pub(super) fn status(&self, node: NodeNumber) -> Option<AgentStatus> {
        self.nodes.get(node.index()).copied().flatten()
    }

    /// Whether a node's servers are set up for what this word has it serve.
    pub(super) fn is_set_up(&self, node: NodeNumber, assignment: Option<Assignment>) -> bool {
        let step = self.status(node).map(|it| it.step);
        self.list.is_none() || self.is_ready(node, assignment) && step.is_some_and(is_settled)
    }

    /// Whether its agent follows this word of a node.
    pub(super) fn is_ready(&self, node: NodeNumber, assignment: Option<Assignment>) -> bool {
        self.why_unready(node, assignment).is_none()
    }

    /// Why it does not, if it does not.
    pub(super) fn why_unready(
        &self,
        node: NodeNumber,
        assignment: Option<Assignment>,
    ) -> Option<&'static str> {
        let Some(said) = self.status(node) else {
            return Some(SILENT);
        };
        if assignment.map(|it| it.generation) != Some(said.generation) {
            return Some(BEHIND);
        }
        (self.list.is_some() && !said.has_hooks).then_some(NO_HOOKS)
    }
}

/// Whether nothing is left to be done for a node that serves.
pub(super) fn is_settled(step: AgentStep) -> bool {
    match step {
        AgentStep::Begun | AgentStep::Drained | AgentStep::HookDone => true,
        AgentStep::HookRuns | AgentStep::HookFailed => false,
    }
}

/// What a node's agent says, if it goes by our list of sites.
async fn ask(words: &Words, node: NodeNumber, list: Option<u64>) -> Option<AgentStatus> {
    let read = words.agent(node).await?;
    match list {
        Some(list) if read.sites != list => {
            // What it says is of other numbers, or of none.
            words.set_site_list(node, read.sites, list).await;
            None
        }
        // A word that no agent writes says nothing.
        Some(_) | None => AgentStatus::unpack(read.status).ok().flatten(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::moves::words::{Count24, SiteNumber};

    use super::*;

    const NODE: NodeNumber = NodeNumber(0);

    fn said(generation: u32, step: AgentStep, list: Option<u64>) -> Agents {
        let status = AgentStatus {
            generation: Count24::new(generation),
            step,
            connections: 0,
            exit_code: 0,
            has_hooks: list.is_some(),
        };
        Agents {
            nodes: vec![Some(status)],
            ..Agents::new(1, list)
        }
    }

    #[test]
    fn an_agent_follows_if_it_speaks_of_the_nodes_own_generation() {
        let word = Some(Assignment::first(Count24::new(5), SiteNumber(0), false));
        for generation in [4, 6] {
            assert!(!said(generation, AgentStep::Begun, None).is_ready(NODE, word));
        }
        let agents = said(5, AgentStep::Begun, None);
        assert!(agents.is_ready(NODE, word) && !agents.is_ready(NODE, None));
        assert!(
            !agents.is_ready(NodeNumber(1), word),
            "one that is not known"
        );
        assert!(
            !Agents::new(1, None).is_ready(NODE, word),
            "one that was not asked"
        );
    }

    #[test]
    fn an_agent_without_hooks_is_not_ready_where_they_are_needed() {
        let word = Some(Assignment::first(Count24::new(5), SiteNumber(0), false));
        let mut agents = said(5, AgentStep::Begun, Some(7));
        assert!(agents.is_ready(NODE, word) && agents.is_set_up(NODE, word));
        agents.nodes[0].as_mut().unwrap().has_hooks = false;
        assert_eq!(agents.why_unready(NODE, word), Some(NO_HOOKS));
        assert!(!agents.is_set_up(NODE, word));
        agents.list = None;
        assert!(agents.is_ready(NODE, word), "it counts connections");
    }

    #[test]
    fn servers_are_set_up_where_nothing_is_left_for_a_hook() {
        let word = Some(Assignment::first(Count24::new(5), SiteNumber(0), false));
        for (step, expected) in [
            (AgentStep::Begun, true),
            (AgentStep::HookRuns, false),
            (AgentStep::HookDone, true),
            (AgentStep::HookFailed, false),
        ] {
            let with_hook = said(5, step, Some(7));
            assert_eq!(with_hook.is_set_up(NODE, word), expected, "{step:?}");
            assert!(said(5, step, None).is_set_up(NODE, word), "without hooks");
        }
        assert!(!said(4, AgentStep::HookDone, Some(7)).is_set_up(NODE, word));
    }
}
