//! Where nodes are as a front-end starts, whose servers their agents set up: its listeners open once that is known.
//!
//! ```text
//! L is our list, A serves s                     it begins at s
//! L is our list, A is on its way from y         it begins at y, without requests, as at a front-end that has seen it leave
//! the same, B: a hook of A runs, or has failed  without requests
//! another list, none, or no word that is known  it begins at the site of the file
//! all have answered, or 200 ms are over         listeners open
//! ```
//!
//! The list in the node's own word L says what numbers in A mean, so the home of the locks is not asked. An upgrade hands
//! over where nodes are.
//!
//! Inputs: the regions of nodes that can be moved. Failure case: nodes that do not answer within that time begin at the sites of
//! the file, and the log names them.
//! Source: not in Reconfiguration-2004, whose servers have all sites.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::words::{AgentStatus, Assignment, NodeNumber};
use tidegate_remote::udp::UdpOptions;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::agents::is_settled;
use super::engine::{AgentWords, NodeRegions};
use crate::config::{Movable, NodeRead, Reconfigure};
use crate::models::MovedNodes;
use crate::output::Output;

/// For how long listeners wait.
const WITHIN: Duration = Duration::from_millis(200);
/// A node that is silent does not hold the others up: it is asked again after them.
const ASKED: UdpOptions = UdpOptions {
    wait: Duration::from_millis(10),
    tries: 1,
};
/// Most nodes that the log names.
const NAMED_MAX: usize = 10;

/// Where nodes begin that are not where the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesAtStart {
    /// These serve other sites.
    pub(crate) moved: MovedNodes,
    /// These are on their way, and get no requests.
    pub(crate) withheld: Vec<String>,
}

/// What a node's words said.
struct NodeWords {
    node: NodeNumber,
    assignment: u64,
    agent: AgentWords,
}

/// Asks nodes for their words, if hooks set them up.
pub(crate) async fn nodes_at_start(
    config: Option<&Reconfigure>,
    movable: &Movable,
    reads: &BTreeMap<String, NodeRead>,
    output: Output,
) -> NodesAtStart {
    let Some(config) = config.filter(|it| it.hook.is_some()) else {
        return NodesAtStart::default();
    };
    // What is wrong with the sites is said once moves begin.
    let Ok(constitution) = movable.constitution(config.drain.is_some(), true) else {
        return NodesAtStart::default();
    };
    let read = |(name, read): (&String, _)| Some((constitution.node_number(name)?, read));
    let regions = NodeRegions::new(reads.iter().filter_map(read), ASKED);
    let (answers, mut answered) = mpsc::channel(constitution.nodes().max(1));
    let nodes = constitution.nodes();
    let thread = std::thread::Builder::new()
        .name("tidegate-start".into())
        .spawn(move || ask(regions, nodes, &answers));
    if let Err(error) = thread {
        let text = format!("where nodes are is not read before listeners open: no thread: {error}");
        output.event("moves_not_read", &text);
        return NodesAtStart::default();
    }
    let mut found = NodesAtStart::default();
    let mut silent: Vec<_> = (0..nodes).map(|it| NodeNumber(it as u16)).collect();
    let all = async {
        while let Some(words) = answered.recv().await {
            silent.retain(|it| *it != words.node);
            found.take(&words, &constitution);
        }
    };
    // Those that are silent by then are named.
    timeout(WITHIN, all).await.ok();
    drop(answered);
    let names = silent.iter().filter_map(|it| constitution.node_name(*it));
    let names: Vec<_> = names.collect();
    if !names.is_empty() {
        output.event("moves_not_read", &unread(&names));
    }
    found
}

