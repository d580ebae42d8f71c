//! Copies of requests that another site has: they get what is to spare.
//!
//! ```text
//! gets a node   if no request waits at the site, at any picker of the front-end or of its groups, none was refused there within
//!               the last second, admission lets in a request of the lowest priority, and a node has room for one
//! which one     the policy's choice among those that have room
//! else          none: it does not wait, and nothing is made up for
//! ```
//!
//! It counts as in flight at its node from the pick on, as any request.
//!
//! Inputs: the site's queue and admission, the load table, time.
//!
//! Failure case: a site that is never full, and whose answers are slow all the same: copies come as long as there is room.
//!
//! Source: our own; what is beside the requests of clients must not take room from them.

use std::time::Duration;

use super::heads::Member;
use super::site::{Chosen, Passes};
use super::{Books, Picker, Stickiness, Ticket, view};
use crate::admission::AdmissionVerdict;
use crate::time::Timestamp;
use crate::topology::SiteId;

/// A site that has refused a request gets no copies for so long.
const REFUSED: Duration = Duration::from_secs(1);

impl Picker {
    /// A node for a copy of another site's request, if the site has one to spare.
    pub fn handle_copy(&mut self, site: SiteId, now: Timestamp) -> Option<Ticket> {
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
        let asked = (state.admission).on_request(&view_of_all, lowest, &mut self.prng);
        if asked != AdmissionVerdict::Admit {
            return None;
        }
        let has_room = |node| state.has_room(&view_of_all, node, lowest, Passes::Never);
        let nodes = all.iter();
        self.left.clear();
        self.left.extend(nodes.filter(|node| has_room(**node)));
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
