//! Sites that an order leaves without a node: `tidegate move --force` says so, and does it.

use tidegate_core::moves::plan::MovePlan;
use tidegate_core::topology::Membership;

use super::MovesTask;

impl MovesTask {
    /// What becomes of a site whose last node a move takes; none if it keeps one.
    pub(super) fn emptied(&self, plan: &MovePlan) -> Option<String> {
        let party = self.party.as_ref()?;
        let topology = self.shared.topology.load();
        let node = party.places.node(plan.intention.node)?;
        let site = topology.node(node).site;
        let mut others = topology.present().filter(|(id, it)| {
            let stays = it.membership == Membership::Member && !it.withheld;
            *id != node && it.site == site && stays
        });
        let is_last = others.next().is_none();
        is_last.then(|| {
            let name = &topology.site(site).name;
            format!("site {name} has no other node: until it gets one its requests are answered 503 (no_node)")
        })
    }
}