/// Asks each node until it has answered, or nothing waits for it any more.
fn ask(regions: NodeRegions, nodes: usize, answers: &mpsc::Sender<NodeWords>) {
    let mut regions = regions;
    let mut silent: Vec<_> = (0..nodes).map(|it| NodeNumber(it as u16)).collect();
    while !silent.is_empty() && !answers.is_closed() {
        silent.retain(|node| {
            let Some((assignment, agent)) = regions.assignment(*node) else {
                return !answers.is_closed();
            };
            let words = NodeWords {
                node: *node,
                assignment,
                agent,
            };
            // Where it fails nothing waits any more, and there is room for each node.
            answers.try_send(words).ok();
            false
        });
        // A region of this host refuses at once.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

fn unread(names: &[&str]) -> String {
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    let more = match names.len() > NAMED_MAX {
        true => ", …",
        false => "",
    };
    format!(
        "nodes that did not say within {} ms which site they serve begin at the site of the file: {named}{more}",
        WITHIN.as_millis()
    )
}

/// Whether its agent says of this word that its servers are not set up for it.
fn is_being_set_up(assignment: Assignment, status: u64) -> bool {
    let said = AgentStatus::unpack(status).ok().flatten();
    said.is_some_and(|it| it.generation == assignment.generation && !is_settled(it.step))
}

impl NodesAtStart {
    fn take(&mut self, words: &NodeWords, constitution: &Constitution) {
        if words.agent.sites != constitution.site_list() {
            return;
        }
        let Ok(Some(assignment)) = Assignment::unpack(words.assignment) else {
            return;
        };
        let (from, node) = (assignment.from(), words.node);
        let site = from.unwrap_or(assignment.site);
        let Some((name, site_name)) = constitution
            .node_name(node)
            .zip(constitution.site(site).map(|it| it.name.clone()))
        else {
            return;
        };
        if constitution.home(node) != Some(site) {
            self.moved.insert(name.to_owned(), site_name);
        }
        if from.is_some() || is_being_set_up(assignment, words.agent.status) {
            self.withheld.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::moves::numbering::{MovableNode, SiteRules};
    use tidegate_core::moves::words::{AgentStep, AssignmentState, Count24, SiteNumber};

    use super::*;

    /// Sites by number: the blog, which has `b1` and `b2`, and the shop.
    fn constitution() -> Constitution {
        let rules = |name: &str| SiteRules {
            name: name.into(),
            floor: 1,
            ceiling: 9,
            priority: 0,
        };
        let node = |name: &str| MovableNode {
            name: name.into(),
            home: "blog".into(),
        };
        let sites = ["blog", "shop"].map(rules);
        let nodes = ["b1", "b2"].map(node);
        Constitution::new(sites.into(), nodes.into(), true, 1)
            .unwrap()
            .with_hook()
    }

    const BLOG: SiteNumber = SiteNumber(0);
    const SHOP: SiteNumber = SiteNumber(1);

    fn serves(site: SiteNumber) -> Assignment {
        Assignment::first(Count24::new(5), site, false)
    }

    fn on_its_way(from: SiteNumber, to: SiteNumber) -> Assignment {
        Assignment {
            state: AssignmentState::Draining { from },
            ..serves(to)
        }
    }

    /// What becomes of b2 by such a word A.
    fn found(assignment: u64, sites: u64) -> (Option<String>, bool) {
        found_with(assignment, AgentWords { status: 0, sites })
    }

    fn found_with(assignment: u64, agent: AgentWords) -> (Option<String>, bool) {
        let mut found = NodesAtStart::default();
        let words = NodeWords {
            node: NodeNumber(1),
            assignment,
            agent,
        };
        found.take(&words, &constitution());
        assert!(!found.moved.contains_key("b1"));
        (found.moved.remove("b2"), found.withheld == ["b2"])
    }

    #[test]
    fn nodes_begin_where_their_words_say_and_without_requests_on_their_way() {
        let ours = constitution().site_list();
        let shop = Some("shop".to_owned());
        for (assignment, expected) in [
            (serves(BLOG), (None, false)),
            (serves(SHOP), (shop.clone(), false)),
            (on_its_way(BLOG, SHOP), (None, true)),
            (on_its_way(BLOG, SHOP).switching(), (None, true)),
            (on_its_way(SHOP, BLOG), (shop, true)),
        ] {
            assert_eq!(found(assignment.pack(), ours), expected, "{assignment:?}");
        }
    }

    #[test]
    fn a_node_that_is_being_set_up_for_what_it_serves_begins_without_requests() {
        let sites = constitution().site_list();
        for (generation, step, expected) in [
            (5, AgentStep::Begun, false),
            (5, AgentStep::HookRuns, true),
            (5, AgentStep::HookFailed, true),
            (5, AgentStep::HookDone, false),
            (4, AgentStep::HookFailed, false),
        ] {
            let status = AgentStatus {
                generation: Count24::new(generation),
                step,
                connections: 0,
                exit_code: 0,
                has_hooks: true,
            };
            let agent = AgentWords {
                status: status.pack(),
                sites,
            };
            let found = found_with(serves(SHOP).pack(), agent);
            assert_eq!(found, (Some("shop".into()), expected), "{step:?}");
        }
    }

    #[test]
    fn words_of_another_list_and_words_that_no_front_end_writes_say_nothing() {
        let ours = constitution().site_list();
        let word = serves(SHOP).pack();
        for (assignment, sites) in [
            (word, 0),
            (word, ours + 1),
            (0, ours),
            (serves(SiteNumber(7)).pack(), ours),
            (word | 15 << 36, ours),
        ] {
            assert_eq!(found(assignment, sites), (None, false), "{assignment:x}");
        }
    }

    #[test]
    fn the_log_names_some_of_the_nodes_that_did_not_answer() {
        let few = unread(&["b1", "b2"]);
        assert!(
            few.contains("within 200 ms") && few.ends_with(": b1, b2"),
            "{few}"
        );
        let many = unread(&["n"; NAMED_MAX + 1]);
        assert!(
            many.ends_with("n, n, …") && many.matches("n,").count() == NAMED_MAX,
            "{many}"
        );
    }
}
