//! How many own requests a node bears at most, as its agent says; and whether it bears another one, its group's bound included.
//!
//! The group's word says whether there is any bound: so a node without one costs a look at a line that a pick reads anyway.

use std::sync::atomic::Ordering;

use super::LoadTable;
use crate::ids::NodeId;
use crate::load::slot::HAS_MOST;

impl LoadTable {
    /// Sets how many own requests a node bears at most.
    pub(crate) fn set_most(&self, node: NodeId, most: Option<u32>) {
        let word = &self.slot(node).own.group;
        match most {
            None => word.fetch_and(!HAS_MOST, Ordering::Relaxed),
            Some(most) => {
                self.most[node.index()].store(most.into(), Ordering::Relaxed);
                word.fetch_or(HAS_MOST, Ordering::Relaxed)
            }
        };
    }

    /// How many own requests a node bears at most, if that is bounded.
    pub fn most(&self, node: NodeId) -> Option<u64> {
        let word = self.slot(node).own.group.load(Ordering::Relaxed);
        let has_most = word & HAS_MOST != 0;
        has_most.then(|| self.most[node.index()].load(Ordering::Relaxed))
    }

    /// Whether a node bears another own request: fewer are in flight there than its agent allows, and at its group's nodes
    /// than the group bears.
    #[inline]
    pub fn bears_another(&self, node: NodeId) -> bool {
        let word = self.slot(node).own.group.load(Ordering::Relaxed);
        word == 0 || self.bears_another_within(node)
    }

    fn bears_another_within(&self, node: NodeId) -> bool {
        self.bears_another_of_agent(node) && self.has_group_room(node)
    }

    /// Whether a node bears another own request as far as its agent says.
    pub(crate) fn bears_another_of_agent(&self, node: NodeId) -> bool {
        self.most(node)
            .is_none_or(|most| self.in_flight(node) < most)
    }

    /// Whether the node's group, if it is in one, bears another request.
    pub(crate) fn has_group_room(&self, node: NodeId) -> bool {
        self.group_of(node).is_none_or(|group| {
            let (in_flight, limit) = self.group(group);
            in_flight < limit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;
    use crate::load::Group;

    const NODE: NodeId = NodeId(0);

    fn group(limit: u32) -> Group {
        Group {
            name: "database".into(),
            limit,
            members: Vec::new(),
            nodes: vec![NODE],
        }
    }

    #[test]
    fn a_node_bears_as_many_as_its_agent_and_its_group_allow() {
        let table = LoadTable::new(1, 1);
        assert!(table.bears_another(NODE));
        table.set_most(NODE, Some(2));
        table.set_groups(&[group(3)]);
        assert_eq!(table.most(NODE), Some(2), "the group leaves it alone");
        assert_eq!(table.group_of(NODE), Some(GroupId(0)));
        let own_group = table.group_of(NODE);
        table.dispatch(NODE, own_group);
        assert!(table.bears_another(NODE));
        table.dispatch(NODE, own_group);
        assert!(!table.bears_another(NODE), "as many as its agent allows");
        table.set_most(NODE, None);
        assert!(table.bears_another(NODE));
        table.dispatch(NODE, own_group);
        assert!(!table.bears_another(NODE), "as many as its group bears");
        table.set_groups(&[]);
        assert!(table.bears_another(NODE));
        table.set_most(NODE, Some(1));
        table.complete(NODE, own_group);
        table.clear(NODE);
        assert_eq!(table.most(NODE), None, "another node has the place");
    }
}
