//! What other front-ends have moved, as nodes' words say it: followed here as one change.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::moves::follow::FollowedNode;
use tidegate_core::moves::words::{Assignment, NodeNumber, SiteNumber};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Membership, Node, Topology};

use super::super::party::Party;
use super::super::record::{cause, unix_us};
use super::{AGAIN_AFTER, IN_BETWEEN, MoveRecord, MovesTask};
use crate::models::MovedNodes;
use crate::output;
use crate::reload::ReloadError;

/// A node whose word is known.
#[derive(Clone, Copy)]
struct Worded {
    node: NodeNumber,
    here: SiteNumber,
    assignment: Assignment,
}

impl MovesTask {
    /// Has nodes serve here what their words say where other front-ends have moved them. Gives those that go on to get
    /// requests where they are, whatever their words say.
    pub(super) async fn follow_words(&mut self, now: Timestamp) -> Vec<NodeNumber> {
        let Some(party) = self.party.as_ref().filter(|it| it.believes()) else {
            return Vec::new();
        };
        let topology = self.shared.topology.load_full();
        let worded = worded(party, &topology);
        for it in worded.iter().filter(|it| it.assignment.is_serving()) {
            self.settle(it.node, it.assignment).await;
        }
        let waiting = self.waiting(&worded, now);
        let moved = worded.iter().filter(|it| {
            let is_own = self.under_way.by_node.contains_key(&it.node);
            let is_elsewhere = it.assignment.is_serving() && it.assignment.site != it.here;
            is_elsewhere && !is_own && !waiting.contains(&it.node)
        });
        let seen: Vec<_> = moved.filter_map(|it| self.seen(*it)).collect();
        if !seen.is_empty() && now >= self.again_at {
            self.follow_others(seen, now).await;
        }
        waiting
    }

    /// Nodes that would leave a site without any, for a moment.
    fn waiting(&mut self, worded: &[Worded], now: Timestamp) -> Vec<NodeNumber> {
        let Some(party) = &self.party else {
            return Vec::new();
        };
        let topology = self.shared.topology.load_full();
        let known = worded.iter().filter_map(|it| {
            let id = party.places.node(it.node)?;
            let assignment = it.assignment;
            let is_own = self.under_way.by_node.contains_key(&it.node);
            Some(FollowedNode {
                node: it.node,
                here: it.here,
                gets_requests: gets_requests(topology.node(id)),
                // What this front-end moves leaves when it says so.
                serves: match is_own {
                    true => Some(it.here),
                    false => assignment.is_serving().then_some(assignment.site),
                },
            })
        });
        let known: Vec<_> = known.collect();
        let spoken_of = |id| {
            known
                .iter()
                .any(|it| party.places.node(it.node) == Some(id))
        };
        let others = |site| {
            let mut members = topology.members();
            members.any(|(id, node)| {
                let is_of = party.places.site_number(node.site) == Some(site);
                is_of && gets_requests(node) && !spoken_of(id)
            })
        };
        self.follower.look(&known, others, now)
    }

    /// A move of ours that is neither at its end nor on its way came to nothing.
    async fn settle(&mut self, node: NodeNumber, assignment: Assignment) {
        let Some(begun) = self.under_way.by_node.get(&node) else {
            return;
        };
        if !assignment.generation.is_after(begun.before) {
            return;
        }
        if let Some(begun) = self.under_way.by_node.remove(&node) {
            self.under_way.to_release.insert(begun.record.node.clone());
            self.release_all().await;
            self.end(begun.record, Some(IN_BETWEEN.into()));
        }
    }

    /// Other front-ends have nodes serve other sites: as one change, or one by one if that is refused.
    async fn follow_others(&mut self, seen: Vec<MoveRecord>, now: Timestamp) {
        let all = seen.iter().map(|it| (it.node.clone(), it.to.clone()));
        let done = self.cluster.assign(all.collect()).await;
        if done.is_ok() || seen.len() == 1 {
            for it in seen {
                self.on_followed(it, &done, now);
            }
            return;
        }
        for it in seen {
            let one: MovedNodes = BTreeMap::from([(it.node.clone(), it.to.clone())]);
            let done = self.cluster.assign(one).await;
            self.on_followed(it, &done, now);
        }
    }

    fn on_followed(&mut self, seen: MoveRecord, done: &Result<(), ReloadError>, now: Timestamp) {
        let MoveRecord { node, from, to, .. } = &seen;
        match done {
            Ok(()) => {
                let text = format!("node {node} serves {to} instead of {from}, as its word says");
                self.output.event("followed", &text);
                self.history.push(MoveRecord {
                    number: self.under_way.next_number(),
                    assigned_us: Some(unix_us()),
                    ..seen
                });
            }
            Err(why) => {
                self.again_at = now + AGAIN_AFTER;
                let text = format!("node {node} cannot serve {to} here, as its word says: {why}");
                self.output.event("not_followed", &text);
            }
        }
    }

    /// A move as the node's word shows it.
    fn seen(&self, worded: Worded) -> Option<MoveRecord> {
        let Worded {
            node,
            here,
            assignment,
        } = worded;
        let constitution = self.party.as_ref()?.constitution();
        let site = |number| constitution.site(number).map(|it| it.name.clone());
        Some(MoveRecord {
            number: 0,
            at: output::now(),
            own: false,
            node: constitution.node_name(node)?.to_owned(),
            from: site(here)?,
            to: site(assignment.site)?,
            cause: cause(assignment.cause).into(),
            pressure: None,
            expected: None,
            failed: None,
            generation: assignment.generation.get(),
            decided_us: None,
            assigned_us: None,
        })
    }
}

/// The nodes whose words are known and that are here.
fn worded(party: &Party, topology: &Arc<Topology>) -> Vec<Worded> {
    let numbers = (0..party.constitution().nodes()).map(|number| NodeNumber(number as u16));
    let known = numbers.filter_map(|node| {
        Some(Worded {
            node,
            here: party.places.site_of(node, topology)?,
            assignment: party.mover.assignment(node)?,
        })
    });
    known.collect()
}

fn gets_requests(node: &Node) -> bool {
    node.membership == Membership::Member && node.is_ready()
}
