//! Slow start at one picker: a node that ramps gets no more of a site's requests than its share, whatever the policy.
//!
//! ```text
//! each request of the site:  credit(s) += share(s)     for the nodes that ramp; 4 at most
//! the policy picks s:        credit(s) >= 1: it has the request, and one credit less
//!                            else the policy picks again among the nodes with credit, and those that do not ramp
//! ```
//!
//! The share is the director's (`director::slow_start`). Where no node ramps nothing here happens, and the choices
//! are those of the policy alone. A policy may give a node less than its credit, which is not kept for long.
//!
//! Inputs: the shares in the load table. Failure case: a picker that has fewer requests than 1 / share sends the
//! node nothing meanwhile; where all nodes that are left ramp, the policy's choice stands.
//! Source: a token bucket per node; credits instead of chances because the least loaded node of all would be
//! picked at every chance.

use crate::load::LoadTable;
use crate::policy::{Choice, Policy, View};
use crate::prng::Prng;
use crate::topology::{NodeId, Site};

/// Most requests that a node may have at once because the policy did not want it before.
const CREDIT_MAX: f32 = 4.0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ramps {
    ramps: Vec<Credit>,
    /// Nodes that are left; kept so that nothing is allocated.
    left: Vec<NodeId>,
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    node: NodeId,
    requests: f32,
}

impl Ramps {
    /// The nodes that ramp are these from now on.
    pub(super) fn on_site(&mut self, site: &Site) {
        let credit = |node: &NodeId| {
            let kept = self.ramps.iter().find(|it| it.node == *node);
            Credit {
                node: *node,
                requests: kept.map_or(0.0, |it| it.requests),
            }
        };
        self.ramps = site.ramping.iter().map(credit).collect();
        if !self.ramps.is_empty() {
            self.left.reserve(site.candidates.len());
        }
    }

    /// One more request of the site has come.
    #[inline]
    pub(super) fn on_request(&mut self, table: &LoadTable) {
        for ramp in &mut self.ramps {
            let more = ramp.requests + table.ramp(ramp.node).share;
            ramp.requests = more.min(CREDIT_MAX);
        }
    }

    /// What the policy picks, within the shares.
    #[inline]
    pub(super) fn pick(
        &mut self,
        policy: &mut dyn Policy,
        view: &View<'_>,
        prng: &mut Prng,
    ) -> Choice {
        let choice = policy.pick(view, prng);
        match self.ramps.is_empty() || self.takes(choice.node) {
            true => choice,
            false => self.pick_again(&choice, policy, view, prng),
        }
    }

    #[cold]
    fn pick_again(
        &mut self,
        first: &Choice,
        policy: &mut dyn Policy,
        view: &View<'_>,
        prng: &mut Prng,
    ) -> Choice {
        let spent = |node: &NodeId| {
            let ramp = self.ramps.iter().find(|it| it.node == *node);
            ramp.is_some_and(|it| it.requests < 1.0)
        };
        self.left.clear();
        let nodes = view.candidates.iter();
        self.left.extend(nodes.filter(|node| !spent(node)));
        if self.left.is_empty() {
            return *first;
        }
        let view = View {
            candidates: &self.left,
            ..*view
        };
        let choice = policy.pick(&view, prng);
        self.takes(choice.node);
        choice
    }

    /// Whether the node may have one more; it is then counted.
    fn takes(&mut self, node: NodeId) -> bool {
        let Some(ramp) = self.ramps.iter_mut().find(|it| it.node == node) else {
            return true;
        };
        let may = ramp.requests >= 1.0;
        if may {
            ramp.requests -= 1.0;
        }
        may
    }
}
