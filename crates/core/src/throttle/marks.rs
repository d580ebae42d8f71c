//! Marks of a class's connections to nodes, by which the network tells them from others.
//!
//! ```text
//! mark       SO_MARK: routing rules and filters of this machine; needs CAP_NET_ADMIN
//! priority   SO_PRIORITY: queueing disciplines, and the priority in a VLAN tag (egress-qos-map)
//! dscp       the upper six bits of IP_TOS or IPV6_TCLASS: every router on the way
//! ```
//!
//! A connection has its marks for life, so one that has some is never used for a request that has
//! others. Plain values: setting them is the shell's business.
//!
//! Failure case: marked responses. A mark is on what goes to the node; what comes back is the node's
//! own traffic, and is marked there if it is to be (tc's `connmark`, or by DSCP).
//!
//! Source: "per-session packet tagging and bandwidth fencing", Elephants-2005; contrib/tc has the recipe.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `SO_MARK`.
    pub mark: Option<u32>,
    /// `SO_PRIORITY`; above 6 it needs CAP_NET_ADMIN.
    pub priority: Option<u32>,
    /// The differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
}

impl Marks {
    /// Of a connection like any other.
    pub const NONE: Self = Self {
        mark: None,
        priority: None,
        dscp: None,
    };
    /// Greatest code point.
    pub const DSCP_MAX: u8 = 63;

    /// Whether there are none.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The byte for `IP_TOS` and `IPV6_TCLASS`: the two bits below are ECN's (RFC 3168).
    pub fn traffic_class(self) -> Option<u32> {
        self.dscp.map(|dscp| u32::from(dscp) << 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_point_leaves_the_ecn_bits_alone() {
        let marks = Marks {
            dscp: Some(Marks::DSCP_MAX),
            ..Marks::NONE
        };
        assert_eq!(marks.traffic_class(), Some(0xfc));
        assert!(!marks.is_none() && Marks::NONE.is_none());
        assert_eq!(Marks::NONE.traffic_class(), None);
    }
}
