//! Whose turn it is where sites share what bears only so many requests: a database behind the nodes
//! of several.
//!
//! ```text
//! room    a node's group has fewer own requests in flight than its limit
//! turn    the highest priority first, whatever its site; among sites of the same by weight ([`FairShare`])
//! queue   while anybody waits for a group, newcomers to its sites wait too: no one overtakes
//! ```
//!
//! Each picker is fair among the requests that wait in it. The limit counts for all of the front-end's pickers;
//! several that take the last place at the same instant exceed it by as many.

use crate::admission::FairShare;
use crate::topology::{GroupId, SiteId, Topology};

/// See the module. Of one picker.
#[derive(Debug)]
pub(super) struct Groups {
    groups: Vec<GroupState>,
    /// By site: its group, and its place in it.
    members: Vec<Option<(GroupId, usize)>>,
}

#[derive(Debug)]
struct GroupState {
    fair: FairShare,
    /// A request waits for the group.
    contended: bool,
}

impl Groups {
    pub(super) fn new(topology: &Topology) -> Self {
        let state = |weights: Vec<f64>| GroupState {
            fair: FairShare::new(&weights),
            contended: false,
        };
        let weights = |members: &[(SiteId, f64)]| members.iter().map(|it| it.1).collect();
        let groups = topology.groups.iter();
        let sites = (0..topology.sites.len() as u32).map(SiteId);
        Self {
            groups: groups.map(|it| state(weights(&it.members))).collect(),
            members: sites.map(|site| topology.group_of(site)).collect(),
        }
    }

    fn member(&self, site: SiteId) -> Option<(GroupId, usize)> {
        self.members.get(site.index()).copied().flatten()
    }

    fn state(&mut self, site: SiteId) -> Option<(&mut GroupState, usize)> {
        let (group, place) = self.member(site)?;
        Some((self.groups.get_mut(group.index())?, place))
    }

    /// Its group.
    pub(super) fn of(&self, site: SiteId) -> Option<GroupId> {
        self.member(site).map(|it| it.0)
    }

    /// Whether newcomers of the site have to wait behind others.
    pub(super) fn is_contended(&self, site: SiteId) -> bool {
        let group = self.of(site).and_then(|it| self.groups.get(it.index()));
        group.is_some_and(|group| group.contended)
    }

    /// A request of the site waits for the group.
    pub(super) fn contend(&mut self, site: SiteId) {
        if let Some((state, _)) = self.state(site) {
            state.contended = true;
        }
    }

    /// No request waits for those groups of which `waits` says so.
    pub(super) fn calm(&mut self, waits: impl Fn(SiteId) -> bool) {
        for (index, state) in self.groups.iter_mut().enumerate() {
            let id = GroupId(index as u32);
            let mut sites = (0..).map(SiteId).zip(&self.members);
            let of_it = |member: &Option<(GroupId, usize)>| member.is_some_and(|it| it.0 == id);
            state.contended &= sites.any(|(site, member)| of_it(member) && waits(site));
        }
    }

    /// When the site's next turn begins; the least goes first.
    pub(super) fn start(&self, site: SiteId) -> f64 {
        let start = |(group, place): (GroupId, usize)| {
            let state = self.groups.get(group.index())?;
            Some(state.fair.start(place))
        };
        self.member(site).and_then(start).unwrap_or(0.0)
    }

    /// A request of the site goes to a node, which is in this group.
    pub(super) fn dispatched(&mut self, site: SiteId, at: Option<GroupId>) {
        if at.is_some()
            && at == self.of(site)
            && let Some((state, place)) = self.state(site)
        {
            state.fair.served(place);
        }
    }
}
