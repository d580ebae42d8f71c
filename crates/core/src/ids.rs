//! Which node, which site, which group, which check: places in the tables.

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

/// Most checks of a site's nodes.
pub const CHECKS_MAX: usize = 8;

/// A check's place among those of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CheckId(pub u8);

impl CheckId {
    /// Its place in a list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Some checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSet(u8);

const _: () = assert!(CHECKS_MAX <= u8::BITS as usize);

impl CheckSet {
    /// With this check as well.
    #[must_use]
    pub const fn with(self, check: CheckId) -> Self {
        Self(self.0 | 1 << (check.index() % CHECKS_MAX))
    }

    /// Whether this check is one of them.
    pub const fn has(self, check: CheckId) -> bool {
        check.index() < CHECKS_MAX && self.0 & 1 << check.index() != 0
    }

    /// Whether it is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
