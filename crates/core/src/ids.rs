//! Which node, which site, which group: places in the tables.

/// A node's place in the tables. Given out once, in configuration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A site's place in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

impl NodeId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SiteId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A group's place in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// As an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
