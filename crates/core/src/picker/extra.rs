//! Requests beside those that come by themselves: a copy of one that another site has, and one more try of one that is under way.
//!
//! ```text
//! gets a node   if no request waits at the site, at any picker of the front-end or of its groups, none was refused there within
//!               the last second, and a node has room for the lowest priority
//! which one     the policy's choice among those that have room and are not excepted
//! else          none: it does not wait, and nothing is made up for
//! ```
//!
//! A copy asks the site's admission as a request of the lowest priority. One more try does not: its request was let in. Both count
//! as in flight at their node from the pick on, as any.
//!
//! Inputs: the site's queue and admission, the load table, time.
//!
//! Failure case: a mode without room by node (those that limit a site as a whole) lets further tries in until it refuses a request.
//!
//! Source: our own; what is beside the requests of clients must not take room from them.

use std::time::Duration;

use super::heads::Member;
use super::site::{Chosen, Passes};
use super::{Books, Picker, Stickiness, Ticket, view};
use crate::admission::AdmissionVerdict;
use crate::time::Timestamp;
use crate::topology::{NodeId, SiteId};

/// A site that has refused a request bears none of these for so long.
const REFUSED: Duration = Duration::from_secs(1);

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra<'a> {
    /// A copy of a request of another site.
    Copy,
    /// One more try of a request that these nodes have.
    Try(&'a [NodeId]),
}

impl Picker {
    /// A node for one of them, if the site has one to spare.
    pub fn handle_extra(
        &mut self,
        site: SiteId,
        extra: Extra<'_>,
        now: Timestamp,
    ) -> Option<Ticket> {
        let state = self.sites.get_mut(site.index())?;
        let lowest = state.lowest();
        let behind = |member: &Member| member.is_ahead_of(site, lowest);
        let waits = !state.waiting.is_empty()
            || self.member.as_ref().is_some_and(behind)
            || self.groups.is_contended(site);
        let refused = state.refused_at.is_some_and(|at| now.since(at) < REFUSED);
        let all = &self.topology.site(site).candidates;
        if waits || refused || all.is_empty() {
            return None;
        }
        let view_of_all = view(&self.table, &self.shares, site, all, now);
        let but = match extra {
            Extra::Copy => {
                let asked = state
                    .admission
                    .on_request(&view_of_all, lowest, &mut self.prng);
                if asked != AdmissionVerdict::Admit {
                    return None;
                }
                &[][..]
            }
            Extra::Try(but) => but,
        };
        let has_room = |node: NodeId| state.has_room(&view_of_all, node, lowest, Passes::Never);
        let nodes = all.iter();
        self.left.clear();
        self.left
            .extend(nodes.filter(|node| !but.contains(node) && has_room(**node)));
        if self.left.is_empty() {
            return None;
        }
        let view = view(&self.table, &self.shares, site, &self.left, now);
        let chosen = Chosen {
            choice: state.pick(&view, &mut self.prng),
            sticky: Stickiness::None,
        };
        Some(self.dispatch(site, Books::Retry, &chosen, now))
    }
}
