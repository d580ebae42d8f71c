//! What a picker does for its requests to have their turns among those of others; see [`super::heads`].

use super::heads::Member;
use super::{Picker, view};
use crate::admission::Priority;
use crate::time::Timestamp;
use crate::topology::SiteId;

impl Picker {
    /// This picker's head at the site has changed, maybe: others learn of it.
    pub(super) fn publish(&mut self, site: SiteId) {
        let Some(member) = &mut self.member else {
            return;
        };
        if member.publish(site, self.sites[site.index()].head()) {
            self.pass(site);
        }
    }

    fn pass(&mut self, site: SiteId) {
        if !self.passing.contains(&site) {
            self.passing.push(site);
        }
    }

    /// Whether another picker's request goes before those that wait here, and room is left to it.
    pub(super) fn leaves_room(&mut self, site: SiteId, now: Timestamp) -> bool {
        let elder = self.member.as_ref().and_then(|it| it.elder(site));
        // One that stands serves the newest first: age is no claim there.
        let (Some((_, head)), Some(_)) = (elder, self.sites[site.index()].head()) else {
            self.sites[site.index()].deference.end();
            return false;
        };
        let has_room = self.has_room_for(site, head.rank.priority(), now);
        let deference = &mut self.sites[site.index()].deference;
        if !has_room {
            deference.end();
            return false;
        }
        let leaves = deference.leaves_to(head, now);
        if leaves {
            self.pass(site);
        }
        leaves
    }

    fn has_room_for(&self, site: SiteId, priority: Priority, now: Timestamp) -> bool {
        let candidates = &self.topology.site(site).candidates;
        let view = view(&self.table, &self.shares, site, candidates, now);
        self.sites[site.index()].has_any_room(&view, priority)
    }

    /// A request of the site has ended, or rests: another picker's may have its turn. To be asked for then with
    /// [`Picker::poll_elder`].
    #[inline]
    pub fn handle_room(&mut self, site: SiteId) {
        if self.member.as_ref().is_some_and(Member::any) && site.index() < self.sites.len() {
            self.pass(site);
        }
    }

    /// Another picker, by its number, whose request has its turn and finds room: it is to be woken. To be asked after
    /// all else that may make room or change what waits, until there is none.
    pub fn poll_elder(&mut self, now: Timestamp) -> Option<usize> {
        while let Some(site) = self.passing.pop() {
            let elder = self.member.as_ref().and_then(|it| it.elder(site));
            let elder = elder.filter(|_| site.index() < self.sites.len());
            if let Some((picker, head)) = elder
                && self.has_room_for(site, head.rank.priority(), now)
            {
                return Some(picker);
            }
        }
        None
    }
}
