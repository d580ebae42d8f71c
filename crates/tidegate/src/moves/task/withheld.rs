//! Nodes on their way get no requests, whichever front-end moves them, and get them again once they are where they serve.
//!
//! A node that was to be set up for another site and stays gets them again when its agent says that its servers are set up for
//! what it serves. Failure case: an agent that ends while its node is on its way keeps it out of both sites until it is back.

use tidegate_core::moves::words::NodeNumber;

use super::MovesTask;
use crate::moves::models::WaitingNode;

/// Why a node that serves gets no requests.
const NOT_SET_UP: &str = "its agent has not said yet that its servers are set up";

impl MovesTask {
    /// Nodes that are not on their way any more get requests again.
    pub(super) async fn release_all(&mut self) {
        for node in std::mem::take(&mut self.under_way.to_release) {
            let topology = self.shared.topology.load_full();
            let is_withheld = |id| topology.node(id).withheld;
            if !topology.node_named(&node).is_some_and(is_withheld) {
                continue;
            }
            if !self.party.as_ref().is_none_or(|it| it.is_set_up(&node)) {
                self.keep_back(node, "withheld", NOT_SET_UP);
                continue;
            }
            if let Err(why) = self.cluster.withhold(node.clone(), false).await {
                self.keep_back(node, "move_failed", &why.to_string());
                continue;
            }
            self.under_way.kept_back.remove(&node);
        }
    }

    fn keep_back(&mut self, node: String, event: &str, why: &str) {
        let (name, why) = (node.clone(), why.to_owned());
        let before = self.under_way.kept_back.insert(name, why.clone());
        if before.is_none() {
            let waiting = WaitingNode {
                node: node.clone(),
                why,
            };
            self.output
                .event(event, &format!("node {}", waiting.text()));
        }
        self.under_way.to_release.insert(node);
    }

    /// Withholds requests from nodes on their way but these, and gives them to those again that are back.
    pub(super) async fn withhold_others(&mut self, but: &[NodeNumber]) {
        if self.orders.config.drain.is_none() {
            return;
        }
        let (mut leave, mut back) = (Vec::new(), Vec::new());
        {
            let Some(party) = self.party.as_ref().filter(|it| it.believes()) else {
                return;
            };
            let topology = self.shared.topology.load_full();
            let numbers = (0..party.constitution().nodes()).map(|it| NodeNumber(it as u16));
            for node in numbers.filter(|it| !self.under_way.by_node.contains_key(it)) {
                let known = party.mover.assignment(node).zip(party.places.node(node));
                let name = party.constitution().node_name(node);
                let (Some((assignment, id)), Some(name)) = (known, name) else {
                    continue;
                };
                let is_withheld = topology.node(id).withheld;
                let is_here = party.places.site_of(node, &topology) == Some(assignment.site);
                match assignment.is_serving() {
                    false if !is_withheld && !but.contains(&node) => leave.push(name.to_owned()),
                    true if is_withheld && is_here => back.push(name.to_owned()),
                    true | false => {}
                }
            }
        }
        self.under_way.to_release.extend(back);
        for name in leave {
            self.withhold_other(name).await;
        }
    }

    async fn withhold_other(&mut self, name: String) {
        match self.cluster.withhold(name.clone(), true).await {
            Ok(()) => {
                self.under_way.kept_in.remove(&name);
                let text = format!("node {name} is on its way to another site, as its word says");
                self.output.event("withheld", &text);
            }
            Err(why) => {
                if self.under_way.kept_in.insert(name.clone()) {
                    let text = format!(
                        "node {name} still gets requests, on its way to another site: {why}"
                    );
                    self.output.event("not_withheld", &text);
                }
            }
        }
    }
}
