//! Another node for a request that has been at one: it was let in already, and takes its place along.
//!
//! ```text
//! never          a node that was tried, one that has as many requests as its agent allows, one whose group is full
//! for an answer  a node with room for the lowest priority by the site's admission; else none: there is an answer to pass on
//! for a failure  the same; else any of the others: the place that it had at the node that failed is free
//! which one      the policy's choice among those
//! ```
//!
//! A group that is full bears the request at another of its nodes: it is in the group already. While admission is a
//! dry run, every node has room.
//!
//! Inputs: the nodes that were tried, the site's admission, the load table, time.
//!
//! Failure case: a mode without room by node (those that limit a site as a whole) lets all retries through that the budget pays for.
//! Where a node fails and the others are full, these have more than admission would give them, until the node is ejected.
//!
//! Source: our own; the field's practice is a queue before each server (HAProxy's `redispatch`), which there is none of here.

use super::site::{Chosen, Passes, PickerSite};
use super::{Books, Picker, Stickiness, Ticket, view};
use crate::admission::RejectReason;
use crate::policy::View;
use crate::time::Timestamp;
use crate::topology::{NodeId, SiteId};

/// In place of what another node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// An answer, which can be passed on if there is no room elsewhere.
    Answer,
    /// Nothing: no answer has come.
    Failure,
}

/// How much of a node's bounds holds for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Those of admission, of the node's agent and of its group.
    All,
    /// Without those of admission.
    Node,
}

impl Picker {
    /// Whether [`handle_retry`](Self::handle_retry) would find a node.
    pub fn bears_retry(
        &self,
        site: SiteId,
        tried: &[NodeId],
        retried: Retried,
        now: Timestamp,
    ) -> bool {
        // For an answer the bounds of admission hold, for a failure those of a node do in the end.
        let within = match retried {
            Retried::Answer => Within::All,
            Retried::Failure => Within::Node,
        };
        let Some(state) = self.sites.get(site.index()) else {
            return false;
        };
        let all = &self.topology.site(site).candidates;
        let view = view(&self.table, &self.shares, site, all, now);
        let mut nodes = all.iter();
        nodes.any(|node| bears(state, &view, *node, tried, within))
    }

    /// Another node for a request that was at all nodes in `tried`, at the last one just now.
    pub fn handle_retry(
        &mut self,
        site: SiteId,
        tried: &[NodeId],
        retried: Retried,
        now: Timestamp,
    ) -> Result<Ticket, RejectReason> {
        let all = &self.topology.site(site).candidates;
        let state = &mut self.sites[site.index()];
        let view_of_all = view(&self.table, &self.shares, site, all, now);
        self.left.clear();
        for within in [Within::All, Within::Node] {
            if self.left.is_empty() && (within == Within::All || retried == Retried::Failure) {
                let nodes = all.iter();
                let nodes = nodes.filter(|node| bears(state, &view_of_all, **node, tried, within));
                self.left.extend(nodes);
            }
        }
        if self.left.is_empty() {
            let untried = all.iter().any(|node| !tried.contains(node));
            return Err(match untried {
                true => RejectReason::Overload,
                false => RejectReason::NoNode,
            });
        }
        let view = view(&self.table, &self.shares, site, &self.left, now);
        let chosen = Chosen {
            choice: state.pick(&view, &mut self.prng),
            sticky: Stickiness::None,
        };
        Ok(self.dispatch(site, Books::Retry, &chosen, now))
    }
}

/// Whether a node bears a request that was at those nodes.
fn bears(
    state: &PickerSite,
    view: &View<'_>,
    node: NodeId,
    tried: &[NodeId],
    within: Within,
) -> bool {
    if tried.contains(&node) {
        return false;
    }
    if state.admits.dry_run {
        return true;
    }
    let table = view.table;
    let group = table.group_of(node);
    let is_in_group =
        group.is_some() && tried.last().is_some_and(|it| table.group_of(*it) == group);
    let bears = match is_in_group {
        true => table.bears_another_of_agent(node),
        false => table.bears_another(node),
    };
    bears && (within == Within::Node || state.admits(view, node, state.lowest(), Passes::Never))
}
