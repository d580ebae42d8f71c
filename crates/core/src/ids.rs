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

    /// Those of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are here and not there.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set with these bits, bit i for the check at place i. What is beyond [`CHECKS_MAX`] is left out.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits as u8)
    }

    /// Its bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Its checks, in order.
    pub fn iter(self) -> impl Iterator<Item = CheckId> {
        (0..CHECKS_MAX as u8)
            .map(CheckId)
            .filter(move |it| self.has(*it))
    }
}

const _: () = assert!(CHECKS_MAX == u8::BITS as usize);
